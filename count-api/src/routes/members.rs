//! The HTTP routes that answer who is in a set, such as the likes of a post, and whether one member is. They read the
//! rows, not the counters.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::IntoResponse;
use serde::Serialize;
use tally_adapters::dynamodb::Like;
use tally_core::ids::{RowKey, UserId};
use utoipa::ToSchema;

use super::chosen::{Chosen, ChosenKind, ChosenMember};
use super::paging::{LikersQuery, listed};
use super::{Api, Handles};
use crate::error::{ProblemDocument, Result};
use crate::extract::Asked;
use crate::value::{Id, Named};

/// The paths of one like and of one member.
pub(super) const LIKE: &str = "/v1/posts/{post_id}/likes/{user_id}";
pub(super) const MEMBER: &str = "/v1/posts/{post_id}/counters/{counter}/members/{member}";

/// The header for answers that must be fresh: no proxy may answer a user who has just pressed the button from its
/// cache.
pub(super) const FRESH: [(HeaderName, HeaderValue); 1] =
    [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];

/// Whether a user likes a post, and since when.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LikeState {
    /// Whether the user likes it.
    #[schema(example = true)]
    liked: bool,
    /// Since when, if so; milliseconds since the Unix epoch. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 1_700_000_000_000_u64)]
    liked_at: Option<u64>,
}

/// Whether a user likes a post
///
/// Read from the user's row: it shows a like or unlike as soon as that has come from Kafka to the table.
#[utoipa::path(
    get,
    path = LIKE,
    tag = "likes",
    responses((status = 200, body = LikeState, description = "Whether, and since when")),
)]
pub(super) async fn get_like(
    State(api): State<Api>,
    ChosenMember(likes, user): ChosenMember,
) -> Result<impl IntoResponse> {
    let liked_at = since(&api, &likes, &user).await?;
    Ok((FRESH, Json(LikeState { liked: liked_at.is_some(), liked_at })))
}

/// Whether a set has a member, and since when.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MemberState {
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
    path = MEMBER,
    tag = "counters",
    responses(
        (status = 200, body = MemberState, description = "Whether, and since when"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(super) async fn get_member(
    State(api): State<Api>,
    ChosenMember(chosen, member): ChosenMember,
) -> Result<impl IntoResponse> {
    let since = since(&api, &chosen, &member).await?;
    Ok((FRESH, Json(MemberState { present: since.is_some(), since })))
}

/// Reads since when `member` is in the set, in milliseconds since the Unix epoch; `None` if it is not.
async fn since(api: &Handles, set: &Chosen, member: &UserId) -> Result<Option<u64>> {
    let key = RowKey::of(&set.id(), member, api.shards);
    let row = api.table.read(api.rows.like(&key, member)).await?;
    Ok(row.map(|row| row.liked_at.0))
}

/// A page of the users who like a post.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Likers {
    /// The post.
    #[schema(value_type = Id)]
    post_id: String,
    /// The users, in no meaningful order.
    likers: Vec<Liker>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "MS8wL3UtMQ")]
    next: Option<String>,
}

/// A user who likes a post.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Liker {
    /// The user.
    #[schema(value_type = Id)]
    user_id: String,
    /// When the like was written; milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    liked_at: u64,
}

/// Which users like a post
///
/// Page by page. A user who likes the post all the while is on exactly one page. A page may have fewer than `limit`, or none: the
/// last one is the one without a `next`.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/likers",
    tag = "likes",
    params(LikersQuery),
    responses((status = 200, body = Likers, description = "A page of them")),
)]
pub(super) async fn list_likers(
    State(api): State<Api>,
    ChosenKind(likes): ChosenKind<false>,
    Asked(query): Asked<LikersQuery>,
) -> Result<Json<Likers>> {
    let (rows, next) = listed(&api, &likes.id(), query).await?;
    let liker = |row: Like| Liker { user_id: row.user.to_string(), liked_at: row.liked_at.0 };
    Ok(Json(Likers { post_id: likes.subject.id.to_string(), likers: rows.into_iter().map(liker).collect(), next }))
}

/// A page of the members of a set.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Members {
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
pub(super) struct Member {
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
    tag = "counters",
    params(LikersQuery),
    responses(
        (status = 200, body = Members, description = "A page of them", example = json!({
            "post_id": "p-1", "counter": "retweets", "members": [{"member": "u-1", "since": 1_700_000_000_000_u64}]
        })),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a sum"),
    ),
)]
pub(super) async fn list_members(
    State(api): State<Api>,
    ChosenKind(chosen): ChosenKind<false>,
    Asked(query): Asked<LikersQuery>,
) -> Result<Json<Members>> {
    let (rows, next) = listed(&api, &chosen.id(), query).await?;
    let member = |row: Like| Member { member: row.user.to_string(), since: row.liked_at.0 };
    let (subject, counter) = (Named::from(&chosen.subject), chosen.definition.name.to_string());
    Ok(Json(Members { subject, counter, members: rows.into_iter().map(member).collect(), next }))
}
