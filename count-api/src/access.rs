//! What is said of every request: its id, one log event, and its metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tally_service::Chance;
use tokio::time::Instant;

use crate::error::{Answered, Problem};
use crate::limits::Peer;
use crate::metrics::Requests;

/// The header with a request's id, taken from the client where it is fit to be logged.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How much of a path is logged.
const LOGGED_PATH: usize = 200;

/// What the log and the metrics of requests need.
#[derive(Clone)]
pub struct Access {
    /// Where new ids come from.
    pub chance: Chance,
    /// By route, method and status.
    pub requests: Arc<Requests>,
}

impl Access {
    /// The id of a request with these headers: the client's own, if it can be logged as it is.
    pub fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        given_id(headers).unwrap_or_else(|| fresh(self.chance.token()))
    }

    /// Counts and logs an answer.
    pub fn note(&self, entry: &Entry<'_>) {
        self.requests.record(entry.route, entry.method, entry.status, entry.took);
        entry.write();
    }
}

/// The outermost middleware.
pub async fn observe(State(access): State<Access>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = access.request_id(request.headers());
    let (method, target) = (request.method().clone(), request.uri().clone());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let peer = request.extensions().get::<Peer>().cloned();
    let mut response = next.run(request).await;
    access.note(&Entry {
        id: &id,
        method: &method,
        path: target.path(),
        route: route.as_ref().map(MatchedPath::as_str),
        peer: peer.as_ref(),
        status: response.status(),
        problem: response.extensions().get::<Answered>().map(|answered| &answered.0),
        took: began.elapsed(),
    });
    response.headers_mut().insert(&REQUEST_ID, id);
    response
}

fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let given = headers.get(&REQUEST_ID)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    ((1..=64).contains(&given.len()) && given.as_bytes().iter().all(plain)).then(|| given.clone())
}

/// Sixteen hexadecimal digits.
fn fresh(token: u64) -> HeaderValue {
    let digits =
        token.to_be_bytes().map(|byte| [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    HeaderValue::from_bytes(digits.as_flattened()).expect("hexadecimal digits make a header")
}

/// A request and its answer, as they are counted and logged.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The request's id.
    pub id: &'a HeaderValue,
    /// Its method.
    pub method: &'a Method,
    /// Its path. A query may hold what is nobody's business, so it is left out.
    pub path: &'a str,
    /// Which of our routes that is.
    pub route: Option<&'a str>,
    /// Where it came from.
    pub peer: Option<&'a Peer>,
    /// The answer's status.
    pub status: StatusCode,
    /// What was wrong, if anything was.
    pub problem: Option<&'a Problem>,
    /// How long the answer took.
    pub took: Duration,
}

impl Entry<'_> {
    /// The log's only event of an answered request.
    fn write(&self) {
        let Self { route, status, problem, .. } = *self;
        let path = &self.path[..self.path.floor_char_boundary(LOGGED_PATH)];
        let (request, method) = (self.id.to_str().unwrap_or_default(), self.method.as_str());
        let (client, millis) = (self.peer.map(Peer::as_str), millis(self.took));
        macro_rules! event {
            ($level:ident) => {
                tracing::$level!(
                    target: "tally_count_api::access",
                    request,
                    method,
                    path,
                    route,
                    status = status.as_u16(),
                    millis,
                    client,
                    problem = problem.map(Problem::name),
                    cause = problem.and_then(Problem::cause).map(|cause| cause.as_str()),
                    "request"
                )
            };
        }
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            event!(warn);
        } else {
            event!(info);
        }
    }
}

/// Milliseconds in steps of a microsecond: the digits of a fraction are most of the work of writing a line.
fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_is_the_whole_token_in_hexadecimal() {
        for token in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(fresh(token), format!("{token:016x}"));
        }
    }

    #[test]
    fn the_time_an_answer_took_has_no_more_digits_than_microseconds() {
        for (nanos, written) in
            [(0, "0"), (13_207, "0.013"), (253_207, "0.253"), (1_999_600, "2"), (61_000_123_456, "61000.123")]
        {
            assert_eq!(millis(Duration::from_nanos(nanos)).to_string(), written);
        }
    }
}
