//! The HTTP routes of milestones: they answer who or what first reached each threshold of a counter, and which
//! threshold is next.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tally_core::milestone::{Events, Milestone, Winner};
use utoipa::ToSchema;

use super::Api;
use super::chosen::Chosen;
use super::members::FRESH;
use crate::error::{Problem, ProblemDocument, Result};
use crate::value::{Id, Named};

/// The milestones of one counter.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CounterMilestones {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    /// Those of the greatest thresholds, at most 100, upwards.
    milestones: Vec<Reached>,
    /// The least threshold that is not recorded yet; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = i64, example = 1_000)]
    next: Option<i64>,
}

/// A threshold that the counter has reached, and what reached it first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Reached {
    /// The threshold.
    #[schema(example = 100)]
    n: i64,
    /// The member of a set that reached it; absent of a sum, and where nothing can be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id)]
    member: Option<String>,
    /// Of a sum: where in the log the event lies that reached it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = EventPlace)]
    event: Option<EventPlace>,
    /// When the winner's change reached the table, to the second; of a threshold without a winner, when it was found
    /// reached. Milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    at: u64,
    /// How long after that it was decided, in milliseconds.
    #[schema(example = 310)]
    lag: u64,
    /// The version of the counter that has it.
    #[schema(example = 57)]
    version: u64,
    /// Whether nothing says that the counter was wrong then: no loss, and no correction since.
    #[schema(example = true)]
    exact: bool,
    /// `located`: the member is named. `in_log`: the event is told by the log. `unwitnessed`: a correction crossed the
    /// threshold, or it was crossed before it was known, so there is no winner.
    #[schema(example = "located")]
    state: &'static str,
    /// How many thresholds below it the same update crossed that have no record; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 3)]
    skipped: Option<u64>,
}

/// Where an event of a sum lies: of the counter's events from `from` and before `to` it is the one with which their amounts
/// reach `nth`. One that has a dead letter may not have counted.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct EventPlace {
    /// The topic.
    #[schema(example = "likes")]
    topic: String,
    /// The Kafka partition.
    #[schema(example = 3)]
    partition: u32,
    /// The event's offset, where it is the only one that it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, example = 1_204)]
    offset: Option<u64>,
    /// The first offset.
    #[schema(example = 1_200)]
    from: u64,
    /// The offset behind the last.
    #[schema(example = 1_240)]
    to: u64,
    /// How much of their amounts it took.
    #[schema(example = 5)]
    nth: i64,
}

impl Reached {
    pub(super) fn new(milestone: &Milestone, exact: bool) -> Self {
        let Milestone { n, by, at, lag, version, skipped, .. } = milestone;
        let (member, event) = match by {
            Winner::Member(member) => (Some(member.to_string()), None),
            Winner::Events(Events { topic, partition, from, to, nth, .. }) => {
                let offset = (from + 1 == *to).then_some(*from);
                let topic = topic.to_string();
                (None, Some(EventPlace { topic, partition: *partition, offset, from: *from, to: *to, nth: *nth }))
            }
            Winner::Unwitnessed => (None, None),
        };
        let skipped = (*skipped > 0).then_some(*skipped);
        let (n, at, lag, version, state) = (*n, at.0, *lag, *version, by.state());
        Self { n, member, event, at, lag, version, exact, state, skipped }
    }
}

/// Who was first at which threshold
///
/// The Nth is the Nth in one order that agrees with that of every partition of the log. It was fixed when the counter
/// reached it, and never changes: also where the counter dips and rises again. It is not the order of clocks.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/counters/{counter}/milestones",
    tag = "counters",
    responses(
        (status = 200, body = CounterMilestones, description = "The thresholds reached"),
        (status = 422, body = ProblemDocument, content_type = "application/problem+json", description = "A sum that something is taken off from, which has no milestones"),
    ),
)]
pub(super) async fn read_milestones(State(api): State<Api>, chosen: Chosen) -> Result<Response> {
    if !chosen.definition.has_milestones() {
        return Err(Problem::NoMilestones);
    }
    let id = chosen.id();
    let (ladder, reached) = (api.milestones.ladder().await?, api.milestones.of(&id).await?);
    let next = ladder.above(reached.last().map(|(milestone, _)| milestone.n));
    let milestones = reached.iter().map(|(milestone, exact)| Reached::new(milestone, *exact)).collect();
    let subject = Named::from(&chosen.subject);
    let answer = CounterMilestones { subject, counter: id.name.to_string(), milestones, next };
    Ok((FRESH, Json(answer)).into_response())
}
