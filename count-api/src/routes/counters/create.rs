//! Over how many shards a counter is spread. Counters themselves need no creating: one that was never written has 0.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tally_core::homes::Wish;
use tally_core::ids::CounterKind;
use utoipa::ToSchema;

use super::chosen::Chosen;
use crate::create::{Created, NUMBER};
use crate::error::{Parameter, Problem, ProblemDocument};
use crate::extract::Json;
use crate::routes::Api;
use crate::routes::schema::Id;
use crate::value::Named;

/// The route: that of the counter's number.
pub(in crate::routes) const PATH: &str = "/v1/posts/{post_id}/counters/{counter}";

/// What shards are decided by: a number, or else how many see the post.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::routes) struct ShardsRequest {
    /// How many: a power of two from the deployment's number of shards to 64. It wins over the other fields.
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

/// A protected post is seen by followers alone, and planned for half as many shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(example = "public")]
enum PostType {
    Public,
    Protected,
}

impl ShardsRequest {
    fn wish(&self) -> Result<Wish, Problem> {
        let protected = self.post_type == Some(PostType::Protected);
        match (self.number_of_shards, self.followers_count) {
            (Some(number), _) => Ok(Wish::Number(number)),
            (None, Some(followers)) => Ok(Wish::Audience { followers, protected }),
            (None, None) => {
                let why = "it or followers_count is needed".to_owned();
                Err(Problem::BadBody { parameter: Some(Parameter::named(NUMBER)), why })
            }
        }
    }
}

/// What holds of a counter's shards.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::routes) enum CounterShards {
    Set(SetShards),
    Sum(SumShards),
}

/// The shards of a set.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct SetShards {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    /// What was asked for: named, or decided by the number of followers.
    #[schema(example = 32)]
    number_of_shards: u16,
    /// What decided: `number_of_shards`, `followers_count` or `heat`.
    #[schema(example = "number_of_shards")]
    decided_by: &'static str,
    /// Over how many shards its members may be spread now: each number that was ever in use.
    #[schema(example = json!([16, 32]))]
    homes: Vec<u16>,
    /// The one of them by which new members are put.
    #[schema(example = 32)]
    newest: u16,
}

/// The shards of a sum: what writes its events decides how they are spread.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct SumShards {
    #[schema(example = "writer")]
    policy: &'static str,
}

/// Over how many shards a counter of a post is to be spread
///
/// Counters need no creating. This decides over how many shards a set is spread, before it is busy: by `number_of_shards`, or
/// by `followers_count` and `post_type`. Idempotent: what was asked for first is kept, the same request is answered with it, and
/// another number is a conflict. Members stay where they are, and are found there; new ones are put where `newest` says. For a sum
/// nothing is stored.
#[utoipa::path(
    put,
    path = PATH,
    operation_id = "createCounter",
    tag = "counters",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("counter" = String, Path, description = "The counter's name", example = "retweets"),
    ),
    request_body(content = ShardsRequest, example = json!({"followers_count": 50_000_000, "post_type": "public"})),
    responses(
        (status = 200, body = CounterShards, description = "It holds already, or the counter is a sum",
            example = json!({"policy": "writer"})),
        (status = 201, body = CounterShards, description = "It is stored", example = json!({
            "post_id": "p-1", "counter": "retweets", "number_of_shards": 64, "decided_by": "followers_count",
            "homes": [16, 64], "newest": 64
        })),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id, or a number out of its bounds, which are named"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 408, body = ProblemDocument, content_type = "application/problem+json", description = "The body took too long"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "Another number was asked for before"),
        (status = 413, body = ProblemDocument, content_type = "application/problem+json", description = "The body is too large"),
        (status = 415, body = ProblemDocument, content_type = "application/problem+json", description = "Not JSON"),
    ),
)]
pub(in crate::routes) async fn create(
    State(api): State<Api>,
    chosen: Chosen,
    Json(asked): Json<ShardsRequest>,
) -> Result<(StatusCode, axum::Json<CounterShards>), Problem> {
    let wish = asked.wish()?;
    if chosen.definition.kind() == CounterKind::Sum {
        return Ok((StatusCode::OK, axum::Json(CounterShards::Sum(SumShards { policy: "writer" }))));
    }
    let Created { now, asked, decided_by, map } = api.creator.create(&chosen.id(), wish).await?;
    let shards = SetShards {
        subject: Named::from(&chosen.subject),
        counter: chosen.definition.name.to_string(),
        number_of_shards: asked.get(),
        decided_by: decided_by.as_str(),
        homes: map.homes().iter().map(|home| home.get()).collect(),
        newest: map.newest().get(),
    };
    let status = if now { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(CounterShards::Set(shards))))
}
