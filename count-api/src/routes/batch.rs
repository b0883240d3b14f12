//! The counts of several posts at once.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tally_core::ids::{CounterId, PostId};
use utoipa::ToSchema;

use super::Api;
use crate::count::Count;
use crate::error::{IdField, Problem, ProblemDocument};
use crate::extract::Json;
use crate::read::NoAnswer;

/// The most posts that can be asked for at once.
const MOST: usize = 100;

/// The posts asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchRequest {
    /// Their ids: none to a hundred, each 1 to 256 bytes of UTF-8 without control characters.
    #[schema(max_items = 100, example = json!(["p-1", "p-2"]))]
    post_ids: Vec<String>,
}

/// The posts' counts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchCounts {
    /// In the order asked.
    counts: Vec<Count>,
    /// Posts whose counters are damaged and cannot be read; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    unreadable: Vec<String>,
}

/// How many users like each of up to a hundred posts
#[utoipa::path(
    post,
    path = "/v1/likes:batchGet",
    operation_id = "batchGetLikes",
    tag = "counts",
    request_body = BatchRequest,
    responses(
        (status = 200, body = BatchCounts, description = "The numbers"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not such a list"),
        (status = 408, body = ProblemDocument, content_type = "application/problem+json", description = "The body took too long"),
        (status = 413, body = ProblemDocument, content_type = "application/problem+json", description = "The body is too large"),
        (status = 415, body = ProblemDocument, content_type = "application/problem+json", description = "Not JSON"),
    ),
)]
pub(super) async fn counts(
    State(api): State<Api>,
    Json(asked): Json<BatchRequest>,
) -> Result<axum::Json<BatchCounts>, Problem> {
    let ids = likes(&asked)?;
    let read = api.reader.counts(&ids).await;
    let mut answer = BatchCounts { counts: Vec::with_capacity(ids.len()), unreadable: Vec::new() };
    for (CounterId { post, .. }, read) in ids.into_iter().zip(read) {
        match read {
            Ok(served) => answer.counts.push(Count::new(post, &served)),
            Err(NoAnswer::Refused(cause)) => {
                tracing::warn!(post = post.as_str(), cause = cause.as_str(), "a counter cannot be read");
                answer.unreadable.push(post.as_str().to_owned());
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    Ok(axum::Json(answer))
}

fn likes(asked: &BatchRequest) -> Result<Vec<CounterId>, Problem> {
    if asked.post_ids.len() > MOST {
        return Err(Problem::BadBody(format!("{} post_ids are more than {MOST}", asked.post_ids.len())));
    }
    let post = |id: &String| PostId::new(id).map_err(|reason| Problem::BadId { field: IdField::Post, reason });
    asked.post_ids.iter().map(|id| post(id).map(CounterId::likes)).collect()
}
