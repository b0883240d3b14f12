//! Tails of the log: what a fold of a partition accepts behind a position that it has stored.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context as _;
use tally_core::backoff::Backoff;
use tally_core::changes::{DeploymentId, Entry, Filter, Item, Message, Place};
use tally_core::fault::Fault;
use tally_core::fold::{Mark, Position, ReadTo};
use tally_core::ports::log::{Record, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Host;

use super::{Behind, POLL, Recount};

/// What a process waits for that found itself behind, by the name that its readiness shows, and how often it looks.
const LOG: &str = "changes";
const CATCHING_UP: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// Tails of some partitions, which are read together.
pub(super) struct Tails<'a> {
    of: &'a Recount,
    tails: BTreeMap<u32, Tail>,
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
    /// A part of the log is not there any more.
    torn: bool,
}

/// How far a tail is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    /// Everything before this place was read.
    pub(super) place: Place,
    /// Every change that was in the table by then was read; `None` while that is not known.
    pub(super) as_of: Option<UnixMillis>,
    /// No loss was announced since the tail began. Otherwise nothing is known of what it has.
    pub(super) is_whole: bool,
}

impl<'a> Tails<'a> {
    /// Begins where the folds of these partitions are stored, as soon as that is behind the announcement of every loss that is
    /// open.
    ///
    /// # Errors
    /// The folds do not get there in time, or the log is in another topic by now.
    pub(super) async fn begin(of: &'a Recount, partitions: &BTreeSet<u32>) -> anyhow::Result<Self> {
        let deadline = of.calls.clock().reading().at + of.rules.patience;
        loop {
            match Self::begun(of, partitions).await? {
                Ok(tails) => return Ok(Self { of, tails }),
                Err(reason) if of.calls.clock().reading().at >= deadline => {
                    return Err(Behind(format!("a recount cannot begin: {reason}")).into());
                }
                Err(reason) => {
                    of.require_same_log().await?;
                    tracing::debug!(reason, "a recount waits");
                    of.calls.wait(5 * POLL).await?;
                }
            }
        }
    }

    /// The tails, or why they cannot begin yet.
    async fn begun(of: &Recount, partitions: &BTreeSet<u32>) -> anyhow::Result<Result<BTreeMap<u32, Tail>, String>> {
        let changes = &of.ports.changes;
        let losses = of.calls.persist("read losses", || changes.losses()).await?;
        let logs = of.logs().await?;
        let mut tails = BTreeMap::new();
        for index in partitions {
            let position = of.calls.persist("read a position", || changes.position(*index)).await?;
            of.calls.read_items(1);
            let at = Place::new(of.config.generation, Offset(0));
            let position = position.unwrap_or_else(|| Position { at, ..Position::default() });
            let (last, Position { at: place, filter, .. }) = (position.read_to(), position);
            let partition = Partition { topic: of.ports.log.topic.as_str().into(), index: *index };
            if let Some((loss, _)) = losses.open().find(|(loss, _)| !filter.knows(*loss)) {
                return Ok(Err(format!("the fold of {partition} has not read the announcement of loss {loss}")));
            }
            if filter.loss().is_some() && filter.standing().as_of.is_none() {
                // What an ended stream shard had unread may still come, behind later entries of the same rows in its children.
                return Ok(Err(format!("the fold of {partition} does not know all stream shards")));
            }
            let tail = Tail { partition, place, loss: filter.loss(), filter, torn: false };
            let log = logs.get(index).filter(|log| tail.is_in(of, Some(log)));
            let is_there = match log {
                Some(log) => of.finds(&tail.partition, last, log).await?,
                None => false,
            };
            if !is_there {
                return Ok(Err(format!("the fold of {} is at {place}, which is not in the log", tail.partition)));
            }
            tails.insert(*index, tail);
        }
        Ok(Ok(tails))
    }

    /// Reads every tail up to where its log ends now; `each` is given what is accepted.
    ///
    /// # Errors
    /// A message that cannot be read.
    pub(super) async fn read_on(&mut self, each: &mut (dyn FnMut(Place, &Entry) + Send)) -> anyhow::Result<()> {
        let (of, logs) = (self.of, self.of.logs().await?);
        for (index, tail) in &mut self.tails {
            let Some(log) = logs.get(index).filter(|log| tail.is_in(of, Some(log))) else {
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
                        of.calls.pause("read the log", fault, &mut 0).await?;
                        break;
                    }
                };
                tail.take(&of.config.deployment, &records, each)?;
            }
        }
        Ok(())
    }

    /// How far the tail of a partition is.
    pub(super) fn reached(&self, partition: u32) -> Option<Reached> {
        self.tails.get(&partition).map(Tail::reached)
    }

    /// The last announcement of a loss before the tail of a partition began.
    pub(super) fn loss(&self, partition: u32) -> Option<Place> {
        self.tails.get(&partition)?.loss
    }

    /// How far each tail is.
    pub(super) fn each(&self) -> impl Iterator<Item = (u32, Reached)> {
        self.tails.iter().map(|(index, tail)| (*index, tail.reached()))
    }
}

impl Tail {
    /// Whether the tail goes on in this log.
    fn is_in(&self, of: &Recount, log: Option<&Log>) -> bool {
        let (place, config) = (self.place, &of.config);
        let holds = |log: &Log| log.topic == config.topic && (log.start..=log.end).contains(&place.offset());
        // A partition that lost its end has gone on in a later generation than the topic's.
        !self.torn && place.generation() >= config.generation && log.is_some_and(holds)
    }

    fn reached(&self) -> Reached {
        let is_whole = !self.torn && self.filter.loss() == self.loss;
        Reached { place: self.place, as_of: self.filter.standing().as_of, is_whole }
    }

    fn take(
        &mut self,
        of: &DeploymentId,
        records: &Records,
        each: &mut dyn FnMut(Place, &Entry),
    ) -> anyhow::Result<()> {
        for record in records.iter() {
            let at = Place::new(self.place.generation(), record.offset);
            let message = Message::read(record.value.unwrap_or_default(), of);
            let message = message.with_context(|| format!("{}, offset {}", self.partition, record.offset))?;
            self.filter.take(at, record.at, &message, |item, _| {
                if let Item::Entry(entry) = item {
                    each(at, entry);
                }
            });
            self.place = at.next();
        }
        Ok(())
    }
}

impl Recount {
    /// Waits until a recount of everything could begin, and the log has all that is in the tables now. Until then `host` is not
    /// ready, and says what is waited for.
    pub(crate) async fn caught_up(&self, host: &Host) -> anyhow::Result<()> {
        let until = self.calls.now().plus(self.rules.guard);
        let look = || async {
            match self.missing(until).await {
                Ok(Some(missing)) => Err(Fault::Transient(missing)),
                Ok(None) => Ok(Ok(())),
                // What a call does not get over is no reason to wait.
                Err(error) => Ok(Err(error)),
            }
        };
        host.wait_for(LOG, CATCHING_UP, look).await?
    }

    /// Whether the message that a fold read last is the one that stands there. One that was deleted since is taken for it.
    async fn finds(&self, partition: &Partition, read: Option<ReadTo>, log: &Log) -> anyhow::Result<bool> {
        let Some(ReadTo { at, last }) = read.filter(|read| log.start < read.at.offset()) else { return Ok(true) };
        let (from, reader) = (Offset(at.offset().0 - 1), &self.ports.log.reader);
        let records = self.calls.persist("read the log", || reader.read(partition, from, at.offset())).await?;
        let mark = |record: Record<'_>| Mark::of(record.at, record.value.unwrap_or_default());
        Ok(records.iter().next().is_some_and(|record| record.offset == from && mark(record) == last))
    }

    /// Why a recount cannot begin, or up to when the log has the changes; `None` if it has all of before `until`.
    async fn missing(&self, until: UnixMillis) -> anyhow::Result<Option<String>> {
        // The log may be in another topic by now.
        let of = self.anew(self.rules).await?;
        let mut tails = match Tails::begun(&of, &(0..of.config.partitions).collect()).await? {
            Ok(tails) => Tails { of: &of, tails },
            Err(reason) => return Ok(Some(reason)),
        };
        tails.read_on(&mut |_, _| {}).await?;
        let late = tails.tails.values().find(|tail| {
            let reached = tail.reached();
            !reached.is_whole || reached.as_of < Some(until)
        });
        Ok(late.map(|tail| format!("{} does not have all changes of before {until}", tail.partition)))
    }

    /// The logs of the partitions as they are now.
    async fn logs(&self) -> anyhow::Result<BTreeMap<u32, Log>> {
        let logs = self.calls.persist("look at the log", || self.ports.log.reader.logs()).await?;
        Ok(logs.into_iter().map(|(partition, log)| (partition.index, log)).collect())
    }
}
