//! What one counter of a post comes to, and what all of them do. Hashtags have the same routes.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response};
use serde::Serialize;
use tally_core::ids::{CounterId, CounterName};
use utoipa::ToSchema;

use super::chosen::Chosen;
use super::detail::{CounterDetail, Detail, DetailQuery, detailed};
use crate::error::{Problem, ProblemDocument};
use crate::extract::Asked;
use crate::read::NoAnswer;
use crate::routes::Api;
use crate::routes::count::{answered, knows};
use crate::routes::schema::Id;
use crate::value::{CounterValue, Figures, Named, Subject};
use crate::watch::Edition;

/// What one counter of a post comes to
///
/// A post of which nothing was counted has 0. The ETag changes with the number, with `exact` and with `fresh`, not with `as_of`. With
/// `detail=shards` the answer has the counter's shards as well, and no ETag.
#[utoipa::path(
    get,
    path = super::create::PATH,
    operation_id = "readCounter",
    tag = "counters",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("counter" = String, Path, description = "The counter's name", example = "retweets"),
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1\""),
        DetailQuery,
    ),
    responses(
        (status = 200, body = CounterDetail, description = "The number", headers(
            ("etag" = String, description = "The number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept"),
        ), example = json!({"post_id": "p-1", "counter": "retweets", "value": 42, "version": 57, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true})),
        (status = 304, description = "The number is the one already known"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id of a post, or another query"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
    ),
)]
pub(in crate::routes) async fn counter(
    State(api): State<Api>,
    chosen: Chosen,
    Asked(DetailQuery { detail }): Asked<DetailQuery>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    if detail == Some(Detail::Shards) {
        return detailed(&api, &chosen).await;
    }
    let count = api.reader.count(&chosen.id()).await?;
    let value = CounterValue::new(&chosen.subject, &chosen.definition.name, count);
    Ok(answer(&value, &Edition::of(&count).to_string(), &headers, &api.cache_control))
}

/// What the counters of a post, or of a hashtag, come to.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct CounterValues {
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
    operation_id = "readCounters",
    tag = "counters",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"57.1_3.1\""),
    ),
    responses(
        (status = 200, body = CounterValues, description = "The numbers", headers(
            ("etag" = String, description = "Each number's version, and whether it is exact and fresh"),
            ("cache-control" = String, description = "How long the answer may be kept"),
        ), example = json!({"post_id": "p-1", "counters": {
            "retweets": {"value": 42, "version": 57, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true},
            "views": {"value": 1_300, "version": 90, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true}
        }})),
        (status = 304, description = "The numbers are those already known"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id of a post"),
    ),
)]
pub(in crate::routes) async fn counters(
    State(api): State<Api>,
    subject: Subject,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let names: Vec<CounterName> = api.defined.of(subject.field).into_iter().map(|it| it.name).collect();
    let ids: Vec<CounterId> = names.iter().map(|name| subject.counter(name)).collect();
    let (named, counters) = (Named::from(&subject), BTreeMap::new());
    let mut values = CounterValues { subject: named, counters, unreadable: Vec::new() };
    let mut editions = Vec::with_capacity(names.len());
    for (name, read) in names.iter().zip(api.reader.counts(&ids).await) {
        match readable(&subject.counter(name), read)? {
            Some(count) => {
                editions.push(Edition::of(&count).to_string());
                values.counters.insert(name.to_string(), Figures::new(name, count));
            }
            None => {
                editions.push(String::new());
                values.unreadable.push(name.to_string());
            }
        }
    }
    Ok(answer(&values, &editions.join("_"), &headers, &api.cache_control))
}

/// A count of several; `None` of a counter that is damaged, which fails none of the others.
pub(super) fn readable<T>(id: &CounterId, read: Result<T, NoAnswer>) -> Result<Option<T>, Problem> {
    match read {
        Ok(count) => Ok(Some(count)),
        Err(NoAnswer::Refused(cause)) => {
            tracing::warn!(counter = %id, cause = cause.as_str(), "a counter cannot be read");
            Ok(None)
        }
        Err(fault) => Err(fault.into()),
    }
}

/// `value`, or 304 where the client has this edition of it.
fn answer(value: &impl Serialize, edition: &str, asked: &HeaderMap, cache_control: &HeaderValue) -> Response<Body> {
    let known = knows(asked, |tag| tag == edition);
    let tag = HeaderValue::from_str(&format!("W/\"{edition}\"")).expect("digits, dots and underscores make a header");
    let body = || Body::from(serde_json::to_vec(value).expect("texts and numbers always serialise"));
    answered((!known).then(body), tag, cache_control)
}
