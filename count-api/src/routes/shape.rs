//! Checks the form of every request before it is routed on: its length, its escapes, and whether it may have a body.

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;

use crate::error::{Problem, Result};

/// The longest path: two ids of 256 bytes with every byte escaped, and some more.
const PATH_BYTES: usize = 4 * 1024;

/// The longest query: a cursor, or a hundred ids of usual length.
const QUERY_BYTES: usize = 8 * 1024;

/// The end of the routes whose PUT has a body: createCounter's.
const PUTS_A_BODY: &str = "/counters/{counter}";

/// Refuses requests of a form that no route accepts.
pub(super) async fn shape(request: Request, next: Next) -> Response {
    match well_formed(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn well_formed(request: &Request) -> Result<()> {
    let (path, query) = (request.uri().path().len(), request.uri().query().map_or(0, str::len));
    if path > PATH_BYTES || query > QUERY_BYTES {
        return Err(Problem::PathTooLong(path + query));
    }
    if !is_escaped_well(request.uri().path().as_bytes()) {
        return Err(Problem::BadPath);
    }
    // Only routes of POST read a body, and one of PUT. Other methods are refused by the router.
    let bodiless = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE];
    if bodiless.contains(request.method()) && !request.body().is_end_stream() && !puts_a_body(request) {
        return Err(Problem::UnexpectedBody);
    }
    Ok(())
}

fn puts_a_body(request: &Request) -> bool {
    let route = request.extensions().get::<MatchedPath>();
    request.method() == Method::PUT && route.is_some_and(|route| route.as_str().ends_with(PUTS_A_BODY))
}

/// Returns whether every `%` begins an escape. Otherwise one id could be written in two ways.
fn is_escaped_well(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let [high, low, ..] = rest[at + 1..] else { return false };
        if !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit() {
            return false;
        }
        rest = &rest[at + 3..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_sign_begins_an_escape_or_is_refused() {
        for good in ["", "/a", "/%00", "/a%2Fb%ff", "/%25zz"] {
            assert!(is_escaped_well(good.as_bytes()), "{good}");
        }
        for bad in ["%", "/a%", "/a%2", "/%zz", "/%2x", "/%%20", "/%u0041"] {
            assert!(!is_escaped_well(bad.as_bytes()), "{bad}");
        }
    }
}
