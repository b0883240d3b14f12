//! The writer of events to Kafka: a write is answered once Kafka acknowledged its event. Rows and counts follow as from any other
//! producer.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::kafka::Spreading;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode};
use tally_core::fault::Fault;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Host};
use tokio::time::timeout;

use super::chosen::Chosen;
use super::gathering::Gatherings;
use crate::args::Config;
use crate::error::{LoggedCause, Problem};
use crate::metrics::WRITES;

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
    pub fn new(producer: Arc<dyn Producer>, config: &Config, spreading: Spreading, host: &Host) -> Self {
        let (topic, budget) = (config.topic.clone(), config.write_budget);
        let (clock, chance) = (host.clock(), host.chance().fork());
        Self { producer, topic, spreading, budget, clock, chance, gatherings: Gatherings::default() }
    }

    /// Writes what is said of a counter, in the definition's topic where it has one. Safe to repeat of a set; of a sum each
    /// amount counts, and those said at once are one event. Each write is counted as one of `kinds`, also where several are one
    /// event.
    ///
    /// # Errors
    /// The definition has no action of that direction, or Kafka did not acknowledge the event.
    pub(super) async fn say(
        &self,
        chosen: &Chosen,
        kinds: [&'static str; 2],
        direction: Direction,
        said: Said<'_>,
    ) -> Result<UnixMillis, Problem> {
        chosen.definition.action(direction).ok_or(Problem::NoAction(NO_REMOVAL))?;
        let sent = match said {
            Said::Member(_) => self.event(chosen, direction, said).await,
            Said::Amount(n) => self.gatherings.add(self, chosen, direction, n).await,
        };
        let outcome = sent.as_ref().map_or_else(Fault::class, |_| "acknowledged");
        WRITES.counter(&[kinds[usize::from(direction == Direction::Remove)], outcome]).increment(1);
        sent.map_err(|fault| Problem::BrokerAway(LoggedCause::new(&fault)))
    }

    /// Sends one event about a counter, whose key is its subject, and waits until Kafka has it: when it is said to have happened.
    pub(super) async fn event(&self, chosen: &Chosen, direction: Direction, said: Said<'_>) -> Outcome<UnixMillis> {
        let Chosen { subject, definition } = chosen;
        let (at, topic) = (self.clock.now(), self.topic(definition));
        let value = encode(definition, &subject.id, direction, said, None, at);
        let value = value.ok_or_else(|| Fault::Poison(NO_REMOVAL.to_owned()))?;
        // Without one, the key decides.
        let partition = match said {
            Said::Member(_) => None,
            Said::Amount(_) => {
                self.spreading.partition(topic, &chosen.id(), self.clock.reading().at, self.chance.token())
            }
        };
        let key = Some(subject.id.as_bytes());
        let record = Outgoing { topic, partition, key, value: Some(&value), headers: &[] };
        let sent = timeout(self.budget, self.producer.send(record)).await;
        let late = |_| Err(Fault::Transient(format!("no acknowledgement within {:?}", self.budget)));
        sent.unwrap_or_else(late).map(|_| at)
    }

    /// Over how many partitions a sum is spread now. It begins with `width` of them.
    pub(super) fn begin(&self, sum: &Chosen, width: u32) -> u32 {
        self.spreading.begin(self.topic(&sum.definition), &sum.id(), width)
    }

    fn topic<'a>(&'a self, definition: &'a Definition) -> &'a str {
        definition.topic.as_deref().unwrap_or(&self.topic)
    }
}
