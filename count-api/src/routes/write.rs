//! Writes taken over HTTP, and those of likes and unlikes: each becomes an event in Kafka, and is answered once Kafka acknowledged it. Rows and
//! counts follow as from any other producer.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tally_adapters::kafka::Spreading;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, PostId, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Host};
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

use super::Api;
use super::gathering::Gatherings;
use super::schema::{Id, LikePath};
use crate::config::WriteConfig;
use crate::count::as_text;
use crate::error::{LoggedCause, Problem, ProblemDocument};
use crate::extract::PostAndUser;
use crate::metrics::WRITES;

/// The route, where writes are off, too.
pub(super) const PATH: &str = "/v1/posts/{post_id}/likes/{user_id}";

/// What is said where a definition has no action that takes away.
const NO_REMOVAL: &str = "the counter's definition has no action that takes away";

/// Writes to Kafka as events what clients say.
#[derive(Clone)]
pub struct EventWriter {
    producer: Arc<dyn Producer>,
    topic: String,
    spreading: Spreading,
    budget: Duration,
    clock: Clock,
    chance: Chance,
    gatherings: Gatherings,
}

impl EventWriter {
    /// A writer through `producer`, which sends sums to the partitions that `spreading` chooses.
    pub fn new(producer: Arc<dyn Producer>, config: WriteConfig, spreading: Spreading, host: &Host) -> Self {
        let WriteConfig { topic, budget, .. } = config;
        let (clock, chance) = (host.clock(), host.chance().fork());
        Self { producer, topic, spreading, budget, clock, chance, gatherings: Gatherings::default() }
    }

    /// Writes what is said of a counter of `subject`, in the definition's topic where it has one. Safe to repeat of a set; of
    /// a sum each amount counts, and those said at once are one event.
    ///
    /// # Errors
    /// The definition has no action of that direction, or Kafka did not acknowledge the event.
    pub(super) async fn say(
        &self,
        definition: &Definition,
        subject: &PostId,
        direction: Direction,
        said: Said<'_>,
    ) -> Result<UnixMillis, Problem> {
        definition.action(direction).ok_or(Problem::NoAction(NO_REMOVAL))?;
        let removes = usize::from(direction == Direction::Remove);
        match said {
            Said::Member(_) => told(["put", "remove"][removes], self.event(definition, subject, direction, said).await),
            Said::Amount(n) => {
                let sent = self.gatherings.add(self, definition, subject, direction, n).await;
                told(["increment", "decrement"][removes], sent)
            }
        }
    }

    /// Sends one event about a counter of `subject`: when it is said to have happened.
    pub(super) async fn event(
        &self,
        definition: &Definition,
        subject: &PostId,
        direction: Direction,
        said: Said<'_>,
    ) -> Outcome<UnixMillis> {
        let (at, topic) = (self.clock.now(), definition.topic.as_deref().unwrap_or(&self.topic));
        let value = encode(definition, subject, direction, said, None, at);
        let value = value.ok_or_else(|| Fault::Poison(NO_REMOVAL.to_owned()))?;
        let partition = match said {
            Said::Member(_) => None,
            Said::Amount(_) => self.partition(topic, definition, subject),
        };
        self.acknowledged(topic, partition, subject, &value).await.map(|()| at)
    }

    /// Where the next event of a sum goes; `None` leaves it to the key.
    fn partition(&self, topic: &str, definition: &Definition, subject: &PostId) -> Option<u32> {
        let counter = CounterId { post: subject.clone(), name: definition.name.clone() };
        self.spreading.partition(topic, &counter, self.clock.reading().at, self.chance.token())
    }

    /// Over how many partitions the sum of `subject` is spread now. It begins with `width` of them.
    pub(super) fn begin(&self, definition: &Definition, subject: &PostId, width: u32) -> u32 {
        let counter = CounterId { post: subject.clone(), name: definition.name.clone() };
        self.spreading.begin(definition.topic.as_deref().unwrap_or(&self.topic), &counter, width)
    }

    /// Sends a record about a subject, which is its key, and waits until Kafka has it.
    async fn acknowledged(&self, topic: &str, partition: Option<u32>, key: &PostId, value: &[u8]) -> Outcome<()> {
        let record = Outgoing { topic, partition, key: Some(key.as_bytes()), value: Some(value), headers: &[] };
        let sent = timeout(self.budget, self.producer.send(record)).await;
        let late = || Err(Fault::Transient(format!("no acknowledgement within {:?}", self.budget)));
        sent.unwrap_or_else(|_| late()).map(|_| ())
    }
}

/// What the client of a write of this kind is told. Each write is counted, also where several are one event.
fn told<T>(action: &'static str, sent: Outcome<T>) -> Result<T, Problem> {
    let outcome = sent.as_ref().map_or_else(Fault::class, |_| "acknowledged");
    WRITES.counter(&[action, outcome]).increment(1);
    sent.map_err(|fault| Problem::BrokerAway(LoggedCause::new(&fault)))
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Add => "like",
        Direction::Remove => "unlike",
    }
}

/// An acknowledged event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Accepted {
    /// The post.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = Id)]
    post_id: PostId,
    /// The user.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = Id)]
    user_id: UserId,
    #[schema(schema_with = action)]
    action: &'static str,
    /// The event's time; milliseconds since the Unix epoch.
    #[schema(example = 1_700_000_000_000_u64)]
    ts: u64,
}

/// A user likes a post
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; rows and counts follow.
#[utoipa::path(
    put,
    path = PATH,
    operation_id = "putLike",
    tag = "likes",
    params(LikePath),
    responses(
        (status = 202, body = Accepted, description = "The event is acknowledged"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
    ),
)]
pub(super) async fn like(
    State(api): State<Api>,
    PostAndUser(post, user): PostAndUser,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    write(&api, post, user, Direction::Add).await
}

/// A user no longer likes a post
///
/// Idempotent. The answer comes once Kafka has acknowledged the event; rows and counts follow.
#[utoipa::path(
    delete,
    path = PATH,
    operation_id = "deleteLike",
    tag = "likes",
    params(LikePath),
    responses(
        (status = 202, body = Accepted, description = "The event is acknowledged"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not an id"),
    ),
)]
pub(super) async fn unlike(
    State(api): State<Api>,
    PostAndUser(post, user): PostAndUser,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    write(&api, post, user, Direction::Remove).await
}

fn action() -> Schema {
    let actions = [Direction::Add, Direction::Remove].map(name);
    let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(actions));
    schema.description(Some("What was done.")).examples([name(Direction::Add)]).build().into()
}

/// Safe to repeat: an event states whether the user likes the post, not a change.
async fn write(
    api: &Api,
    post_id: PostId,
    user_id: UserId,
    direction: Direction,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let writer = api.writer.as_ref().ok_or(Problem::WritesOff)?;
    let (likes, said, action) = (Definition::likes(), Said::Member(&user_id), name(direction));
    let at = told(action, writer.event(&likes, &post_id, direction, said).await)?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { post_id, user_id, action, ts: at.0 })))
}
