//! The writer of events to Kafka: a write is answered once Kafka acknowledged its event. Rows and counts follow as from any other
//! producer. Amounts of one sum that are said within one linger become one event: fewer records, and fewer rows behind them.
//!
//! Such an event is sent by a task of its own, so a client that leaves changes nothing: its amount is in the event, once, or in
//! none if the process ends first. It was not told which, as after any answer that is lost.

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

/// How long amounts gather: as long as the producer gathers records.
const LINGER: Duration = Duration::from_millis(5);

/// Events that gather or are under way at once. Further amounts are refused.
const AT_ONCE: usize = 4_096;

/// What is added to which sum, or taken off it.
type Key = (CounterId, Direction);

/// What becomes of an event.
type Told = watch::Receiver<Option<Outcome<UnixMillis>>>;

/// The events that gather, and those under way, which end with the process. Clones share them.
#[derive(Clone, Default)]
struct Gatherings {
    open: Arc<Mutex<Map<Key, Gathering>>>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

/// An event that amounts are still added to.
struct Gathering {
    n: Arc<Mutex<u32>>,
    outcome: Told,
}

impl Gatherings {
    /// Adds `n` to the event that gathers, or to a new one that `writer` sends, and waits for its acknowledgement: the time
    /// of the event.
    ///
    /// # Errors
    /// Those of the event, which each of those waiting for it is told.
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
            // None hears it where all have left.
            let _ = tell.send(Some(said));
        });
        Ok(outcome)
    }
}

/// What has gathered in `sum`. Nothing is added to it afterwards: additions happen under the lock, to what stands there.
fn closed(open: &Mutex<Map<Key, Gathering>>, key: &Key, sum: &Arc<Mutex<u32>>) -> u32 {
    let mut open = open.lock();
    if open.get(key).is_some_and(|gathering| Arc::ptr_eq(&gathering.n, sum)) {
        open.remove(key);
    }
    *sum.lock()
}
