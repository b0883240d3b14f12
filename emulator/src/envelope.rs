//! Turns DynamoDB's HTTP requests into calls of the emulator, and outcomes into HTTP responses. It finds the operation,
//! refuses requests that are too large or not signed, and gives each answer its checksum and id.

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use xxhash_rust::xxh64::xxh64;

use crate::clock::Millis;
use crate::error::{Error, Kind};
use crate::limits::{HEAD_BYTES, REQUEST_BYTES};
use crate::op::Call;

/// Parses a request into a call of its operation.
pub(crate) fn open(request: &Request<Bytes>) -> Result<Call, Error> {
    if head_bytes(request) > HEAD_BYTES {
        let most = format!("The request's line and headers have exceeded the maximum of {HEAD_BYTES} bytes");
        return Err(Error::new(Kind::Serialization, most));
    }
    if request.uri().path() != "/" {
        return Err(Error::new(Kind::UnknownPath, ""));
    }
    if request.method() != Method::POST {
        return Err(Error::new(Kind::UnknownOperation, ""));
    }
    if request.body().len() > REQUEST_BYTES {
        return Err(too_large());
    }
    if !request.headers().contains_key(header::AUTHORIZATION) {
        return Err(Error::new(Kind::MissingAuthenticationToken, "Request is missing Authentication Token"));
    }
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok());
    Call::decode(target.unwrap_or_default(), request.body())
}

/// The size of a request's line and headers.
fn head_bytes(request: &Request<Bytes>) -> usize {
    let line = request.method().as_str().len() + request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    // Colons, spaces and line ends.
    line + headers.sum::<usize>() + 4 * request.headers().len()
}

/// The error for a body over the limit.
pub(crate) fn too_large() -> Error {
    Error::new(Kind::RequestEntityTooLarge, format!("Request size exceeded the maximum of {REQUEST_BYTES} bytes"))
}

/// The HTTP response at `now`; `nth` determines its request id.
pub(crate) fn seal(outcome: Result<Vec<u8>, Error>, nth: u64, now: Millis) -> Response<Bytes> {
    let (status, body) = match outcome {
        Ok(body) => (StatusCode::OK, body),
        Err(error) => (error.kind.status(), error.body()),
    };
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.0"));
    headers.insert("x-amz-crc32", HeaderValue::from(crc32fast::hash(&body)));
    let id = format!("{:016X}{:016X}", xxh64(&nth.to_le_bytes(), 1), xxh64(&nth.to_le_bytes(), 2));
    headers.insert("x-amzn-requestid", HeaderValue::try_from(id).expect("hexadecimal digits are a header value"));
    if let Some(date) = date(now) {
        headers.insert(header::DATE, date);
    }
    *response.body_mut() = body.into();
    response
}

/// The second of `now` as a `Date` header.
fn date(now: Millis) -> Option<HeaderValue> {
    let second = DateTime::from_secs(i64::try_from(now / 1000).ok()?);
    HeaderValue::try_from(second.fmt(Format::HttpDate).ok()?).ok()
}
