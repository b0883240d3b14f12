//! Reads the topic `changes` during the simulation without ever missing a message, as the reference for what processes
//! do: it knows the items of every counter, their positions, and the last loss announced before each.

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

/// The distance in time between remembered positions of a partition, and their number.
const APART: Duration = Duration::from_secs(5);
const REMEMBERED: usize = 5;

/// The log so far. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    reader: TopicReader,
    /// The number of partitions.
    pub(crate) partitions: u32,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    deployment: Option<DeploymentId>,
    generation: u16,
    partitions: BTreeMap<u32, LoggedPartition>,
}

/// One partition.
#[derive(Debug, Default)]
struct LoggedPartition {
    /// Everything before this position was read.
    at: Place,
    filter: Filter,
    ladder: Ladder,
    /// Part of it was lost, so that not every reader has read the same.
    torn: bool,
    items: BTreeMap<CounterId, Vec<LoggedItem>>,
    /// The sum of the accepted entries of each row key.
    gained: BTreeMap<RowKey, i64>,
    /// The losses, by the positions of their announcements.
    losses: BTreeMap<Place, LossNumber>,
    /// The last positions, and when they were reached.
    passed: VecDeque<(UnixMillis, Position)>,
    /// A position from before the last announcement of a loss.
    before_loss: Option<Position>,
}

/// An item for a counter.
#[derive(Clone, Debug)]
pub(crate) struct LoggedItem {
    pub(crate) at: Place,
    /// The last loss announced before it.
    pub(crate) loss: Option<Place>,
    /// The thresholds in force at its position.
    pub(crate) ladder: Ladder,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Entry(Entry),
    /// A correction, and the sum of the entries before it for each shard.
    Correction(Correction, BTreeMap<Shard, i64>),
}

impl LoggedItem {
    /// Its effect on the counter.
    pub(crate) fn change(&self) -> Change<'_> {
        match &self.what {
            What::Entry(entry) => Change::Entry(entry),
            What::Correction(correction, _) => Change::Correction(correction),
        }
    }

    /// For a correction, the sum of the entries before it for each shard.
    pub(crate) fn right(&self) -> Option<&BTreeMap<Shard, i64>> {
        match &self.what {
            What::Entry(_) => None,
            What::Correction(_, right) => Some(right),
        }
    }
}

impl Journal {
    /// Reads the empty log in `broker`, which has this many partitions.
    pub(crate) fn of(broker: &Broker, partitions: u32) -> Self {
        Self { reader: broker.reader("observer", CHANGES), partitions, kept: Arc::default() }
    }

    /// The partition that contains a counter's changes.
    pub(crate) fn partition_of(&self, counter: &CounterId) -> u32 {
        partition_of(&RowKey::first(counter), self.partitions)
    }

    /// Learns the deployment of the log once that is stored.
    pub(crate) async fn learn(&self, changes: &Changes) -> anyhow::Result<()> {
        if self.kept.lock().deployment.is_none()
            && let Some(config) = changes.config().await?
        {
            let mut kept = self.kept.lock();
            (kept.deployment, kept.generation) = (Some(config.deployment), config.generation);
        }
        Ok(())
    }

    /// Reads up to the current end of the log; does nothing while the broker is unavailable.
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

    /// The items of a counter between two positions of its partition, or `None` if the log was not read that far or part of it
    /// was lost.
    pub(crate) fn between(&self, counter: &CounterId, from: Place, to: Place) -> Option<Vec<LoggedItem>> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&self.partition_of(counter))?;
        if logged.torn || to > logged.at {
            return None;
        }
        let items = logged.items.get(counter).map_or(&[][..], Vec::as_slice);
        Some(items.iter().filter(|item| item.at >= from && item.at < to).cloned().collect())
    }

    /// Whether part of a counter's partition was lost.
    pub(crate) fn is_torn(&self, counter: &CounterId) -> bool {
        let kept = self.kept.lock();
        kept.partitions.get(&self.partition_of(counter)).is_some_and(|logged| logged.torn)
    }

    /// From now on, not every reader has read the same in this partition.
    pub(crate) fn tear(&self, partition: u32) {
        self.kept.lock().partitions.entry(partition).or_default().torn = true;
    }

    /// The position of a complete reader in a partition.
    pub(crate) fn end(&self, partition: u32) -> Option<Position> {
        let kept = self.kept.lock();
        let LoggedPartition { at, filter, ladder, .. } = kept.partitions.get(&partition)?;
        Some(Position { at: *at, filter: filter.clone(), ladder: *ladder, last: None })
    }

    /// Returns a position before the last announced loss of a partition, with a filter that wrongly has all losses. A
    /// mutant begins there, and so never learns of the loss.
    pub(crate) fn before_loss(&self, partition: u32) -> Option<Position> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&partition)?;
        let (mut position, loss) = (logged.before_loss.clone()?, logged.filter.loss()?);
        let losses = logged.filter.standing().open.into_iter().collect();
        let message = Message { read: UnixMillis(0), body: Body::Sections { sections: Vec::new(), losses } };
        position.filter.take(loss, UnixMillis(0), &message, |_, _| {});
        Some(position)
    }

    /// The greatest number of a loss announced in a partition up to a position.
    pub(crate) fn number(&self, partition: u32, up_to: Place) -> Option<LossNumber> {
        let kept = self.kept.lock();
        let logged = kept.partitions.get(&partition)?;
        logged.losses.range(..=up_to).map(|(_, number)| *number).max()
    }

    /// The number of the loss announced at a position in the partition of a counter.
    pub(crate) fn announced(&self, counter: &CounterId, at: Place) -> Option<LossNumber> {
        let kept = self.kept.lock();
        kept.partitions.get(&self.partition_of(counter))?.losses.get(&at).copied()
    }

    /// Whether a loss was announced in any partition.
    pub(crate) fn has_losses(&self) -> bool {
        self.kept.lock().partitions.values().any(|logged| !logged.losses.is_empty())
    }
}

impl Kept {
    /// Where reading continues in a log with this beginning and end.
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

impl LoggedPartition {
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
            items.entry(counter.clone()).or_default().push(LoggedItem { at, loss, ladder: *ladder, what });
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

    /// Remembers the position from time to time.
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
