//! The log `changes` as a reader has it that misses nothing: what every counter is to get, with the place of each item and
//! the last announcement of a loss before it. What processes do is held against it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::memory::log::{Broker, TopicReader};
use tally_core::changes::{
    Body, Correction, DeploymentId, Entry, Filter, Item, LossNumber, Message, Place, partition_of,
};
use tally_core::fold::{Change, Position};
use tally_core::ids::{CounterId, RowKey, Shard};
use tally_core::milestone::Ladder;
use tally_core::ports::TopicReader as _;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

/// The topic of the log.
pub(crate) const CHANGES: &str = "changes";

/// How far apart the places are that are remembered of a partition, and how many of them are.
const APART: Duration = Duration::from_secs(5);
const REMEMBERED: usize = 5;

/// The log so far; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    reader: TopicReader,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    deployment: Option<DeploymentId>,
    generation: u16,
    /// How many partitions it has.
    count: u32,
    partitions: BTreeMap<u32, Logged>,
}

/// One partition.
#[derive(Debug, Default)]
struct Logged {
    /// Everything before this place was read.
    at: Place,
    filter: Filter,
    ladder: Ladder,
    /// Some of it was lost, so that not everybody has read the same.
    torn: bool,
    items: BTreeMap<CounterId, Vec<Logs>>,
    /// What the accepted entries of each row key come to.
    gained: BTreeMap<RowKey, i64>,
    /// The losses, by the places of their announcements.
    losses: BTreeMap<Place, LossNumber>,
    /// The last places, and when they were reached.
    passed: VecDeque<(UnixMillis, Position)>,
    /// One of them from before the last announcement of a loss.
    before_loss: Option<Position>,
}

/// Something that a counter is to get.
#[derive(Clone, Debug)]
pub(crate) struct Logs {
    pub(crate) at: Place,
    /// The last announcement of a loss before it.
    pub(crate) loss: Option<Place>,
    /// The thresholds in force there.
    pub(crate) ladder: Ladder,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Entry(Entry),
    /// A correction, and what the entries before it come to for each of its shards.
    Correction(Correction, BTreeMap<Shard, i64>),
}

impl Logs {
    /// What it does to its counter.
    pub(crate) fn change(&self) -> Change<'_> {
        match &self.what {
            What::Entry(entry) => Change::Entry(entry),
            What::Correction(correction, _) => Change::Correction(correction),
        }
    }

    /// Of a correction: what the entries before it come to for each of its shards.
    pub(crate) fn right(&self) -> Option<&BTreeMap<Shard, i64>> {
        match &self.what {
            What::Entry(_) => None,
            What::Correction(_, right) => Some(right),
        }
    }
}

impl Journal {
    /// Of the log in `broker`, which has so many partitions and is empty.
    pub(crate) fn of(broker: &Broker, count: u32) -> Self {
        let kept = Kept { count, ..Kept::default() };
        Self { reader: broker.reader("observer", CHANGES), kept: Arc::new(Mutex::new(kept)) }
    }

    /// Learns whose log it is, once that is stored.
    pub(crate) async fn learn(&self, changes: &Changes) -> anyhow::Result<()> {
        if self.kept.lock().deployment.is_none()
            && let Some(config) = changes.config().await?
        {
            let mut kept = self.kept.lock();
            (kept.deployment, kept.generation) = (Some(config.deployment), config.generation);
        }
        Ok(())
    }

    /// Reads on to where the log ends now; nothing while the broker is away.
    pub(crate) async fn follow(&self) -> anyhow::Result<()> {
        if self.kept.lock().deployment.is_none() {
            return Ok(());
        }
        for (partition, log) in self.reader.logs().await.unwrap_or_default() {
            loop {
                let from = self.kept.lock().goes_on(partition.index, log.start, log.end);
                if from >= log.end {
                    break;
                }
                let Ok(records) = self.reader.read(&partition, from, log.end).await else { break };
                self.kept.lock().take(partition.index, &records)?;
            }
        }
        Ok(())
    }

    /// What a counter is to get from one place of its partition up to another; `None` where the log was not read so far, or
    /// where some of it was lost.
    pub(crate) fn between(&self, counter: &CounterId, from: Place, to: Place) -> Option<Vec<Logs>> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&kept.partition_of(counter))?;
        if logged.torn || to > logged.at {
            return None;
        }
        let items = logged.items.get(counter).map_or(&[][..], Vec::as_slice);
        Some(items.iter().filter(|item| item.at >= from && item.at < to).cloned().collect())
    }

    /// Whether some of the partition of a counter was lost.
    pub(crate) fn is_torn(&self, counter: &CounterId) -> bool {
        let kept = self.kept.lock();
        kept.partitions.get(&kept.partition_of(counter)).is_some_and(|logged| logged.torn)
    }

    /// From now on not everybody has read the same of a partition.
    pub(crate) fn tear(&self, partition: u32) {
        self.kept.lock().partitions.entry(partition).or_default().torn = true;
    }

    /// Where a reader of everything goes on in a partition.
    pub(crate) fn end(&self, partition: u32) -> Option<Position> {
        let kept = self.kept.lock();
        let Logged { at, filter, ladder, .. } = kept.partitions.get(&partition)?;
        Some(Position { at: *at, filter: filter.clone(), ladder: *ladder, last: None })
    }

    /// A place before the last announcement of a loss in a partition, with a filter that says that it knows all losses.
    pub(crate) fn before_loss(&self, partition: u32) -> Option<Position> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&partition)?;
        let (mut position, loss) = (logged.before_loss.clone()?, logged.filter.loss()?);
        let losses = logged.filter.standing().open.into_iter().collect();
        let message = Message { read: UnixMillis(0), body: Body::Sections { sections: Vec::new(), losses } };
        position.filter.take(loss, UnixMillis(0), &message, |_, _| {});
        Some(position)
    }

    /// The greatest number of a loss that was announced in a partition up to a place.
    pub(crate) fn number(&self, partition: u32, up_to: Place) -> Option<LossNumber> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&partition)?;
        logged.losses.range(..=up_to).map(|(_, number)| *number).max()
    }

    /// The number of the loss that was announced at a place of the partition of a counter.
    pub(crate) fn announced(&self, counter: &CounterId, at: Place) -> Option<LossNumber> {
        let kept = self.kept.lock();
        kept.partitions.get(&kept.partition_of(counter))?.losses.get(&at).copied()
    }

    /// Whether a loss was announced in any partition.
    pub(crate) fn has_losses(&self) -> bool {
        self.kept.lock().partitions.values().any(|logged| !logged.losses.is_empty())
    }

    /// How many partitions it has.
    pub(crate) fn partitions(&self) -> u32 {
        self.kept.lock().count
    }
}

impl Kept {
    fn partition_of(&self, counter: &CounterId) -> u32 {
        partition_of(&RowKey::first(counter), self.count)
    }

    /// Where reading goes on in a log that begins and ends so.
    fn goes_on(&mut self, partition: u32, start: Offset, end: Offset) -> Offset {
        let logged = self.partitions.entry(partition).or_default();
        logged.at = logged.at.max(Place::new(self.generation, Offset(0)));
        let at = logged.at.offset();
        if at < start || at > end {
            logged.torn = true;
            logged.at = Place::new(self.generation, if at < start { start } else { end });
        }
        logged.at.offset()
    }

    fn take(&mut self, partition: u32, records: &Records) -> anyhow::Result<()> {
        let Some(deployment) = &self.deployment else { return Ok(()) };
        let Some(logged) = self.partitions.get_mut(&partition) else { return Ok(()) };
        for record in records.iter() {
            let at = Place::new(self.generation, record.offset);
            if at < logged.at {
                continue;
            }
            let message = Message::read(record.value.unwrap_or_default(), deployment);
            let message =
                message.with_context(|| format!("partition {partition} of the log, offset {}", record.offset))?;
            logged.take(at, record.at, &message);
        }
        Ok(())
    }
}

impl Logged {
    fn take(&mut self, at: Place, appended: UnixMillis, message: &Message) {
        self.pass(at, appended);
        let Self { filter, ladder, items, gained, losses, .. } = self;
        let before = filter.loss();
        let taken = filter.take(at, appended, message, |item, loss| {
            let (counter, what) = match item {
                Item::Entry(entry) => {
                    *gained.entry(entry.key.clone()).or_default() += entry.gain();
                    (&entry.key.counter, What::Entry(entry.clone()))
                }
                Item::Correction(correction) => {
                    let right = |shard: &Shard| {
                        let key = RowKey { counter: correction.counter.clone(), shard: *shard };
                        (*shard, gained.get(&key).copied().unwrap_or_default())
                    };
                    let right = correction.parts.keys().map(right).collect();
                    (&correction.counter, What::Correction(correction.clone(), right))
                }
                Item::Ladder(raised) => {
                    ladder.learn(*raised);
                    return;
                }
            };
            items.entry(counter.clone()).or_default().push(Logs { at, loss, ladder: *ladder, what });
        });
        if filter.loss() > before {
            let stated = match &message.body {
                Body::Lost(lost) => Some(lost.number),
                Body::Sections { losses, .. } => losses.iter().max().copied(),
                _ => None,
            };
            losses.extend(taken.hole.or(stated).map(|number| (at, number)));
            self.before_loss = self.passed.front().map(|(_, position)| position.clone());
        }
        self.at = at.next();
    }

    /// Remembers the place now and then.
    fn pass(&mut self, at: Place, now: UnixMillis) {
        if self.passed.back().is_some_and(|(last, _)| now.since(*last) < APART) {
            return;
        }
        if self.passed.len() == REMEMBERED {
            self.passed.pop_front();
        }
        let position = Position { at, filter: self.filter.clone(), ladder: self.ladder, last: None };
        self.passed.push_back((now, position));
    }
}
