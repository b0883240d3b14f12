//! Amounts added to sums and taken off them.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tally_core::definitions::Direction;
use tally_core::event::{MAX_AMOUNT, Said};
use utoipa::ToSchema;

use super::accepted::{CounterAccepted, write};
use super::chosen::ChosenSum;
use crate::error::{Parameter, Problem, ProblemDocument};
use crate::extract::Json;
use crate::routes::Api;
use crate::routes::schema::Id;

/// The route, where writes are off, too.
pub(in crate::routes) const PATH: &str = "/v1/posts/{post_id}/counters/{counter}/events";

/// What a body calls the amount.
const N: &str = "n";

/// What a sum is to do.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::routes) struct AmountRequest {
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
    path = PATH,
    operation_id = "writeCounter",
    tag = "counters",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("counter" = String, Path, description = "The sum's name", example = "views"),
    ),
    request_body(content = AmountRequest, example = json!({"action": "increment", "n": 25})),
    responses(
        (status = 202, body = CounterAccepted, description = "The event is acknowledged",
            example = json!({"post_id": "p-1", "counter": "views", "action": "view", "n": 25, "ts": 1_700_000_000_000_u64})),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id, or not such an event"),
        (status = 404, body = ProblemDocument, content_type = "application/problem+json", description = "No such counter"),
        (status = 408, body = ProblemDocument, content_type = "application/problem+json", description = "The body took too long"),
        (status = 409, body = ProblemDocument, content_type = "application/problem+json", description = "The counter is a set, or nothing is taken off it"),
        (status = 413, body = ProblemDocument, content_type = "application/problem+json", description = "The body is too large"),
        (status = 415, body = ProblemDocument, content_type = "application/problem+json", description = "Not JSON"),
    ),
)]
pub(in crate::routes) async fn event(
    State(api): State<Api>,
    ChosenSum(chosen): ChosenSum,
    Json(AmountRequest { action, n }): Json<AmountRequest>,
) -> Result<(StatusCode, axum::Json<CounterAccepted>), Problem> {
    if !(1..=MAX_AMOUNT).contains(&i64::from(n)) {
        let why = format!("it is from 1 to {MAX_AMOUNT}");
        return Err(Problem::BadBody { parameter: Some(Parameter::named(N)), why });
    }
    let direction = match action {
        AmountAction::Increment => Direction::Add,
        AmountAction::Decrement => Direction::Remove,
    };
    write(&api, &chosen, direction, Said::Amount(n)).await
}
