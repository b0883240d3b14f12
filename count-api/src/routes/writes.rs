//! The HTTP routes that accept writes: likes and unlikes, members put and taken away, amounts added and taken off. Each
//! becomes an event that `writer.rs` sends to Kafka.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{MAX_AMOUNT, Said};
use tally_core::ids::UserId;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use super::chosen::{Chosen, ChosenKind, ChosenMember};
use super::members::{LIKE, MEMBER};
use super::{Api, Handles};
use crate::error::{Parameter, Problem, ProblemDocument, Result};
use crate::extract;
use crate::value::{Id, Named};

/// The path of amounts.
const EVENTS: &str = "/v1/posts/{post_id}/counters/{counter}/events";

/// The labels under which writes are counted: those that add, and those that take away.
const LIKES: [&str; 2] = ["like", "unlike"];
const MEMBERS: [&str; 2] = ["put", "remove"];
const AMOUNTS: [&str; 2] = ["increment", "decrement"];

/// An acknowledged event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Accepted {
    /// The post.
    #[schema(value_type = Id)]
    post_id: String,
    /// The user.
    #[schema(value_type = Id)]
    user_id: String,
    #[schema(schema_with = action)]
    action: String,
    /// The event's time; milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    ts: u64,
}

fn action() -> Schema {
    let likes = Definition::likes();
    let actions = [Direction::Add, Direction::Remove].map(|direction| likes.action(direction).unwrap_or_default());
    let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(actions.map(str::to_owned)));
    schema.description(Some("What was done.")).examples([actions[0]]).build().into()
}

/// Safe to repeat: an event states whether the user likes the post, and not a change.
async fn write_like(
    api: &Handles,
    likes: &Chosen,
    user: &UserId,
    direction: Direction,
) -> Result<(StatusCode, Json<Accepted>)> {
    let (action, at) = api.writer()?.say(likes, LIKES, direction, Said::Member(user)).await?;
    let (post_id, user_id) = (likes.subject.id.to_string(), user.to_string());
    Ok((StatusCode::ACCEPTED, Json(Accepted { post_id, user_id, action, ts: at.0 })))
}

/// A user likes a post
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; rows and counts follow.
#[utoipa::path(
    put,
    path = LIKE,
    tag = "likes",
    responses((status = 202, body = Accepted, description = "The event is acknowledged")),
)]
pub(super) async fn put_like(
    State(api): State<Api>,
    ChosenMember(likes, user): ChosenMember,
) -> Result<impl IntoResponse> {
    write_like(&api, &likes, &user, Direction::Add).await
}

/// A user no longer likes a post
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; rows and counts follow.
#[utoipa::path(
    delete,
    path = LIKE,
    tag = "likes",
    responses((status = 202, body = Accepted, description = "The event is acknowledged")),
)]
pub(super) async fn delete_like(
    State(api): State<Api>,
    ChosenMember(likes, user): ChosenMember,
) -> Result<impl IntoResponse> {
    write_like(&api, &likes, &user, Direction::Remove).await
}

/// An acknowledged event about a counter.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterAccepted {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    /// The event's action, as the counter's definition calls it.
    #[schema(example = "retweet")]
    action: String,
    /// The member that was put or taken away; absent of a sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id)]
    member: Option<String>,
    /// How much was added or taken off; absent of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32, example = 25)]
    n: Option<u32>,
    /// The event's time; milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    ts: u64,
}

/// Safe to repeat for a set; each event of a sum counts.
async fn write_event(
    api: &Handles,
    chosen: &Chosen,
    direction: Direction,
    said: Said<'_>,
) -> Result<(StatusCode, Json<CounterAccepted>)> {
    let (kinds, member, n) = match said {
        Said::Member(member) => (MEMBERS, Some(member.to_string()), None),
        Said::Amount(n) => (AMOUNTS, None, Some(n)),
    };
    let (action, at) = api.writer()?.say(chosen, kinds, direction, said).await?;
    let (subject, counter) = (Named::from(&chosen.subject), chosen.definition.name.to_string());
    Ok((StatusCode::ACCEPTED, Json(CounterAccepted { subject, counter, action, member, n, ts: at.0 })))
}

/// A set of a post is to have a member
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; row and number follow.
#[utoipa::path(
    put,
    path = MEMBER,
    tag = "counters",
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged", example = json!({
            "post_id": "p-1", "counter": "retweets", "action": "retweet", "member": "u-1", "ts": 1_700_000_000_000_u64
        })),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(super) async fn put_member(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<impl IntoResponse> {
    write_event(&api, &chosen, Direction::Add, Said::Member(&member)).await
}

/// A set of a post is no longer to have a member
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; row and number follow. Not every set has an action
/// that takes a member away.
#[utoipa::path(
    delete,
    path = MEMBER,
    tag = "counters",
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged", example = json!({
            "post_id": "p-1", "counter": "retweets", "action": "unretweet", "member": "u-1", "ts": 1_700_000_000_000_u64
        })),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum, or its members stay"),
    ),
)]
pub(super) async fn delete_member(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<impl IntoResponse> {
    write_event(&api, &chosen, Direction::Remove, Said::Member(&member)).await
}

/// The name of the amount in a body.
const N: &str = "n";

/// What a sum is to do.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AmountRequest {
    action: AmountAction,
    /// How much.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1_000_000, default = 1, example = 25)]
    n: u32,
}

/// Whether the amount is added or taken off.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "increment")]
enum AmountAction {
    Increment,
    Decrement,
}

fn one() -> u32 {
    1
}

/// An amount is added to a sum, or taken off it
///
/// *Not* idempotent: each amount counts that was acknowledged, so a request that is sent again after an answer was lost may
/// count twice. The answer comes once Kafka has acknowledged the event; the number follows. Amounts that several clients
/// add to one sum within a few milliseconds are one event, and each client is answered for its own.
#[utoipa::path(
    post,
    path = EVENTS,
    tag = "counters",
    params(("counter" = String, Path, description = "The sum's name", example = "views")),
    request_body(content = AmountRequest, example = json!({"action": "increment", "n": 25})),
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged",
            example = json!({"post_id": "p-1", "counter": "views", "action": "view", "n": 25, "ts": 1_700_000_000_000_u64})),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a set, or nothing is taken off it"),
    ),
)]
pub(super) async fn write_counter(
    State(api): State<Api>,
    ChosenKind(chosen): ChosenKind<true>,
    extract::Json(AmountRequest { action, n }): extract::Json<AmountRequest>,
) -> Result<impl IntoResponse> {
    if !(1..=MAX_AMOUNT).contains(&i64::from(n)) {
        let why = format!("it is from 1 to {MAX_AMOUNT}");
        return Err(Problem::BadBody { parameter: Some(Parameter::named(N)), why });
    }
    let direction = match action {
        AmountAction::Increment => Direction::Add,
        AmountAction::Decrement => Direction::Remove,
    };
    write_event(&api, &chosen, direction, Said::Amount(n)).await
}
