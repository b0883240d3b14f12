//! The HTTP route `createCounter`. No counter has to be created: the route answers over how many shards a counter's
//! rows are spread, and for a sum, a counter of amounts, sets over how many Kafka partitions this process spreads its
//! events at first.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tally_core::ids::{CounterKind, ShardCount};
use tally_core::spread::width_for;
use utoipa::ToSchema;

use super::Api;
use super::chosen::Chosen;
use super::detail::DEPLOYMENT;
use crate::error::{Parameter, Problem, Result};
use crate::extract::Json;
use crate::value::Named;

/// The path, which is also that of the counter's number.
pub(super) const PATH: &str = "/v1/posts/{post_id}/counters/{counter}";

/// The name of a body's field.
const NUMBER: &str = "number_of_shards";

/// What is asked for: a number, or else how many see the post.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardsRequest {
    /// How many: a power of two from 1 to 256. It wins over the other fields.
    #[serde(default)]
    #[schema(value_type = u64, minimum = 1, maximum = 256, example = 32)]
    number_of_shards: Option<u64>,
    /// How many follow the post's author.
    #[serde(default)]
    #[schema(value_type = u64, example = 50_000_000)]
    followers_count: Option<u64>,
    /// Who sees the post; `public` where it is left out.
    #[serde(default)]
    #[schema(value_type = PostType)]
    post_type: Option<PostType>,
}

/// A protected post is seen by followers alone, and planned for half as many events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "public")]
enum PostType {
    Public,
    Protected,
}

impl ShardsRequest {
    /// Returns over how many partitions a sum is to be spread at first.
    fn width(&self) -> Result<u32> {
        let bad = |why: String| Problem::BadBody { parameter: Some(Parameter::named(NUMBER)), why };
        match (self.number_of_shards, self.followers_count) {
            (Some(number), _) => {
                let number = ShardCount::new(number)
                    .map_err(|_| bad(format!("it is a power of two from 1 to {}", ShardCount::MAX)))?;
                Ok(number.get().into())
            }
            (None, Some(followers)) => Ok(width_for(followers, self.post_type == Some(PostType::Protected))),
            (None, None) => Err(bad("it or followers_count is needed".to_owned())),
        }
    }
}

/// How many shards a counter has.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum CounterShards {
    Set(SetShards),
    Sum(SumShards),
}

/// The shards of a set, which are the deployment's.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SetShards {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    /// How many it has, whatever was asked for.
    #[schema(example = 64)]
    number_of_shards: u16,
    /// What decided: `deployment`.
    #[schema(example = "deployment")]
    decided_by: &'static str,
    /// The number never changes.
    #[schema(example = true)]
    fixed: bool,
}

/// Over how many partitions a sum is spread: what writes its events decides that.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SumShards {
    #[schema(example = "writer")]
    policy: &'static str,
    /// Over how many partitions this process sends its events now. The number follows their rate from the first event on; it is
    /// 1 where the process spreads no sums.
    #[schema(example = 8)]
    number_of_shards: u32,
}

/// How many shards a counter of a post is to have
///
/// Counters need no creating. A set has as many shards as every set of the deployment, from its first member on: the answer says
/// how many, and nothing is changed. For a sum `number_of_shards` says over how many partitions this process sends its events at
/// first, if it has sent none lately; with `followers_count` and `post_type` their likely rate decides. Nothing is stored: the
/// number is this process's, and gone with it. Idempotent.
#[utoipa::path(
    put,
    path = PATH,
    tag = "counters",
    request_body(content = ShardsRequest, example = json!({"followers_count": 50_000_000, "post_type": "public"})),
    responses(
        (status = 200, body = CounterShards, description = "How many it has", example = json!({
            "post_id": "p-1", "counter": "retweets", "number_of_shards": 64, "decided_by": "deployment", "fixed": true
        })),
    ),
)]
pub(super) async fn create_counter(
    State(api): State<Api>,
    chosen: Chosen,
    Json(asked): Json<ShardsRequest>,
) -> Result<axum::Json<CounterShards>> {
    let width = asked.width()?;
    Ok(axum::Json(match chosen.definition.kind() {
        CounterKind::Sum => {
            CounterShards::Sum(SumShards { policy: "writer", number_of_shards: api.writer()?.begin(&chosen, width) })
        }
        CounterKind::Set => CounterShards::Set(SetShards {
            subject: Named::from(&chosen.subject),
            counter: chosen.definition.name.to_string(),
            number_of_shards: api.shards.get(),
            decided_by: DEPLOYMENT,
            fixed: true,
        }),
    }))
}
