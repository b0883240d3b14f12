//! Members of sets: which there are, whether one is in, and putting it or taking it away.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use tally_core::definitions::Direction;
use tally_core::event::Said;
use utoipa::ToSchema;

use super::accepted::{CounterAccepted, write};
use super::chosen::{ChosenMember, ChosenSet};
use crate::error::{Problem, ProblemDocument};
use crate::extract::Asked;
use crate::routes::Api;
use crate::routes::like::{FRESH, since};
use crate::routes::likers::{LikersQuery, listed};
use crate::routes::schema::{Id, MemberPath};
use crate::value::Named;

/// The route, where writes are off, too.
pub(in crate::routes) const PATH: &str = "/v1/posts/{post_id}/counters/{counter}/members/{member}";

/// Whether a set has a member, and since when.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct MemberState {
    /// Whether the set has it.
    #[schema(example = true)]
    present: bool,
    /// Since when, if so; milliseconds since the Unix epoch. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 1_700_000_000_000_u64)]
    since: Option<u64>,
}

/// Whether a set of a post has a member
///
/// Read from the member's row: it shows a change as soon as that has come from Kafka to the table.
#[utoipa::path(
    get,
    path = PATH,
    operation_id = "getMember",
    tag = "counters",
    params(MemberPath),
    responses(
        (status = 200, body = MemberState, description = "Whether, and since when"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(in crate::routes) async fn member(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<([(HeaderName, HeaderValue); 1], Json<MemberState>), Problem> {
    let since = since(&api, &chosen.id(), &member).await?;
    Ok((FRESH, Json(MemberState { present: since.is_some(), since })))
}

/// A page of the members of a set.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct Members {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    /// The members, in no meaningful order.
    members: Vec<Member>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "MS8wL3UtMQ")]
    next: Option<String>,
}

/// A member of a set.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct Member {
    #[schema(value_type = Id)]
    member: String,
    /// When it was put; milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    since: u64,
}

/// Which members a set of a post has
///
/// Page by page. A member that is in the set all the while is on exactly one page. A page may have fewer than `limit`, or none:
/// the last one is the one without a `next`.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/counters/{counter}/members",
    operation_id = "listMembers",
    tag = "counters",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("counter" = String, Path, description = "The set's name", example = "retweets"),
        LikersQuery,
    ),
    responses(
        (status = 200, body = Members, description = "A page of them", example = json!({
            "post_id": "p-1", "counter": "retweets", "members": [{"member": "u-1", "since": 1_700_000_000_000_u64}]
        })),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id, a limit or a cursor"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(in crate::routes) async fn members(
    State(api): State<Api>,
    ChosenSet(chosen): ChosenSet,
    Asked(LikersQuery { limit, cursor }): Asked<LikersQuery>,
) -> Result<Json<Members>, Problem> {
    let (rows, next) = listed(&api, &chosen.id(), limit, cursor).await?;
    let member =
        |row: tally_adapters::dynamodb::Like| Member { member: row.user.as_str().to_owned(), since: row.liked_at.0 };
    Ok(Json(Members {
        subject: Named::from(&chosen.subject),
        counter: chosen.definition.name.to_string(),
        members: rows.into_iter().map(member).collect(),
        next,
    }))
}

/// A set of a post is to have a member
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; row and number follow.
#[utoipa::path(
    put,
    path = PATH,
    operation_id = "putMember",
    tag = "counters",
    params(MemberPath),
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged", example = json!({
            "post_id": "p-1", "counter": "retweets", "action": "retweet", "member": "u-1", "ts": 1_700_000_000_000_u64
        })),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(in crate::routes) async fn put(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<(StatusCode, Json<CounterAccepted>), Problem> {
    write(&api, &chosen, Direction::Add, Said::Member(&member)).await
}

/// A set of a post is no longer to have a member
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; row and number follow. Not every set has an action
/// that takes a member away.
#[utoipa::path(
    delete,
    path = PATH,
    operation_id = "deleteMember",
    tag = "counters",
    params(MemberPath),
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged", example = json!({
            "post_id": "p-1", "counter": "retweets", "action": "unretweet", "member": "u-1", "ts": 1_700_000_000_000_u64
        })),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum, or its members stay"),
    ),
)]
pub(in crate::routes) async fn remove(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<(StatusCode, Json<CounterAccepted>), Problem> {
    write(&api, &chosen, Direction::Remove, Said::Member(&member)).await
}
