//! Several counters of several posts at once: what a page of posts shows.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, UserId};
use utoipa::ToSchema;

use super::read::readable;
use crate::error::{Parameter, Problem, ProblemDocument};
use crate::extract::Json;
use crate::routes::schema::Id;
use crate::routes::{Api, Handles};
use crate::value::{CounterValue, Subject};

/// The most numbers that can be asked for at once.
const MOST: usize = 400;

/// What a body calls its members.
const POST_IDS: &str = "post_ids";
const MEMBER: &str = "member";

/// The posts and the counters asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::routes) struct CountersRequest {
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
pub(in crate::routes) struct BatchValues {
    /// Posts in the order asked, each with its counters in the order asked.
    counts: Vec<CounterValue>,
    /// Counters that are damaged and cannot be read; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

/// A counter that cannot be read.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct Unreadable {
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
    operation_id = "batchGetCounters",
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
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not such a list"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 408, body = ProblemDocument, content_type = "application/problem+json", description = "The body took too long"),
        (status = 413, body = ProblemDocument, content_type = "application/problem+json", description = "The body is too large"),
        (status = 415, body = ProblemDocument, content_type = "application/problem+json", description = "Not JSON"),
    ),
)]
pub(in crate::routes) async fn counts(
    State(api): State<Api>,
    Json(asked): Json<CountersRequest>,
) -> Result<axum::Json<BatchValues>, Problem> {
    let Wanted { posts, definitions, member } = checked(&api, &asked)?;
    let each =
        |post: &PostId| definitions.iter().map(|it| CounterId { post: post.clone(), name: it.name.clone() }).collect();
    let ids: Vec<CounterId> = posts.iter().flat_map(|post: &PostId| -> Vec<CounterId> { each(post) }).collect();
    let (read, mine) = tokio::join!(api.reader.counts(&ids), mine(&api, &ids, member.as_ref()));
    let mut answer = BatchValues { counts: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    for ((id, read), mine) in ids.into_iter().zip(read).zip(mine?) {
        if let Some(count) = readable(&id, read)? {
            let value = CounterValue::new(&Subject::post(id.post), &id.name, count);
            answer.counts.push(value.with_mine(mine));
        } else {
            let (post_id, counter) = (id.post.as_str().to_owned(), id.name.to_string());
            answer.unreadable.push(Unreadable { post_id, counter });
        }
    }
    Ok(axum::Json(answer))
}

/// Whether `member` is in each of `ids` that is a set; `None` of a sum, and of all without a member.
async fn mine(api: &Handles, ids: &[CounterId], member: Option<&UserId>) -> Result<Vec<Option<bool>>, Problem> {
    let Some(member) = member else { return Ok(vec![None; ids.len()]) };
    let sets = ids.iter().filter(|id| id.name.kind() == CounterKind::Set);
    let keys: Vec<RowKey> = sets.map(|id| RowKey::of(id, member, api.shards)).collect();
    if keys.is_empty() {
        return Ok(vec![None; ids.len()]);
    }
    let mut present = api.table.read(api.rows.present(&keys, member)).await?.into_iter();
    Ok(ids.iter().map(|id| if id.name.kind() == CounterKind::Set { present.next() } else { None }).collect())
}

/// What is asked for.
struct Wanted {
    posts: Vec<PostId>,
    definitions: Vec<Definition>,
    member: Option<UserId>,
}

/// What is asked for, once each part of it is known to be well formed.
fn checked(api: &Handles, asked: &CountersRequest) -> Result<Wanted, Problem> {
    let definitions = match &asked.counters {
        None => api.defined.of(SubjectField::Post),
        Some(names) => {
            let bounded = names.iter().take(MOST + 1);
            bounded.map(|name| api.defined.named(SubjectField::Post, name)).collect::<Result<_, _>>()?
        }
    };
    let (posts, counters) = (asked.post_ids.len(), asked.counters.as_ref().map_or(definitions.len(), Vec::len));
    if posts.saturating_mul(counters) > MOST || posts.max(counters) > MOST {
        let why = format!("{posts} posts of {counters} counters are more than {MOST} numbers");
        return Err(Problem::BadBody { parameter: Some(Parameter::named(POST_IDS)), why });
    }
    let post = |(index, id): (usize, &String)| {
        PostId::new(id).map_err(|reason| Problem::BadId { parameter: Parameter::element(POST_IDS, index), reason })
    };
    let posts = asked.post_ids.iter().enumerate().map(post).collect::<Result<_, _>>()?;
    let member = asked.member.as_deref().map(UserId::new).transpose();
    let member = member.map_err(|reason| Problem::BadId { parameter: Parameter::named(MEMBER), reason })?;
    Ok(Wanted { posts, definitions, member })
}
