//! The count of one post.

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use tally_core::ids::CounterId;

use super::Api;
use super::schema::Id;
use crate::count::{Count, Rendered};
use crate::error::{Problem, ProblemDocument};
use crate::extract::Post;
use crate::watch::Edition;

pub(crate) const PATH: &str = "/v1/posts/{post_id}/likes";

/// What stands before and behind the post in a path of the route.
static AROUND: LazyLock<(&str, &str)> =
    LazyLock::new(|| PATH.split_once("{post_id}").expect("the route names its post"));

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How many users like a post
///
/// A post without likes has 0. The ETag changes with the number, with `exact` and with `fresh`, not with `as_of`.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "getLikes",
    tag = "counts",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1\""),
    ),
    responses(
        (status = 200, body = Count, description = "The number", headers(
            ("etag" = String, description = "The number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept"),
        )),
        (status = 304, description = "The number is the one already known"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not a post's id"),
    ),
)]
pub(super) async fn count(
    State(api): State<Api>,
    Post(post): Post,
    headers: HeaderMap,
) -> Result<axum::response::Response, Problem> {
    let rendered = api.reader.rendered(&CounterId::likes(post)).await?;
    Ok(answer(rendered, &headers, &api.cache_control))
}

/// The post whose count `path` asks for, before it is decoded.
pub(super) fn post(path: &str) -> Option<&str> {
    path.strip_prefix(AROUND.0)?.strip_suffix(AROUND.1).filter(|post| !post.contains('/'))
}

/// The count, or 304 where the client has this edition of it. A 304 says that the edition is judged the same now.
pub(super) fn answer<B>(rendered: Rendered, asked: &HeaderMap, cache_control: &HeaderValue) -> Response<B>
where
    B: Default + From<Bytes>,
{
    let known = is_known(asked, rendered.edition);
    answered((!known).then(|| B::from(rendered.body)), rendered.tag, cache_control)
}

/// The `body` of an edition with this tag, or 304 without one.
pub(super) fn answered<B: Default>(body: Option<B>, tag: HeaderValue, cache_control: &HeaderValue) -> Response<B> {
    let known = body.is_none();
    let mut response = Response::new(body.unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    headers.insert(header::CACHE_CONTROL, cache_control.clone());
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, JSON);
    }
    response
}

/// Whether the client has this edition.
fn is_known(headers: &HeaderMap, edition: Edition) -> bool {
    knows(headers, |tag| Edition::parse(tag) == Some(edition))
}

/// Whether the client has what one of its tags stands for: the comparison is weak, as for every `If-None-Match`.
pub(super) fn knows(headers: &HeaderMap, is_current: impl Fn(&str) -> bool) -> bool {
    let tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    tags.flat_map(|value| value.split(',')).map(str::trim).any(|tag| {
        let opaque = tag.strip_prefix("W/").unwrap_or(tag);
        let quoted = opaque.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        tag == "*" || quoted.is_some_and(&is_current)
    })
}

#[cfg(test)]
mod tests {
    use tally_core::served::Served;

    use super::*;
    use crate::read::Answer;

    #[test]
    fn the_short_way_takes_the_same_paths_as_the_router() {
        for (path, asked) in [
            ("/v1/posts/p-1/likes", Some("p-1")),
            ("/v1/posts/likes/likes", Some("likes")),
            ("/v1/posts/p/likes/u", None),
            ("/v1/posts/p/likes/likes", None),
            ("/v1/posts/p/likes:stream", None),
            ("/v1/posts/likes", None),
            ("/v1/posts/p/likers", None),
        ] {
            assert_eq!(post(path), asked, "{path}");
        }
    }

    #[test]
    fn a_known_edition_is_recognised_in_any_list_of_tags() {
        let served = Served { version: 7, exact: true, ..Served::default() };
        let edition = Edition::of(&Answer { served, fresh: true });
        let known = |value: &str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())]);
            is_known(&headers, edition)
        };
        for value in ["W/\"7.1\"", "\"7.1\"", "\"x\", W/\"7.1\"", "*"] {
            assert!(known(value), "{value}");
        }
        for value in ["", "7.1", "W/\"7.0\"", "W/\"7.1.0\"", "W/\"8.1\"", "w/\"7.1\"", "\"7.1", "\""] {
            assert!(!known(value), "{value}");
        }
        assert!(!is_known(&HeaderMap::new(), edition));
    }
}
