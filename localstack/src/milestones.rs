//! Who was first at which threshold, by the log of changes: what the comparison holds the milestones against.
//!
//! The log is followed while the load runs, since the embedded Kafka keeps little of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes as Log, Config};
use tally_core::changes::{Filter, Item, Message, Place};
use tally_core::fold::{Change, Counter};
use tally_core::ids::CounterId;
use tally_core::milestone::{Ladder, Milestone, Winner};
use tally_core::ports::{Outcome, TopicReader};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop, Task};

/// How often the log is read.
const EVERY: Duration = Duration::from_millis(200);

/// What reached a threshold first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// Who or what.
    pub(crate) by: Winner,
    /// The second of the change; nothing of a threshold that no change reached.
    pub(crate) second: Option<u64>,
}

impl From<&Milestone> for First {
    fn from(milestone: &Milestone) -> Self {
        let second = (milestone.by != Winner::Unwitnessed).then_some(milestone.at.0 / 1000);
        Self { by: milestone.by.clone(), second }
    }
}

/// The thresholds of each counter that were reached.
pub(crate) type Firsts = BTreeMap<CounterId, BTreeMap<i64, First>>;

/// What the log has said so far; clones are the same. The ladder is in force from its beginning, as the log has to say.
#[derive(Clone, Debug)]
pub(crate) struct Changes(Arc<Mutex<BTreeMap<u32, Partition>>>, Ladder);

/// One partition of the log.
#[derive(Debug, Default)]
struct Partition {
    next: Place,
    filter: Filter,
    counters: BTreeMap<CounterId, Counter>,
    firsts: Firsts,
}

impl Changes {
    pub(crate) fn of(ladder: Ladder) -> Self {
        Self(Arc::default(), ladder)
    }

    /// What reached which threshold of each counter first.
    pub(crate) fn firsts(&self) -> Firsts {
        self.kept().values().flat_map(|partition| partition.firsts.clone()).collect()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u32, Partition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the log has more.
    async fn follow(&self, reader: &dyn TopicReader, config: &Config) -> Outcome<()> {
        for (partition, log) in reader.logs().await? {
            let next = self.kept().entry(partition.index).or_default().next.offset();
            let mut from = next.max(log.start);
            while from < log.end {
                let records = reader.read(&partition, from, log.end).await?;
                let Some(last) = records.last_offset() else { break };
                let mut kept = self.kept();
                let known = kept.entry(partition.index).or_default();
                for record in records.iter() {
                    let message = record.value.and_then(|value| Message::read(value, &config.deployment).ok());
                    if let Some(message) = message {
                        known.take(Place::new(config.generation, record.offset), record.at, &message, &self.1);
                    }
                }
                from = last.next();
            }
        }
        Ok(())
    }
}

impl Partition {
    fn take(&mut self, at: Place, appended: UnixMillis, message: &Message, ladder: &Ladder) {
        let Self { next, filter, counters, firsts } = self;
        *next = at.next();
        filter.take(at, appended, message, |item, loss| {
            let (id, change, entry) = match item {
                Item::Entry(entry) => (&entry.key.counter, Change::Entry(entry), Some(entry)),
                Item::Correction(correction) => (&correction.counter, Change::Correction(correction), None),
                Item::Ladder(_) => return,
            };
            let counter = counters.entry(id.clone()).or_default();
            let before = counter.likes;
            if counter.apply(at, change, loss).is_err() || counter.likes <= before {
                return;
            }
            let known = firsts.entry(id.clone()).or_default();
            let through = known.last_key_value().map(|(n, _)| *n);
            for n in ladder.crossed(through, counter.likes).thresholds {
                let first = match entry.filter(|_| n > before) {
                    Some(entry) => First { by: Winner::of(entry, n - before), second: Some(entry.second) },
                    None => First { by: Winner::Unwitnessed, second: None },
                };
                known.insert(n, first);
            }
        });
    }
}

/// The task that follows the log. A read that fails is made again.
pub(crate) struct FollowLog {
    pub(crate) changes: Changes,
    pub(crate) log: Log,
    pub(crate) reader: Arc<dyn TopicReader>,
    pub(crate) clock: Clock,
}

impl Task for FollowLog {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        loop {
            let follow = async {
                if let Some(config) = self.log.config().await? {
                    self.changes.follow(&*self.reader, &config).await?;
                }
                Outcome::Ok(())
            };
            if let Err(fault) = stop.unless_requested(follow).await? {
                tracing::debug!(%fault, "the log of changes cannot be read for the comparison");
            }
            stop.unless_requested(self.clock.sleep(EVERY)).await?;
        }
    }
}
