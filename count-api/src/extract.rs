//! Extractors (of axum) for the queries and JSON bodies of the API's requests, which they check before a handler reads
//! or writes anything.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};
use tokio::time::timeout;

use crate::error::{Parameter, Problem, Result, quoted};

/// The longest body: a hundred ids of 256 bytes, each written with escapes, or four hundred without.
pub const BODY_BYTES: usize = 192 * 1024;

/// How much of a body that is too long is still read, so that the client sees the refusal.
const DRAINED_BYTES: usize = 2 * 1024 * 1024;

/// The time limit of a body.
const BODY_TIME: Duration = Duration::from_secs(5);

/// A query string with only parameters that the route knows.
#[derive(Clone, Copy, Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|rejection: QueryRejection| {
            let text = rejection.body_text();
            bad_query(text.split_once(": ").map_or(&*text, |(_, why)| why))
        })
    }
}

/// Turns serde's message about a query into a problem that names the parameter.
fn bad_query(why: &str) -> Problem {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let (name, why) = match why.split_once(": ") {
        Some((path, why)) if is_name(path) => (Some(path), why),
        _ => (named_field(why), why),
    };
    Problem::BadQuery { parameter: name.map(parameter_named), why: quoted(why).into_owned() }
}

/// Returns the field that a message of serde's is about.
fn named_field(why: &str) -> Option<&str> {
    let begins = ["unknown field `", "missing field `", "duplicate field `"];
    begins.iter().find_map(|begin| why.strip_prefix(begin))?.split('`').next()
}

/// Returns a parameter with the name that the client sent.
fn parameter_named(name: &str) -> Parameter {
    Parameter { name: quoted(name).into_owned().into(), index: None }
}

/// A JSON body, read within its limits of size and time.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        if !is_json(request.headers()) {
            return Err(Problem::NotJson);
        }
        let body = timeout(BODY_TIME, read(request.into_body())).await.map_err(|_| Problem::SlowBody)??;
        serde_json::from_slice(&body).map(Self).map_err(|error| bad_body::<T>(&body, &error))
    }
}

/// Returns what is wrong with a body. It reads the body once more to find the place of the fault.
fn bad_body<T: DeserializeOwned>(body: &[u8], error: &serde_json::Error) -> Problem {
    let again = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(body));
    let why = error.to_string();
    let parameter = again.err().and_then(|fault| parameter_at(fault.path()));
    let parameter = parameter.or_else(|| named_field(&why).map(parameter_named));
    Problem::BadBody { parameter, why: quoted(&why).into_owned() }
}

/// Returns the member of a body at `path`, with the index if it is a list's element.
fn parameter_at(path: &Path) -> Option<Parameter> {
    let mut segments = path.iter();
    let Some(Segment::Map { key }) = segments.next() else { return None };
    let index = match segments.next() {
        Some(Segment::Seq { index }) => Some(*index),
        _ => None,
    };
    Some(Parameter { index, ..parameter_named(key) })
}

async fn read(body: Body) -> Result<Bytes> {
    let mut body = Limited::new(body, DRAINED_BYTES).into_data_stream();
    let mut read = BytesMut::new();
    let mut total = 0;
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| match error.is::<LengthLimitError>() {
            true => Problem::BodyTooLarge(BODY_BYTES),
            false => Problem::BadBody { parameter: None, why: "it ended early".to_owned() },
        })?;
        total += part.len();
        // The excess is read and dropped up to a bound, so that the client sees the refusal.
        if total <= BODY_BYTES {
            read.extend_from_slice(&part);
        }
    }
    if total <= BODY_BYTES { Ok(read.freeze()) } else { Err(Problem::BodyTooLarge(BODY_BYTES)) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(kind)) = headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
