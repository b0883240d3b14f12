//! Gives each HTTP request to the API an id, logs its answer in one event, and counts it in the metrics.
//! `routes/front.rs` calls it for each answer.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tally_service::Chance;
use tokio::time::Instant;

use crate::error::Problem;
use crate::limits::Peer;
use crate::metrics::Requests;

/// The header with a request's id. The client's own id is used if it can be logged.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The most bytes of a path that are logged.
const LOGGED_PATH: usize = 200;

/// Records requests. Clones share the metrics.
#[derive(Clone)]
pub struct Access {
    /// Draws new ids.
    pub chance: Chance,
    pub requests: Arc<Requests>,
}

impl Access {
    /// Returns the id of a request with these headers: the client's own, or a new one if that cannot be logged as it
    /// is.
    pub fn request_id(&self, headers: &HeaderMap) -> HeaderValue {
        given_id(headers).unwrap_or_else(|| fresh(self.chance.token()))
    }

    /// Counts and logs `answer`, and puts the request's id into its headers.
    pub fn answered<B>(&self, entry: Entry<'_>, answer: &mut Response<B>) {
        let (status, took) = (answer.status(), entry.began.elapsed());
        self.requests.record(entry.route, entry.method, status, took);
        entry.write(status, answer.extensions().get(), took);
        answer.headers_mut().insert(&REQUEST_ID, entry.id);
    }
}

fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let given = headers.get(&REQUEST_ID)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    ((1..=64).contains(&given.len()) && given.as_bytes().iter().all(plain)).then(|| given.clone())
}

/// Returns sixteen hexadecimal digits.
fn fresh(token: u64) -> HeaderValue {
    let digits =
        token.to_be_bytes().map(|byte| [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
    HeaderValue::from_bytes(digits.as_flattened()).expect("hexadecimal digits make a header")
}

/// A request, as it is counted and logged.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    pub id: HeaderValue,
    pub method: &'a Method,
    /// Without the query, which may hold secrets.
    pub path: &'a str,
    /// The route that answered.
    pub route: Option<&'a str>,
    pub peer: &'a Peer,
    pub began: Instant,
}

impl Entry<'_> {
    /// Writes the only log event of an answered request.
    fn write(&self, status: StatusCode, problem: Option<&Problem>, took: Duration) {
        let route = self.route;
        let path = &self.path[..self.path.floor_char_boundary(LOGGED_PATH)];
        let (request, method) = (self.id.to_str().unwrap_or_default(), self.method.as_str());
        let (client, millis) = (self.peer.as_str(), millis(took));
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

/// Returns milliseconds rounded to a microsecond: writing the digits of a fraction is most of the work of writing a
/// line.
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
}
