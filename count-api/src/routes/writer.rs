//! Writes clients' likes and other changes to Kafka as events, for the routes in `writes.rs`. A write is answered once
//! Kafka has acknowledged its event; rows and counts follow, as for events of any other producer. Amounts that arrive
//! within 5 ms for one sum (a counter of amounts, such as views) gather in one event, which saves records and rows.
//!
//! A task of its own sends such an event. So if a client leaves, its amount still counts once, or not at all if the
//! process ends first. The client does not learn which, as with any lost answer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_adapters::kafka::Spreading;
use tally_core::Map;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{MAX_AMOUNT, Said, encode};
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::chosen::Chosen;
use crate::args::Config;
use crate::definitions::Defined;
use crate::error::{LoggedCause, Problem, Result};
use crate::metrics::WRITES;

/// The reason for refusing a removal that the counter's definition does not have.
const NO_REMOVAL: &str = "the counter's definition has no action that takes away";

/// Writes clients' changes to Kafka as events. Clones share what gathers.
#[derive(Clone)]
pub struct EventWriter {
    producer: Arc<dyn Producer>,
    topic: String,
    defined: Defined,
    spreading: Spreading,
    budget: Duration,
    clock: Clock,
    chance: Chance,
    gatherings: Gatherings,
}

impl EventWriter {
    /// Creates a writer through `producer`. `spreading` chooses the partitions of sums.
    pub fn new(
        producer: Arc<dyn Producer>,
        config: &Config,
        defined: Defined,
        spreading: Spreading,
        host: &Host,
    ) -> Self {
        let (topic, budget) = (config.likes.topic.clone(), config.write_budget);
        let (clock, chance) = (host.clock(), host.chance().fork());
        Self { producer, topic, defined, spreading, budget, clock, chance, gatherings: Gatherings::default() }
    }

    /// Writes an event about a counter to the definition's topic, or to that of likes, and returns its action and time
    /// once Kafka has acknowledged it. Safe to repeat for a set. For a sum each amount counts; amounts at the same time
    /// share one event. Each write is counted under one of `kinds`, even if it shares its event.
    ///
    /// # Errors
    /// The definition has no action of that direction, the topic is not the deployment's, or Kafka did not acknowledge
    /// the event.
    pub(super) async fn say(
        &self,
        chosen: &Chosen,
        kinds: [&'static str; 2],
        direction: Direction,
        said: Said<'_>,
    ) -> Result<(String, UnixMillis)> {
        let action = chosen.definition.action(direction).ok_or(Problem::NoAction(NO_REMOVAL))?.to_owned();
        if chosen.definition.topic.is_none() && self.defined.is_of_another_topic() {
            return Err(Problem::OtherTopic);
        }
        let sent = match said {
            Said::Member(_) => self.event(chosen, direction, said).await,
            Said::Amount(n) => self.gatherings.add(self, chosen, direction, n).await,
        };
        let outcome = sent.as_ref().map_or_else(Fault::class, |_| "acknowledged");
        WRITES.counter(&[kinds[usize::from(direction == Direction::Remove)], outcome]).increment(1);
        sent.map(|at| (action, at)).map_err(|fault| {
            let problem = if fault.is_retryable() { Problem::BrokerAway } else { Problem::EventRefused };
            problem(LoggedCause::new(&fault))
        })
    }

    /// Sends one event about a counter, with its subject as the key, and waits until Kafka has it. Returns the event's
    /// time.
    pub(super) async fn event(&self, chosen: &Chosen, direction: Direction, said: Said<'_>) -> Outcome<UnixMillis> {
        let Chosen { subject, definition } = chosen;
        let (at, topic) = (self.clock.now(), self.topic(definition));
        let value = encode(definition, &subject.id, direction, said, None, at);
        let value = value.ok_or_else(|| Fault::Poison(NO_REMOVAL.to_owned()))?;
        // Without a partition, the key decides.
        let partition = match said {
            Said::Member(_) => None,
            Said::Amount(_) => {
                self.spreading.partition(topic, &chosen.id(), self.clock.reading().at, self.chance.token())
            }
        };
        let key = Some(subject.id.as_bytes());
        let record = Outgoing { topic, partition, key, value: Some(&value), headers: &[] };
        let sent = timeout(self.budget, self.producer.send_at(record, at)).await;
        let late = |_| Err(Fault::Transient(format!("no acknowledgement within {:?}", self.budget)));
        sent.unwrap_or_else(late).map(|_| at)
    }

    /// Spreads a sum over `width` partitions, unless events of it were sent lately. Returns over how many it is spread
    /// now.
    pub(super) fn begin(&self, sum: &Chosen, width: u32) -> u32 {
        self.spreading.begin(self.topic(&sum.definition), &sum.id(), width)
    }

    fn topic<'a>(&'a self, definition: &'a Definition) -> &'a str {
        definition.topic.as_deref().unwrap_or(&self.topic)
    }
}

/// How long amounts gather, which is as long as the producer gathers records.
const LINGER: Duration = Duration::from_millis(5);

/// The most events that gather or are being sent. Beyond that, new ones are refused.
const AT_ONCE: usize = 4_096;

/// A sum, and whether amounts are added or taken off.
type Key = (CounterId, Direction);

/// The outcome of an event, once it is known.
type Told = watch::Receiver<Option<Outcome<UnixMillis>>>;

/// The events that gather, and the tasks that send them, which end with the process. Clones share them.
#[derive(Clone, Default)]
struct Gatherings {
    open: Arc<Mutex<Map<Key, Gathering>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// An event to which amounts are still added.
struct Gathering {
    n: Arc<Mutex<u32>>,
    outcome: Told,
}

impl Gatherings {
    /// Adds `n` to the event that gathers, or to a new one that `writer` sends. Waits for Kafka's acknowledgement and
    /// returns the event's time.
    ///
    /// # Errors
    /// Those of the event, which all who wait for it get.
    async fn add(&self, writer: &EventWriter, sum: &Chosen, direction: Direction, n: u32) -> Outcome<UnixMillis> {
        let mut outcome = self.join(writer, sum, direction, n)?;
        let told = outcome.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        told.unwrap_or_else(|| Err(Fault::Transient("the event was dropped: the process ends".to_owned())))
    }

    fn join(&self, writer: &EventWriter, chosen: &Chosen, direction: Direction, n: u32) -> Outcome<Told> {
        let key = (chosen.id(), direction);
        let mut open = self.open.lock();
        if let Some(gathering) = open.get(&key) {
            let mut sum = gathering.n.lock();
            if let Some(more) = sum.checked_add(n).filter(|more| i64::from(*more) <= MAX_AMOUNT) {
                *sum = more;
                return Ok(gathering.outcome.clone());
            }
        }
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= AT_ONCE {
            return Err(Fault::Throttled(format!("{AT_ONCE} events are under way")));
        }
        let (tell, outcome) = watch::channel(None);
        let sum = Arc::new(Mutex::new(n));
        open.insert(key.clone(), Gathering { n: Arc::clone(&sum), outcome: outcome.clone() });
        let (gatherings, writer, chosen) = (Arc::clone(&self.open), writer.clone(), chosen.clone());
        tasks.spawn(async move {
            tokio::time::sleep(LINGER).await;
            let n = closed(&gatherings, &key, &sum);
            let said = writer.event(&chosen, direction, Said::Amount(n)).await;
            // All who waited may have left.
            let _ = tell.send(Some(said));
        });
        Ok(outcome)
    }
}

/// Ends the gathering and returns its sum. Nothing is added afterwards: additions hold the lock, and only to open
/// gatherings.
fn closed(open: &Mutex<Map<Key, Gathering>>, key: &Key, sum: &Arc<Mutex<u32>>) -> u32 {
    let mut open = open.lock();
    if open.get(key).is_some_and(|gathering| Arc::ptr_eq(&gathering.n, sum)) {
        open.remove(key);
    }
    *sum.lock()
}
