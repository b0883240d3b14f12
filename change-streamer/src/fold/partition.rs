//! One partition of the log, from its assignment until it is taken back.

use std::sync::Arc;

use tally_core::cached::StandingAt;
use tally_core::changes::{BadMessage, LossNumber, Message, Place, Standing};
use tally_core::fold::{Flush, Mark, Partition, Position, Stated};
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::{Records, Revocation};
use tally_core::topic::Offset;
use tally_service::{Patience, Readiness, Stop, Stopped, Task, Until};
use tokio::time::Instant;

use super::Folding;
use super::cached::Cached;
use super::stated::resume;
use super::write::Known;
use crate::log::{configured, require_partitions};
use crate::metrics;
use crate::regions::Publisher;
use crate::relay::{HOLE, JUMP};

/// How much memory what is gathered may take before it is written.
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
    pub(super) index: u32,
    pub(super) partition: Partition,
    /// What is written to the counters, and what of that is stored.
    pub(super) written: Position,
    pub(super) standing: Standing,
    /// What is stated of the partition, as far as this fold knows.
    pub(super) stated: Stated,
    /// The place that is stored.
    pub(super) stored: Place,
    /// How much was written since.
    pub(super) since: usize,
    pub(super) standing_at: Instant,
    pub(super) position_at: Instant,
    /// When counters were written last.
    flushed_at: Option<Instant>,
}

/// Why a partition is left.
enum Left {
    /// It is taken back, or the process stops: what was read is written.
    Finish,
    /// Another member may have it already.
    Drop,
}

/// How a fold goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It reads on.
    Read,
    /// It begins again where the position is stored.
    Begin,
    /// The log of this generation has lost its end: it jumps.
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
        let cached = Cached::new(folding.cache.clone(), index);
        Self {
            cached,
            folding,
            log,
            patience,
            known: Known::default(),
            publisher: None,
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

    /// What may be said of the counters as they were written last.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
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
        let left = loop {
            let wake = due.unwrap_or(self.standing_at);
            let records = tokio::select! {
                biased;
                () = stop.requested() => break Left::Finish,
                revocation = &mut revoked => break match revocation {
                    Revocation::Revoked => Left::Finish,
                    Revocation::Lost => Left::Drop,
                },
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
                _ = &mut revoked => break Left::Drop,
                begun = self.begin(replaced, stop) => begun?,
            }
        };
        if matches!(left, Left::Finish) {
            self.flush("stop", true, stop).await?;
        }
        Ok(())
    }

    /// When what comes now is to be written. What came while the last changes were written has waited already: it is written a
    /// linger after that write began. In a quiet partition the linger begins now, since changes seldom come alone.
    fn due(&self, now: Instant) -> Instant {
        let linger = self.folding.rules.linger;
        match self.flushed_at {
            Some(at) if now < at + 2 * linger => now.max(at + linger),
            _ => now + linger,
        }
    }

    /// Finds where to go on, and starts to read there. `replaced` is the generation in which another message was found than was
    /// read there.
    async fn begin(&mut self, replaced: Option<u16>, stop: &Stop) -> anyhow::Result<()> {
        let (store, until) = (Arc::clone(&self.folding.store), Until::Requested(stop));
        self.begin_publishing(until).await?;
        // Before the log: another fold may go on meanwhile, to places that were not in the log when it was looked at.
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
        (self.stored, self.since) = (position.at, 0);
        self.written = position.clone();
        self.partition = Partition::new(position);
        if let Some(at) = jump {
            let now = self.patience.clock().now();
            let number = self.partition.jump(at, now);
            self.lost(number, JUMP, stop).await?;
            // Before anything is written behind the jump: the next fold must not take the places of before for those of now.
            let Flush { position, standing, .. } = self.partition.flush();
            (self.written, self.standing) = (position, standing);
            self.patience
                .persist("store a position", until, || store.store_position(self.index, &self.written))
                .await?;
            self.stored = self.written.at;
            while self.stated.standing.at < at && self.state(None, stop).await?.is_some() {}
        }
        self.stated.readings().for_each(|read| self.partition.look_for(read));
        // The message before the place is read, too: it has to be the one that was read there.
        let place = self.partition.place().offset();
        let from = Offset(place.0.saturating_sub(1)).max(log.start);
        self.patience.persist("read the log of changes", until, || self.log.start_at(from)).await
    }

    /// Takes records of the log. One that is no message of this deployment stops the partition: what it says is not known.
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
            // One that cannot be read is none that was read: the next fold begins before it, and stands still there, too.
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

    /// Waits until the partition is taken back, or the process stops.
    async fn stand_still(&self, stop: &Stop) -> Stopped {
        tokio::select! {
            () = stop.requested() => {}
            _ = self.log.revoked() => {}
        }
        self.readiness.forget(&self.index.to_string());
        Stopped
    }

    /// A loss that the log itself shows: it is stored before anything behind it is written. Safe to repeat: every reader of the
    /// log gives a hole the same number, and a jump that is stored twice is two losses, which one audit closes.
    async fn lost(&self, number: LossNumber, kind: &'static str, stop: &Stop) -> anyhow::Result<()> {
        let what = format!("{} at {}", self.log.partition(), self.partition.place());
        tracing::error!(kind, what, %number, "something is lost: nothing is called exact until a recount has passed");
        let (store, until) = (&self.folding.store, Until::LastCall(stop));
        let stands = self.patience.persist("store a loss", until, || store.open_loss(number, kind, &what)).await?;
        if (stands.kind.as_str(), stands.what.as_str()) != (kind, what.as_str()) {
            // Something else was lost at the same moment, and has the number. Relays have to hear of this one, too.
            let now = self.patience.clock().now();
            self.patience.persist("store a loss", until, || store.open_new_loss(now, kind, &what)).await?;
        }
        metrics::GAPS.counter(&[kind]).increment(1);
        Ok(())
    }

    /// Writes what was taken, and stores how far that is: what may be said of the counters each second, the whole position less
    /// often. Before it is known that the log is the one that the counters were written from, the fold only reads.
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
        self.publisher.iter_mut().for_each(|publisher| publisher.note(&values));
        if !flush.counters.is_empty() {
            let items = flush.counters.values().map(Vec::len).sum();
            metrics::flushed(cut, flush.counters.len(), items, began.elapsed());
        }
        self.log.finished(flush.position.at.offset());
        let stated = StandingAt { at: flush.position.at, standing: flush.standing };
        if stated.at > self.written.at {
            self.cached.tell(&values, &stated).await;
        }
        if stated.standing.loss != self.standing.loss {
            // A recount begins behind an announcement, where a position is stored.
            self.position_at = Instant::now();
        }
        (self.written, self.standing) = (flush.position, stated.standing);
        self.store(now, stop).await
    }
}

impl Task for PartitionFold {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        // At the last call what is under way is dropped: the next fold begins at the stored position, and what is in the counters
        // already changes nothing.
        stop.finish(Box::pin(self.follow(&stop))).await
    }
}
