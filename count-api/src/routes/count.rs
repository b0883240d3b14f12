//! The count of one post.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Api, Count};
use crate::error::{Problem, ProblemDocument};
use crate::extract::Post;
use crate::watch::Edition;

/// How many people like a post
///
/// A post that nobody liked has 0. The ETag changes with the number and with `exact`, not with `as_of`.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/likes",
    operation_id = "getLikes",
    tag = "counts",
    params(
        ("post_id" = String, Path, description = "1 to 256 bytes of UTF-8 without control characters"),
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before"),
    ),
    responses(
        (status = 200, body = Count, description = "The number", headers(
            ("etag" = String, description = "The number's version, and whether it is exact"),
            ("cache-control" = String, description = "How long the answer may be kept"),
        )),
        (status = 304, description = "The number is the one already known"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not a post's id"),
    ),
)]
pub(super) async fn count(State(api): State<Api>, Post(post): Post, headers: HeaderMap) -> Result<Response, Problem> {
    let served = api.reader.count(&post).await?;
    let edition = Edition::of(&served);
    let tag = HeaderValue::from_str(&format!("W/\"{edition}\"")).expect("digits and a dot make a header");
    let kept = [(header::ETAG, tag), (header::CACHE_CONTROL, api.cache_control.clone())];
    if is_known(&headers, edition) {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    Ok((kept, Json(Count::new(post, &served))).into_response())
}

/// Whether the client has this edition: the comparison is weak, as for every `If-None-Match`.
fn is_known(headers: &HeaderMap, edition: Edition) -> bool {
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|value| value.split(',')).map(str::trim).any(|tag| {
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        let quoted = opaque.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        tag == "*" || quoted.and_then(Edition::parse) == Some(edition)
    })
}

#[cfg(test)]
mod tests {
    use tally_core::served::Served;

    use super::*;

    #[test]
    fn a_known_edition_is_recognised_in_any_list_of_tags() {
        let edition = Edition::of(&Served { version: 7, exact: true, ..Served::default() });
        let known = |value: &str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())]);
            is_known(&headers, edition)
        };
        for value in ["W/\"7.1\"", "\"7.1\"", "\"x\", W/\"7.1\"", "*"] {
            assert!(known(value), "{value}");
        }
        for value in ["", "7.1", "W/\"7.0\"", "W/\"8.1\"", "w/\"7.1\"", "\"7.1", "\""] {
            assert!(!known(value), "{value}");
        }
        assert!(!is_known(&HeaderMap::new(), edition));
    }
}
