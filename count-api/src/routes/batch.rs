//! The counts of several posts at once.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tally_core::ids::{CounterId, PostId};
use utoipa::ToSchema;

use super::Api;
use super::schema::Id;
use crate::count::Count;
use crate::error::{Parameter, Problem, ProblemDocument};
use crate::extract::Json;
use crate::read::NoAnswer;

/// The most posts that can be asked for at once.
const MOST: usize = 100;

/// What a body calls them.
const POST_IDS: &str = "post_ids";

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
            Ok(count) => answer.counts.push(Count::new(post, count)),
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
        let (parameter, given) = (Some(Parameter::named(POST_IDS)), asked.post_ids.len());
        return Err(Problem::BadBody { parameter, why: format!("{given} are more than {MOST}") });
    }
    let post = |(index, id): (usize, &String)| {
        let bad = |reason| Problem::BadId { parameter: Parameter::element(POST_IDS, index), reason };
        PostId::new(id).map(CounterId::likes).map_err(bad)
    };
    asked.post_ids.iter().enumerate().map(post).collect()
}
