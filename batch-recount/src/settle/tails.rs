//! Reads the tails of the log `changes` for a recount. The *tail* of a partition is what is behind the position that
//! its fold has stored. A recount reads it as the fold does, and so accepts the same entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::changes::{Entry, Filter, Item, LossNumber, Message, Place};
use tally_core::fault::Fault;
use tally_core::fold::{Mark, Position, ReadTo};
use tally_core::ids::RowKey;
use tally_core::ports::log::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Host;

use super::{Blocked, POLL, Recount};

/// The readiness condition of a process that waits for the log, and how often it looks.
const LOG: &str = "changes";
const CATCHING_UP: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// Tails of some partitions, which are read together.
pub(super) struct Tails<'a, T> {
    of: &'a Recount,
    tails: BTreeMap<u32, Tail>,
    /// What `take` has made of the entries that the tails accept.
    pub(super) taken: T,
    take: fn(&mut T, Place, &Entry),
}

/// The tail of one partition.
struct Tail {
    partition: Partition,
    /// Everything before this place was read.
    place: Place,
    /// What is known of the log before the place.
    filter: Filter,
    /// The last announcement of a loss before the tail began.
    loss: Option<Place>,
    /// Whether a part of the log is not there any more.
    torn: bool,
}

/// How far a tail is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Everything before this place was read.
    pub(super) place: Place,
    /// Every change that was in the table by this time was read; `None` while that is not known.
    pub(super) as_of: Option<UnixMillis>,
    /// Whether no loss was announced since the tail began, and no part of the log is gone. If not, the tail proves
    /// nothing.
    pub(super) is_whole: bool,
}

impl<'a, T: Send> Tails<'a, T> {
    /// Begins at the positions that the folds of these partitions have stored. Waits until these are behind the
    /// announcement of every open loss.
    ///
    /// # Errors
    /// The folds do not get there in time, or the log is in another topic by now.
    pub(super) async fn begin(
        of: &'a Recount,
        partitions: &BTreeSet<u32>,
        taken: T,
        take: fn(&mut T, Place, &Entry),
    ) -> anyhow::Result<Self> {
        let deadline = of.calls.after(of.rules.patience);
        loop {
            match of.tails(partitions).await {
                Err(behind) if behind.is::<Blocked>() && !of.calls.is_past(deadline) => {
                    of.require_same_log().await?;
                    tracing::debug!(%behind, "a recount waits");
                    of.calls.wait(5 * POLL).await?;
                }
                tails => return Ok(Self { of, tails: tails?, taken, take }),
            }
        }
    }

    /// Reads every tail up to where its log ends now.
    ///
    /// # Errors
    /// [`Blocked::Unreadable`] at a message that cannot be read.
    pub(super) async fn read_on(&mut self) -> anyhow::Result<()> {
        let (of, logs) = (self.of, self.of.logs().await?);
        for (index, tail) in &mut self.tails {
            let Some(log) = logs.get(index).filter(|log| tail.is_in(of, log)) else {
                tail.torn = true;
                continue;
            };
            while tail.place.offset() < log.end {
                let (partition, from) = (&tail.partition, tail.place.offset());
                let records = match of.ports.log.reader.read(partition, from, log.end).await {
                    Ok(records) if records.is_empty() => break,
                    Ok(records) => records,
                    Err(fault) => {
                        // The log may be another one by now.
                        of.calls.pause("read the log", fault).await?;
                        break;
                    }
                };
                for record in records.iter() {
                    let at = Place::new(tail.place.generation(), record.offset);
                    let message = Message::read(record.value.unwrap_or_default(), &of.config.deployment);
                    let unreadable =
                        |bad| Blocked::Unreadable { partition: partition.clone(), offset: record.offset, bad };
                    let message = message.map_err(unreadable)?;
                    tail.filter.take(at, record.at, &message, |item, _| {
                        if let Item::Entry(entry) = item {
                            (self.take)(&mut self.taken, at, entry);
                        }
                    });
                    tail.place = at.next();
                }
            }
        }
        Ok(())
    }

    /// Reads on until `is_there` holds, or patience ends. Returns whether it holds.
    pub(super) async fn follow(&mut self, is_there: impl Fn(&Self) -> bool + Send) -> anyhow::Result<bool> {
        let calls = &self.of.calls;
        let deadline = calls.after(self.of.rules.patience);
        while !is_there(self) {
            self.read_on().await?;
            match is_there(self) {
                false if calls.is_past(deadline) => return Ok(false),
                false => calls.wait(POLL).await?,
                true => {}
            }
        }
        Ok(true)
    }

    /// Returns how far the tail of a row key is.
    pub(super) fn reached(&self, key: &RowKey) -> Reached {
        self.tails[&self.of.partition(key)].reached()
    }

    /// Returns the last announcement of a loss before the tail of a row key began.
    pub(super) fn loss(&self, key: &RowKey) -> Option<Place> {
        self.tails[&self.of.partition(key)].loss
    }

    /// Returns the losses that are open in partitions, as far as the tails were read.
    pub(super) fn open(&self) -> BTreeMap<u32, BTreeSet<LossNumber>> {
        let open = self.tails.iter().map(|(index, tail)| (*index, tail.filter.standing().open));
        open.filter(|(_, open)| !open.is_empty()).collect()
    }

    /// Returns how far each tail is.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, Reached)> {
        self.tails.iter().map(|(index, tail)| (*index, tail.reached()))
    }
}

impl Tail {
    /// Returns whether the tail can go on in this log.
    fn is_in(&self, of: &Recount, log: &Log) -> bool {
        let holds = log.topic == of.config.topic && (log.start..=log.end).contains(&self.place.offset());
        // A partition that lost its end has gone on in a later generation than the topic's.
        !self.torn && self.place.generation() >= of.config.generation && holds
    }

    fn reached(&self) -> Reached {
        let is_whole = !self.torn && self.filter.loss() == self.loss;
        Reached { place: self.place, as_of: self.filter.standing().as_of, is_whole }
    }
}

impl Recount {
    /// Waits until a recount of everything could begin, and the log has all that is in the tables now. Until then
    /// `host` is not ready, and says what is missing.
    pub(crate) async fn caught_up(&self, host: &Host) -> anyhow::Result<()> {
        let until = self.calls.now().plus(self.rules.guard);
        let look = || async {
            match self.has_all_before(until).await {
                Err(behind) if behind.is::<Blocked>() => Err(Fault::Transient(behind.to_string())),
                // A fault that a call does not get over is no reason to wait.
                result => Ok(result),
            }
        };
        host.wait_for(LOG, CATCHING_UP, look).await?
    }

    /// Fails if a recount cannot begin, or the log does not have all changes of before `until`.
    async fn has_all_before(&self, until: UnixMillis) -> anyhow::Result<()> {
        // The log may be in another topic by now.
        let of = self.anew(self.rules).await?;
        let tails = of.tails(&(0..of.config.partitions).collect()).await?;
        let mut tails = Tails { of: &of, tails, taken: (), take: |(), _, _| () };
        tails.read_on().await?;
        let is_late = |reached: Reached| !reached.is_whole || reached.as_of < Some(until);
        match tails.tails.values().find(|tail| is_late(tail.reached())) {
            Some(tail) => {
                Err(Blocked::Still(format!("{} does not have all changes of before {until}", tail.partition)).into())
            }
            None => Ok(()),
        }
    }

    /// Begins the tails. Fails with [`Blocked`] while they cannot begin.
    async fn tails(&self, partitions: &BTreeSet<u32>) -> anyhow::Result<BTreeMap<u32, Tail>> {
        let behind = |why: String| Err(Blocked::Still(format!("a recount cannot begin: {why}")).into());
        let (open, logs, changes) = (self.open_losses().await?, self.logs().await?, &self.ports.changes);
        let mut tails = BTreeMap::new();
        for index in partitions {
            let position = self.calls.read("read a position", 1, || changes.position(*index)).await?;
            let at = Place::new(self.config.generation, Offset(0));
            let position = position.unwrap_or_else(|| Position { at, ..Position::default() });
            let (last, Position { at: place, filter, .. }) = (position.read_to(), position);
            let partition = Partition { topic: self.ports.log.topic.as_str().into(), index: *index };
            if let Some(loss) = open.iter().find(|loss| !filter.knows(**loss)) {
                return behind(format!("the fold of {partition} has not read the announcement of loss {loss}"));
            }
            if filter.loss().is_some() && filter.standing().as_of.is_none() {
                // Unread records of an ended stream shard may still come, behind later entries of its children.
                return behind(format!("the fold of {partition} does not know all stream shards"));
            }
            let tail = Tail { partition, place, loss: filter.loss(), filter, torn: false };
            let log = logs.get(index).filter(|log| tail.is_in(self, log));
            let is_there = match log {
                Some(log) => self.finds(&tail.partition, last, log).await?,
                None => false,
            };
            if !is_there {
                return behind(format!("the fold of {} is at {place}, which is not in the log", tail.partition));
            }
            tails.insert(*index, tail);
        }
        Ok(tails)
    }

    /// Returns whether the message that a fold read last is still in its place. A message that Kafka has deleted since
    /// counts as being there.
    async fn finds(&self, partition: &Partition, read: Option<ReadTo>, log: &Log) -> anyhow::Result<bool> {
        let Some(ReadTo { at, last }) = read.filter(|read| log.start < read.at.offset()) else { return Ok(true) };
        let from = Offset(at.offset().0 - 1);
        let records = match self.ports.log.reader.read(partition, from, at.offset()).await {
            Ok(records) => records,
            Err(fault) => {
                // The log may have lost its end since it was looked at. Then this read never has an answer.
                self.calls.pause("read the log", fault).await?;
                return Ok(false);
            }
        };
        let mark = |record: Record<'_>| Mark::of(record.at, record.value.unwrap_or_default());
        Ok(records.iter().next().is_some_and(|record| record.offset == from && mark(record) == last))
    }

    /// Returns the logs of the partitions as they are now.
    async fn logs(&self) -> anyhow::Result<BTreeMap<u32, Log>> {
        let logs = self.calls.persist("look at the log", || self.ports.log.reader.logs()).await?;
        Ok(logs.into_iter().map(|(partition, log)| (partition.index, log)).collect())
    }
}
