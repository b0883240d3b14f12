//! Folds one partition of the log `changes` into the counters, from its assignment until the group takes it back: reads
//! messages, gathers their changes by counter, and writes these once they have waited for `--linger` or are enough.

use std::sync::Arc;

use tally_core::cached::StandingAt;
use tally_core::changes::{BadMessage, LossNumber, Message, Place, Standing};
use tally_core::fold::{Flush, Mark, Partition, Position, Stated};
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::{Records, Revocation};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::{Patience, Readiness, Stop, Stopped, Task, Until};
use tokio::time::Instant;

use super::stated::resume;
use super::write::Known;
use super::{Cached, Folding};
use crate::log::{configured, require_partitions};
use crate::metrics;
use crate::regions::Publisher;
use crate::relay::{HOLE, JUMP};

/// How many bytes of gathered changes are written without waiting for the linger to end.
pub(super) const BYTES: usize = 16 << 20;

pub(super) struct PartitionFold {
    pub(super) folding: Arc<Folding>,
    pub(super) log: Arc<dyn OwnedPartition>,
    pub(super) patience: Patience,
    pub(super) known: Known,
    pub(super) readiness: Readiness,
    cached: Cached,
    /// What is published for other Regions, where this one has a name.
    pub(super) publisher: Option<Publisher>,
    /// Since when the counters are in another table than before, if a read has found that.
    pub(super) adopted: Option<UnixMillis>,
    pub(super) index: u32,
    pub(super) partition: Partition,
    /// Everything before this position is in the counters.
    pub(super) written: Position,
    pub(super) standing: Standing,
    /// The last statement about the partition that this fold knows of: what folds have read, and the standing.
    pub(super) stated: Stated,
    /// The place of the stored position.
    pub(super) stored: Place,
    /// How many bytes of changes were written since that was stored.
    pub(super) since: usize,
    pub(super) standing_at: Instant,
    pub(super) position_at: Instant,
    /// When counters were written last.
    flushed_at: Option<Instant>,
}

/// How a fold goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It reads on.
    Read,
    /// It begins again at the stored position.
    Begin,
    /// The log lost its end in this generation: it begins again, and jumps to the next generation.
    Jump(u16),
}

impl PartitionFold {
    pub(super) fn new(
        folding: Arc<Folding>,
        log: Arc<dyn OwnedPartition>,
        patience: Patience,
        readiness: &Readiness,
    ) -> Self {
        let (index, now) = (log.partition().index, Instant::now());
        let cached = Cached::new(folding.cache.clone(), folding.deployment.clone(), index);
        Self {
            cached,
            folding,
            log,
            patience,
            known: Known::default(),
            publisher: None,
            adopted: None,
            readiness: readiness.scope("changes"),
            index,
            partition: Partition::default(),
            written: Position::default(),
            standing: Standing::default(),
            stated: Stated::default(),
            stored: Place::default(),
            since: 0,
            standing_at: now,
            position_at: now,
            flushed_at: None,
        }
    }

    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let log = Arc::clone(&self.log);
        let revoked = log.revoked();
        tokio::pin!(revoked);
        tokio::select! {
            biased;
            _ = &mut revoked => return Ok(()),
            begun = self.begin(None, stop) => begun?,
        }
        let mut due: Option<Instant> = None;
        // Whether to write what was read. If not, another member may have the partition already.
        let is_finished = loop {
            let wake = due.unwrap_or(self.standing_at);
            let records = tokio::select! {
                biased;
                () = stop.requested() => break true,
                revocation = &mut revoked => break revocation == Revocation::Revoked,
                records = log.records(), if self.partition.bytes() < BYTES || !self.partition.is_sure() => Some(records),
                () = tokio::time::sleep_until(wake), if self.partition.is_sure() => None,
            };
            let mut next = match records {
                Some(Ok(records)) => self.take(&records, stop).await?,
                Some(Err(fault)) => {
                    let mut tries = 0;
                    self.patience.pause("read the log of changes", fault, &mut tries, Until::Requested(stop)).await?;
                    Next::Begin
                }
                None => Next::Read,
            };
            let now = Instant::now();
            if !self.partition.is_empty() {
                due.get_or_insert(self.due(now));
            }
            let is_full = self.partition.bytes() >= BYTES;
            let is_due = is_full || due.is_some_and(|due| now >= due) || now >= self.standing_at;
            if is_due && next == Next::Read && self.partition.is_sure() {
                due = None;
                next = self.flush(if is_full { "size" } else { "age" }, false, stop).await?;
            }
            let replaced = match next {
                Next::Read => continue,
                Next::Begin => None,
                Next::Jump(generation) => Some(generation),
            };
            due = None;
            tokio::select! {
                biased;
                _ = &mut revoked => break false,
                begun = self.begin(replaced, stop) => begun?,
            }
        };
        if is_finished {
            self.flush("stop", true, stop).await?;
        }
        Ok(())
    }

    /// Returns when the changes read now are to be written. Some came during the last write and have waited already:
    /// they are written a linger after it began. Otherwise the linger begins now, since changes seldom come alone.
    fn due(&self, now: Instant) -> Instant {
        let linger = self.folding.rules.linger;
        match self.flushed_at {
            Some(at) if now < at + 2 * linger => now.max(at + linger),
            _ => now + linger,
        }
    }

    /// Finds the position to go on from, stores a loss if the log does not have it, and starts to read there.
    /// `replaced` is the generation in which this fold found another message than the one that was read before.
    async fn begin(&mut self, replaced: Option<u16>, stop: &Stop) -> anyhow::Result<()> {
        let (store, until) = (Arc::clone(&self.folding.store), Until::Requested(stop));
        self.begin_publishing(until).await?;
        // Read before the log: another fold may go on meanwhile, to places that the log did not have when it was read.
        let stated = self.patience.persist("read a standing", until, || store.stated(self.index)).await?;
        let position = self.patience.persist("read a position", until, || store.position(self.index)).await?;
        let log = self.patience.persist("look at the log of changes", until, || self.log.log()).await?;
        let config = self
            .patience
            .persist("read the configuration", until, || configured(&self.folding.store, &log.topic))
            .await?;
        let partitions = self.patience.persist("look at the log of changes", until, || self.log.partitions()).await?;
        require_partitions(&config, partitions)?;
        self.stated = stated.unwrap_or_default();
        let reached = self.stated.readings().map(|read| read.at).chain([self.stated.standing.at]).max();
        let (position, jump) = resume(position, reached, config.generation, replaced, &log);
        if jump.is_some() || position.at > self.written.at {
            // Others may have written changes that this fold has not told the cache.
            self.cached.forget();
        }
        (self.stored, self.since) = (position.at, 0);
        self.written = position.clone();
        self.partition = Partition::new(position);
        if let Some(at) = jump {
            let now = self.patience.clock().now();
            let number = self.partition.jump(at, now);
            self.lost(number, JUMP, stop).await?;
            // Stored before anything behind the jump is written: the next fold must not take earlier places for later
            // ones.
            let Flush { position, standing, .. } = self.partition.flush();
            (self.written, self.standing) = (position, standing);
            self.patience
                .persist("store a position", until, || store.store_position(self.index, &self.written))
                .await?;
            self.stored = self.written.at;
            while self.stated.standing.at < at && self.state(None, stop).await?.is_some() {}
        }
        self.stated.readings().for_each(|read| self.partition.look_for(read));
        // Reading begins one message earlier: it has to be the message that was read there before.
        let place = self.partition.place().offset();
        let from = Offset(place.0.saturating_sub(1)).max(log.start);
        self.patience.persist("read the log of changes", until, || self.log.start_at(from)).await
    }

    /// Takes records. One that is no message of this deployment stops the partition: its changes are unknown.
    async fn take(&mut self, records: &Records, stop: &Stop) -> anyhow::Result<Next> {
        for record in records.iter() {
            let at = Place::new(self.partition.place().generation(), record.offset);
            let mark = Mark::of(record.at, record.value.unwrap_or_default());
            if at < self.partition.place() {
                match self.partition.recognise(at, mark) {
                    Ok(()) => continue,
                    Err(replaced) => return Ok(self.replaced(replaced)),
                }
            }
            let read = record.value.ok_or_else(|| BadMessage::Malformed("it has no value".to_owned()));
            let message = match read.and_then(|value| Message::read(value, &self.folding.deployment)) {
                Ok(message) => message,
                Err(bad) => {
                    let (partition, offset) = (self.log.partition(), record.offset);
                    tracing::error!(%partition, %offset, %bad, "the partition stops at a message that cannot be read");
                    let why = format!("the fold of {partition} stands still at offset {offset}: {bad}");
                    self.readiness.not_ready(&self.index.to_string(), why);
                    self.flush("stop", true, stop).await?;
                    return Err(self.stand_still(stop).await.into());
                }
            };
            // A message that cannot be read does not count as read: the next fold begins before it, and stops, too.
            if let Err(replaced) = self.partition.recognise(at, mark) {
                return Ok(self.replaced(replaced));
            }
            let taken = self.partition.take(at, record.at, &message);
            if taken.stale {
                tracing::warn!(partition = %self.log.partition(), offset = %record.offset, "a message came half a day late, and is passed over");
            }
            if let Some(number) = taken.hole {
                self.lost(number, HOLE, stop).await?;
            }
        }
        Ok(Next::Read)
    }

    /// Waits until the group takes the partition back, or the process stops.
    async fn stand_still(&self, stop: &Stop) -> Stopped {
        tokio::select! {
            () = stop.requested() => {}
            _ = self.log.revoked() => {}
        }
        self.readiness.forget(&self.index.to_string());
        Stopped
    }

    /// Stores a loss that the log itself shows, before anything behind it is written. Safe to repeat: every reader of
    /// the log gives a hole the same number, and a jump that is stored twice is two losses, which one audit closes.
    async fn lost(&self, number: LossNumber, kind: &'static str, stop: &Stop) -> anyhow::Result<()> {
        let what = format!("{} at {}", self.log.partition(), self.partition.place());
        tracing::error!(kind, what, %number, "something is lost: nothing is called exact until a recount has passed");
        let (store, until) = (&self.folding.store, Until::LastCall(stop));
        let stands = self.patience.persist("store a loss", until, || store.open_loss(number, kind, &what)).await?;
        if (stands.kind.as_str(), stands.what.as_str()) != (kind, what.as_str()) {
            // Another loss of the same moment has the number. Relays have to hear of this one, too.
            let now = self.patience.clock().now();
            self.patience.persist("store a loss", until, || store.open_new_loss(now, kind, &what)).await?;
        }
        metrics::GAPS.counter(&[kind]).increment(1);
        Ok(())
    }

    /// Writes what was gathered to the counters and the cache, then stores how far that is. Does nothing until it is
    /// known that the log is the one that the counters were written from. Returns how to go on.
    async fn flush(&mut self, cut: &'static str, now: bool, stop: &Stop) -> anyhow::Result<Next> {
        if !self.partition.is_sure() {
            return Ok(Next::Read);
        }
        if !self.partition.is_empty()
            && let Some(next) = self.state_surely(self.partition.read_to(), stop).await?
        {
            return Ok(next);
        }
        self.since += self.partition.bytes();
        let (flush, began) = (self.partition.flush(), Instant::now());
        if !flush.counters.is_empty() {
            self.flushed_at = Some(began);
        }
        let values = self.write(&flush, stop).await?;
        self.publisher.iter_mut().for_each(|publisher| publisher.note(&values, self.adopted));
        if !flush.counters.is_empty() {
            let items = flush.counters.values().map(Vec::len).sum();
            metrics::flushed(cut, flush.counters.len(), items, began.elapsed());
        }
        self.log.finished(flush.position.at.offset());
        let stated = StandingAt { at: flush.position.at, standing: flush.standing };
        if stated.at > self.written.at {
            self.cached.tell(values, &stated).await;
        }
        if stated.standing.loss != self.standing.loss {
            // A recount begins at a stored position that is behind the announcement, so one is stored at once.
            self.position_at = Instant::now();
        }
        (self.written, self.standing) = (flush.position, stated.standing);
        self.store(now, stop).await
    }
}

impl Task for PartitionFold {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        // At the last call this drops what is under way. The next fold begins at the stored position, and what is in
        // the counters already changes nothing.
        stop.finish(Box::pin(self.follow(&stop))).await
    }
}
