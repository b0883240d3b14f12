//! Whether one user likes one post: read from the row, which is the like.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use serde::Serialize;
use tally_core::ids::{CounterId, RowKey, UserId};
use utoipa::ToSchema;

use super::schema::LikePath;
use super::{Api, Handles};
use crate::error::{Problem, ProblemDocument};
use crate::extract::PostAndUser;

/// A user who has just pressed the button asks: no proxy may answer from its cache.
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
    path = super::write::PATH,
    operation_id = "getLike",
    tag = "likes",
    params(LikePath),
    responses(
        (status = 200, body = LikeState, description = "Whether, and since when"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
    ),
)]
pub(super) async fn like(
    State(api): State<Api>,
    PostAndUser(post, user): PostAndUser,
) -> Result<([(HeaderName, HeaderValue); 1], Json<LikeState>), Problem> {
    let liked_at = since(&api, &CounterId::likes(post), &user).await?;
    Ok((FRESH, Json(LikeState { liked: liked_at.is_some(), liked_at })))
}

/// Since when `member` is in `counter`, if it is; milliseconds since the Unix epoch.
pub(super) async fn since(api: &Handles, counter: &CounterId, member: &UserId) -> Result<Option<u64>, Problem> {
    let key = RowKey::of(counter, member, api.shards);
    let row = api.table.read(api.rows.like(&key, member)).await?;
    Ok(row.map(|row| row.liked_at.0))
}
