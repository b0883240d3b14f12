//! One partition of the log, from its assignment until it is taken back.

use std::sync::Arc;

use tally_core::cached::StandingAt;
use tally_core::changes::{BadMessage, LossNumber, Message, Place, Standing};
use tally_core::fence::{Log, Offset};
use tally_core::fold::{Flush, Partition, Position};
use tally_core::ports::OwnedPartition;
use tally_core::ports::log::{Records, Revocation};
use tally_service::{Patience, Readiness, Stop, Stopped, Task, Until};
use tokio::time::Instant;

use super::Folding;
use super::cached::Cached;
use super::known::Known;
use crate::log::{configured, require_partitions};
use crate::metrics;
use crate::relay::{HOLE, JUMP};

pub(super) struct PartitionFold {
    pub(super) folding: Arc<Folding>,
    pub(super) log: Arc<dyn OwnedPartition>,
    pub(super) patience: Patience,
    pub(super) known: Known,
    readiness: Readiness,
    cached: Cached,
    index: u32,
    partition: Partition,
    /// What is written to the counters, and what of that is stored.
    written: Position,
    standing: Standing,
    stored: (Place, Place),
    standing_at: Instant,
    position_at: Instant,
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
            readiness: readiness.scope("changes"),
            index,
            partition: Partition::default(),
            written: Position::default(),
            standing: Standing::default(),
            stored: (Place::default(), Place::default()),
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
        let rules = self.folding.rules;
        tokio::select! {
            biased;
            _ = &mut revoked => return Ok(()),
            begun = self.begin(stop) => begun?,
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
                records = log.records(), if self.partition.bytes() < rules.bytes => Some(records),
                () = tokio::time::sleep_until(wake) => None,
            };
            let mut again = false;
            match records {
                Some(Ok(records)) => self.take(&records, stop).await?,
                Some(Err(fault)) => {
                    let mut tries = 0;
                    self.patience.pause("read the log of changes", fault, &mut tries, Until::Requested(stop)).await?;
                    again = true;
                }
                None => {}
            }
            let now = Instant::now();
            if !self.partition.is_empty() {
                due.get_or_insert(self.due(now));
            }
            let is_full = self.partition.bytes() >= rules.bytes;
            if is_full || due.is_some_and(|due| now >= due) || now >= self.standing_at {
                due = None;
                self.flush(if is_full { "size" } else { "age" }, stop).await?;
                again |= self.store(false, stop).await?;
            }
            if again {
                tokio::select! {
                    biased;
                    _ = &mut revoked => break Left::Drop,
                    begun = self.begin(stop) => begun?,
                }
            }
        };
        if matches!(left, Left::Finish) {
            self.flush("stop", stop).await?;
            self.store(true, stop).await?;
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

    /// Finds where to go on, and starts to read there.
    async fn begin(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let (store, until) = (Arc::clone(&self.folding.store), Until::Requested(stop));
        // Before the log: another fold may go on meanwhile, to places that were not in the log when it was looked at.
        let standing = self.patience.persist("read a standing", until, || store.standing(self.index)).await?;
        let position = self.patience.persist("read a position", until, || store.position(self.index)).await?;
        let log = self.patience.persist("look at the log of changes", until, || self.log.log()).await?;
        let config = self
            .patience
            .persist("read the configuration", until, || configured(&self.folding.store, &log.topic))
            .await?;
        let partitions = self.patience.persist("look at the log of changes", until, || self.log.partitions()).await?;
        require_partitions(&config, partitions)?;
        let (position, jump) = resume(position, standing.map(|stated| stated.at), config.generation, &log);
        self.stored = (position.at, position.at);
        self.written = position.clone();
        self.partition = Partition::new(position);
        if let Some(at) = jump {
            let now = self.patience.clock().now();
            let number = self.partition.jump(at, now);
            self.lost(number, JUMP, stop).await?;
            // Before anything is written behind the jump: the next fold must not take the places of before for those of now.
            let Flush { position, standing, .. } = self.partition.flush();
            let stated = StandingAt { at: position.at, standing };
            self.patience.persist("store a position", until, || store.store_position(self.index, &position)).await?;
            self.patience.persist("store a standing", until, || store.store_standing(self.index, &stated)).await?;
            (self.stored, self.written, self.standing) = ((position.at, position.at), position, stated.standing);
        }
        let offset = self.partition.place().offset();
        self.patience.persist("read the log of changes", until, || self.log.start_at(offset)).await
    }

    /// Takes records of the log. One that is no message of this deployment stops the partition: what it says is not known.
    async fn take(&mut self, records: &Records, stop: &Stop) -> anyhow::Result<()> {
        for record in records.iter() {
            let at = Place::new(self.partition.place().generation(), record.offset);
            if at < self.partition.place() {
                continue;
            }
            let read = record.value.ok_or_else(|| BadMessage::Malformed("it has no value".to_owned()));
            let message = match read.and_then(|value| Message::read(value, &self.folding.deployment)) {
                Ok(message) => message,
                Err(bad) => {
                    let (partition, offset) = (self.log.partition(), record.offset);
                    tracing::error!(%partition, %offset, %bad, "the partition stops at a message that cannot be read");
                    let why = format!("the fold of {partition} stands still at offset {offset}: {bad}");
                    self.readiness.not_ready(&self.index.to_string(), why);
                    self.flush("stop", stop).await?;
                    self.store(true, stop).await?;
                    return Ok(self.stand_still(stop).await?);
                }
            };
            let taken = self.partition.take(at, record.at, &message);
            if taken.stale {
                tracing::warn!(partition = %self.log.partition(), offset = %record.offset, "a message came half a day late, and is passed over");
            }
            if let Some(number) = taken.hole {
                self.lost(number, HOLE, stop).await?;
            }
        }
        Ok(())
    }

    /// Waits until the partition is taken back, or the process stops.
    async fn stand_still(&self, stop: &Stop) -> Result<(), Stopped> {
        tokio::select! {
            () = stop.requested() => {}
            _ = self.log.revoked() => {}
        }
        self.readiness.forget(&self.index.to_string());
        Err(Stopped)
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
        metrics::lost(kind);
        Ok(())
    }

    /// Writes what was taken.
    async fn flush(&mut self, cut: &'static str, stop: &Stop) -> anyhow::Result<()> {
        let (flush, began) = (self.partition.flush(), Instant::now());
        if !flush.counters.is_empty() {
            self.flushed_at = Some(began);
        }
        let values = self.write(&flush, stop).await?;
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
        Ok(())
    }

    /// Stores what is written: what may be said of the counters each second, the whole position less often. Whether another
    /// fold has found meanwhile that the log lost its end: then what this one stores is refused until it goes on from there.
    async fn store(&mut self, now: bool, stop: &Stop) -> anyhow::Result<bool> {
        let (store, rules, until) = (&self.folding.store, self.folding.rules, Until::LastCall(stop));
        let (place, clock) = (self.written.at, Instant::now());
        if now || clock >= self.standing_at {
            self.standing_at = clock + rules.standing;
            if self.stored.0 < place {
                let standing = StandingAt { at: place, standing: self.standing.clone() };
                let put = || store.store_standing(self.index, &standing);
                let is_stored = self.patience.persist("store a standing", until, put).await?;
                self.stored.0 = place;
                if !is_stored {
                    let read = || store.standing(self.index);
                    let stands = self.patience.persist("read a standing", until, read).await?;
                    if stands.is_some_and(|stands| stands.at.generation() > place.generation()) {
                        return Ok(true);
                    }
                }
            }
        }
        if now || clock >= self.position_at {
            self.position_at = clock + rules.position;
            if self.stored.1 < place {
                let put = || store.store_position(self.index, &self.written);
                self.patience.persist("store a position", until, put).await?;
                self.stored.1 = place;
            }
        }
        Ok(false)
    }
}

/// Where to go on from a stored position in the log as it is, and where to jump to if the position is not in it, or the place
/// that the counters have reached since.
fn resume(position: Option<Position>, reached: Option<Place>, generation: u16, log: &Log) -> (Position, Option<Place>) {
    let start = Place::new(generation, log.start);
    let Some(position) = position else {
        let new = Position::default();
        return (Position { at: start, ..new }, (log.start > Offset(0)).then_some(start));
    };
    let stored = position.at;
    let reached = reached.filter(|reached| reached.generation() == stored.generation()).max(Some(stored));
    if stored.generation() < generation {
        // Another topic: nothing of the one before is in it.
        (position, Some(start))
    } else if stored.offset() < log.start {
        (position, Some(Place::new(stored.generation(), log.start)))
    } else if reached.is_some_and(|reached| reached.offset() > log.end) {
        // The log lost its end. What is written now would stand before what is in the counters.
        (position, Some(Place::new(stored.generation() + 1, log.end)))
    } else {
        (position, None)
    }
}

impl Task for PartitionFold {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        // At the last call what is under way is dropped: the next fold begins at the stored position, and what is in the counters
        // already changes nothing.
        match stop.until_last_call(Box::pin(self.follow(&stop))).await.unwrap_or_else(|stopped| Err(stopped.into())) {
            Err(error) if error.is::<Stopped>() => Ok(()),
            ended => ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::fence::TopicId;

    #[test]
    fn a_position_that_is_not_in_the_log_is_a_jump() {
        let log = Log { topic: TopicId("t".into()), start: Offset(5), end: Offset(9) };
        let at = |generation, offset| Place::new(generation, Offset(offset));
        let position = |place| Some(Position { at: place, ..Position::default() });
        let resumed = |position: Option<Position>| {
            let (position, jump) = resume(position, Some(at(1, 9)), 1, &log);
            (position.at, jump)
        };
        assert_eq!(resumed(None), (at(1, 5), Some(at(1, 5))), "what was before the start is not known");
        assert_eq!(resumed(position(at(1, 7))), (at(1, 7), None));
        assert_eq!(resumed(position(at(1, 3))), (at(1, 3), Some(at(1, 5))), "retention");
        assert_eq!(resumed(position(at(1, 12))), (at(1, 12), Some(at(2, 9))), "an unclean election");
        assert_eq!(resumed(position(at(0, 7))), (at(0, 7), Some(at(1, 5))), "another topic");
        let (_, jump) = resume(position(at(1, 7)), Some(at(1, 10)), 1, &log);
        assert_eq!(jump, Some(at(2, 9)), "counters have what the log lost");
    }
}
