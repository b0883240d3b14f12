//! The HTTP routes that answer the likes of a post, one counter, and all counters of a post. Hashtags have the same
//! routes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use serde::Serialize;
use tally_core::ids::{CounterId, CounterName};
use utoipa::ToSchema;

use super::chosen::Chosen;
use super::detail::{CounterDetail, DetailQuery, detailed};
use super::{Api, Handles};
use crate::answer::{Answer, Edition, Editions, tag};
use crate::error::{Problem, Result};
use crate::extract::Asked;
use crate::metrics::LIKES;
use crate::read::Timing;
use crate::value::{Count, CounterValue, Figures, Named, Rendered, Subject, json};

/// The parts of the path of likes before and after the post.
static AROUND: LazyLock<(&str, &str)> =
    LazyLock::new(|| LIKES.split_once("{post_id}").expect("the route names its post"));

/// The header that names the layers that were asked.
static SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How many users like a post
///
/// A post without likes has 0. The ETag changes with the number, with `exact` and with `fresh`, not with `as_of`.
#[utoipa::path(
    get,
    path = LIKES,
    tag = "counts",
    params(("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1\"")),
    responses(
        (status = 200, body = Count, description = "The number", headers(
            ("etag" = String, description = "The number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept: never longer than it is called fresh; not at all where it is not exact or not fresh"),
            ("server-timing" = String, description = "Which of `local`, `redis` and `table` were asked, and the milliseconds of each"),
        )),
        (status = 304, description = "The number is the one already known"),
    ),
)]
pub(super) async fn get_likes(State(api): State<Api>, subject: Subject, headers: HeaderMap) -> Result<Response<Body>> {
    let (rendered, timing) = api.reader.rendered(&CounterId::likes(subject.id)).await?;
    let kept = api.caching.of([&rendered.answer], api.clock.now());
    Ok(answer(rendered, &headers, kept, &timing))
}

/// What one counter of a post comes to
///
/// A post of which nothing was counted has 0. The ETag changes with the number, with `exact` and with `fresh`, not with `as_of`. With
/// `detail=shards` the answer has the counter's shards as well, and no ETag; with `detail=regions` what each Region adds to it.
#[utoipa::path(
    get,
    path = super::create::PATH,
    tag = "counters",
    params(
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1\""),
        DetailQuery,
    ),
    responses(
        (status = 200, body = CounterDetail, description = "The number", headers(
            ("etag" = String, description = "The number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept: never longer than it is called fresh; not at all where it is not exact or not fresh"),
            ("server-timing" = String, description = "Which of `local`, `redis` and `table` were asked, and the milliseconds of each"),
        ), example = json!({"post_id": "p-1", "counter": "retweets", "value": 42, "version": 57, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true})),
        (status = 304, description = "The number is the one already known"),
    ),
)]
pub(super) async fn read_counter(
    State(api): State<Api>,
    chosen: Chosen,
    Asked(DetailQuery { detail }): Asked<DetailQuery>,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    if let Some(detail) = detail {
        return detailed(&api, &chosen, detail).await;
    }
    let (count, timing) = api.reader.count(&chosen.id()).await?;
    let (edition, kept) = (Edition::of(&count).to_string(), api.caching.of([&count], api.clock.now()));
    let value = CounterValue::new(&chosen.subject, &chosen.definition.name, count);
    Ok(written(&value, &edition, &headers, kept, &timing))
}

/// What the counters of a post, or of a hashtag, come to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterValues {
    #[serde(flatten)]
    subject: Named,
    /// Every counter, by its name.
    counters: BTreeMap<String, Figures>,
    /// Counters that are damaged and cannot be read; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

/// What every counter of a post comes to
///
/// All of them in one read. The ETag changes with each of the numbers, with its `exact` and with its `fresh`.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/counters",
    tag = "counters",
    params(
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1_3.1\""),
    ),
    responses(
        (status = 200, body = CounterValues, description = "The numbers", headers(
            ("etag" = String, description = "Each number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept: never longer than it is called fresh; not at all where it is not exact or not fresh"),
            ("server-timing" = String, description = "Which of `local`, `redis` and `table` were asked, and the milliseconds of each"),
        ), example = json!({"post_id": "p-1", "counters": {
            "retweets": {"value": 42, "version": 57, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true},
            "views": {"value": 1_300, "version": 90, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true}
        }})),
        (status = 304, description = "The numbers are those already known"),
    ),
)]
pub(super) async fn read_counters(
    State(api): State<Api>,
    subject: Subject,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    let names: Vec<CounterName> = api.defined.of(subject.field).into_iter().map(|it| it.name).collect();
    let ids: Vec<CounterId> = names.iter().map(|name| subject.counter(name)).collect();
    let (named, counters) = (Named::from(&subject), BTreeMap::new());
    let mut values = CounterValues { subject: named, counters, unreadable: Vec::new() };
    let (read, timing) = counts(&api, &ids).await?;
    for (name, read) in names.iter().zip(&read) {
        match read {
            Some(count) => _ = values.counters.insert(name.to_string(), Figures::new(name, count.clone())),
            None => values.unreadable.push(name.to_string()),
        }
    }
    let editions = Editions(read.iter().map(|read| read.as_ref().map(Edition::of)).collect());
    let kept = api.caching.of(read.iter().flatten(), api.clock.now());
    Ok(written(&values, &editions.to_string(), &headers, kept, &timing))
}

/// Reads several counters, in their order, and returns which layers they came from. A damaged one is `None`, and does not
/// fail the others.
pub(super) async fn counts(api: &Handles, ids: &[CounterId]) -> Result<(Vec<Option<Answer>>, Timing)> {
    let (read, timing) = api.reader.counts(ids).await;
    let counts = ids.iter().zip(read).map(|(id, read)| readable(id, read)).collect::<Result<_, _>>()?;
    Ok((counts, timing))
}

/// Turns the failure to read a damaged counter into `None`, and logs it.
pub(super) fn readable<T>(id: &CounterId, read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(count) => Ok(Some(count)),
        Err(Problem::Internal(cause)) => {
            tracing::warn!(counter = %id, cause = cause.as_str(), "a counter cannot be read");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// Writes `value`, or 304 if the client has this edition.
fn written(
    value: &impl Serialize,
    edition: &str,
    asked: &HeaderMap,
    kept: HeaderValue,
    timing: &Timing,
) -> Response<Body> {
    let known = knows(asked, |tag| tag == edition);
    timed(answered((!known).then(|| Body::from(json(value))), tag(edition), kept), timing)
}

fn timed<B>(mut response: Response<B>, timing: &Timing) -> Response<B> {
    response.headers_mut().insert(&SERVER_TIMING, timing.header());
    response
}

/// Returns the post, not yet decoded, if `path` asks for its likes.
pub(super) fn post(path: &str) -> Option<&str> {
    path.strip_prefix(AROUND.0)?.strip_suffix(AROUND.1).filter(|post| !post.contains('/'))
}

/// Writes the count, or 304 if the client has this edition, which includes whether it is exact and fresh now.
pub(super) fn answer<B>(rendered: Rendered, asked: &HeaderMap, kept: HeaderValue, timing: &Timing) -> Response<B>
where
    B: Default + From<Bytes>,
{
    let edition = Edition::of(&rendered.answer);
    let known = knows(asked, |tag| Edition::parse(tag) == Some(edition));
    timed(answered((!known).then(|| B::from(rendered.body)), rendered.tag, kept), timing)
}

/// Builds an answer with this tag; without a `body` it is a 304.
pub(super) fn answered<B: Default>(body: Option<B>, tag: HeaderValue, kept: HeaderValue) -> Response<B> {
    let known = body.is_none();
    let mut response = Response::new(body.unwrap_or_default());
    let headers = response.headers_mut();
    headers.insert(header::ETAG, tag);
    headers.insert(header::CACHE_CONTROL, kept);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(header::CONTENT_TYPE, JSON);
    }
    response
}

/// Returns whether one of the client's tags is current. Tags are compared weakly, as for every `If-None-Match`.
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
    use super::*;

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
        let known = |value: &str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())]);
            knows(&headers, |tag| tag == "7.1")
        };
        for value in ["W/\"7.1\"", "\"7.1\"", "\"x\", W/\"7.1\"", "*"] {
            assert!(known(value), "{value}");
        }
        for value in ["", "7.1", "W/\"7.0\"", "W/\"7.1.0\"", "W/\"8.1\"", "w/\"7.1\"", "\"7.1", "\""] {
            assert!(!known(value), "{value}");
        }
        assert!(!knows(&HeaderMap::new(), |_| true));
    }
}
