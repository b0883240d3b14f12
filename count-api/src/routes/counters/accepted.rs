//! What is answered to a write of any counter: the event that Kafka acknowledged.

use axum::Json;
use axum::http::StatusCode;
use serde::Serialize;
use tally_core::definitions::Direction;
use tally_core::event::Said;
use utoipa::ToSchema;

use super::chosen::Chosen;
use crate::error::Problem;
use crate::routes::Handles;
use crate::routes::schema::Id;
use crate::value::Named;

/// An acknowledged event about a counter.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct CounterAccepted {
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

/// Writes the event that says this of a counter.
pub(super) async fn write(
    api: &Handles,
    chosen: &Chosen,
    direction: Direction,
    said: Said<'_>,
) -> Result<(StatusCode, Json<CounterAccepted>), Problem> {
    let Chosen { subject, definition } = chosen;
    let writer = api.writer.as_ref().ok_or(Problem::WritesOff)?;
    let at = writer.say(definition, &subject.id, direction, said).await?;
    let (member, n) = match said {
        Said::Member(member) => (Some(member.as_str().to_owned()), None),
        Said::Amount(n) => (None, Some(n)),
    };
    let accepted = CounterAccepted {
        subject: Named::from(subject),
        counter: definition.name.to_string(),
        action: definition.action(direction).unwrap_or_default().to_owned(),
        member,
        n,
        ts: at.0,
    };
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}
