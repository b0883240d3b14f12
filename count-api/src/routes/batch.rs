//! The HTTP routes that answer the likes of several posts at once, or several counters of several posts, as a page that
//! shows posts needs them.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, UserId};
use utoipa::ToSchema;

use super::read::counts;
use super::{Api, Handles};
use crate::error::{Parameter, Problem, ProblemDocument, Result};
use crate::extract::Json;
use crate::value::{Count, CounterValue, Id, Subject};

/// The most posts of one request for likes, and the most numbers of one request for counters.
const MOST_POSTS: usize = 100;
const MOST: usize = 400;

/// The names of a body's fields.
const POST_IDS: &str = "post_ids";
const MEMBER: &str = "member";

/// The posts asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    /// Their ids: none to a hundred.
    #[schema(value_type = Vec<Id>, max_items = 100, example = json!(["p-1", "p-2"]))]
    post_ids: Vec<String>,
}

/// The posts' counts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchCounts {
    /// In the order asked.
    counts: Vec<Count>,
    /// Posts whose counters are damaged and cannot be read; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Id>, example = json!(["p-3"]))]
    unreadable: Vec<String>,
}

/// How many users like each of up to a hundred posts
///
/// The counts come in the order asked; a post asked for twice is answered twice.
#[utoipa::path(
    post,
    path = "/v1/likes:batchGet",
    tag = "counts",
    request_body = BatchRequest,
    responses((status = 200, body = BatchCounts, description = "The numbers")),
)]
pub(super) async fn batch_get_likes(
    State(api): State<Api>,
    Json(BatchRequest { post_ids }): Json<BatchRequest>,
) -> Result<axum::Json<BatchCounts>> {
    if post_ids.len() > MOST_POSTS {
        return Err(too_many(format!("{} are more than {MOST_POSTS}", post_ids.len())));
    }
    let ids: Vec<CounterId> = posts(&post_ids)?.into_iter().map(CounterId::likes).collect();
    let mut answer = BatchCounts { counts: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    let (read, _) = counts(&api, &ids).await?;
    for (CounterId { post, .. }, read) in ids.into_iter().zip(read) {
        match read {
            Some(count) => answer.counts.push(Count::new(&post, count)),
            None => answer.unreadable.push(post.to_string()),
        }
    }
    Ok(axum::Json(answer))
}

/// The posts and the counters asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CountersRequest {
    /// The posts' ids. Posts times counters are 400 at most.
    #[schema(value_type = Vec<Id>, max_items = 400, example = json!(["p-1", "p-2"]))]
    post_ids: Vec<String>,
    /// The counters' names; all counters of posts where it is left out.
    #[serde(default)]
    #[schema(value_type = Vec<String>, max_items = 400, example = json!(["likes", "views"]))]
    counters: Option<Vec<String>>,
    /// Whose `mine` is asked for: the member, in most sets a user.
    #[serde(default)]
    #[schema(value_type = Id, example = "u-1")]
    member: Option<String>,
}

/// The posts' numbers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchValues {
    /// Posts in the order asked, each with its counters in the order asked.
    counts: Vec<CounterValue>,
    /// Counters that are damaged and cannot be read; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

/// A counter that cannot be read.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Unreadable {
    /// The post.
    #[schema(value_type = Id)]
    post_id: String,
    /// The counter's name.
    #[schema(example = "retweets")]
    counter: String,
}

/// What several counters of several posts come to
///
/// Posts come in the order asked, each with its counters in the order asked. Posts times counters are 400 at most. With a
/// `member`, each set says in `mine` whether that member is in it.
#[utoipa::path(
    post,
    path = "/v1/counters:batchGet",
    tag = "counters",
    request_body(content = CountersRequest,
        example = json!({"post_ids": ["p-1", "p-2"], "counters": ["retweets", "views"], "member": "u-1"})),
    responses(
        (status = 200, body = BatchValues, description = "The numbers", example = json!({"counts": [
            {"post_id": "p-1", "counter": "retweets", "value": 42, "version": 57, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true, "mine": true},
            {"post_id": "p-1", "counter": "views", "value": 1_300, "version": 90, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true},
            {"post_id": "p-2", "counter": "retweets", "value": 0, "version": 0, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true, "mine": false},
            {"post_id": "p-2", "counter": "views", "value": 8, "version": 2, "exact": true, "as_of": 1_700_000_000_000_u64, "fresh": true}
        ]})),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
    ),
)]
pub(super) async fn batch_get_counters(
    State(api): State<Api>,
    Json(asked): Json<CountersRequest>,
) -> Result<axum::Json<BatchValues>> {
    let (ids, member) = checked(&api, &asked)?;
    let (read, mine) = tokio::join!(counts(&api, &ids), mine(&api, &ids, member.as_ref()));
    let mut answer = BatchValues { counts: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    for ((id, read), mine) in ids.into_iter().zip(read?.0).zip(mine?) {
        let CounterId { post, name } = id;
        match read {
            Some(count) => {
                let mut value = CounterValue::new(&Subject::post(post), &name, count);
                value.mine = mine;
                answer.counts.push(value);
            }
            None => answer.unreadable.push(Unreadable { post_id: post.to_string(), counter: name.to_string() }),
        }
    }
    Ok(axum::Json(answer))
}

/// Returns for each of `ids` whether `member` is in it; `None` for a sum, and for all if there is no member.
async fn mine(api: &Handles, ids: &[CounterId], member: Option<&UserId>) -> Result<Vec<Option<bool>>> {
    let Some(member) = member else { return Ok(vec![None; ids.len()]) };
    let sets = ids.iter().filter(|id| id.name.kind() == CounterKind::Set);
    let keys: Vec<RowKey> = sets.map(|id| RowKey::of(id, member, api.shards)).collect();
    if keys.is_empty() {
        return Ok(vec![None; ids.len()]);
    }
    let mut present = api.table.read(api.rows.present(&keys, member)).await?.into_iter();
    Ok(ids.iter().map(|id| if id.name.kind() == CounterKind::Set { present.next() } else { None }).collect())
}

/// Checks the request. Returns the counters and the member that it asks for.
fn checked(api: &Handles, asked: &CountersRequest) -> Result<(Vec<CounterId>, Option<UserId>)> {
    let definitions: Vec<Definition> = match &asked.counters {
        None => api.defined.of(SubjectField::Post),
        Some(names) => {
            let bounded = names.iter().take(MOST + 1);
            bounded.map(|name| api.defined.named(SubjectField::Post, name)).collect::<Result<_, _>>()?
        }
    };
    let (given, counters) = (asked.post_ids.len(), asked.counters.as_ref().map_or(definitions.len(), Vec::len));
    if given.saturating_mul(counters) > MOST || given.max(counters) > MOST {
        return Err(too_many(format!("{given} posts of {counters} counters are more than {MOST} numbers")));
    }
    let posts: Vec<Subject> = posts(&asked.post_ids)?.into_iter().map(Subject::post).collect();
    let member = asked.member.as_deref().map(UserId::new).transpose();
    let member = member.map_err(|reason| Problem::BadId { parameter: Parameter::named(MEMBER), reason })?;
    let each = |post: &Subject| -> Vec<CounterId> { definitions.iter().map(|it| post.counter(&it.name)).collect() };
    Ok((posts.iter().flat_map(each).collect(), member))
}

fn too_many(why: String) -> Problem {
    Problem::BadBody { parameter: Some(Parameter::named(POST_IDS)), why }
}

/// Parses the posts of a body.
fn posts(ids: &[String]) -> Result<Vec<PostId>> {
    let bad = |index| move |reason| Problem::BadId { parameter: Parameter::element(POST_IDS, index), reason };
    ids.iter().enumerate().map(|(index, id)| PostId::new(id).map_err(bad(index))).collect()
}
