//! Folds what the reader of one stream shard passes on, has it written prefix by prefix, and moves the checkpoint
//! behind what is answered.

use std::sync::Arc;
use std::time::Duration;

use tally_core::lineage::Checkpoint;
use tally_core::ports::Checkpoints;
use tally_core::recount::{CaptureLimits, Captures, Report};
use tally_core::tally::{Cut, CutRules, Fold, Record, RecordKind};
use tally_core::time::UnixMillis;
use tally_service::{Patience, Stop, Stopped, Task, Until};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::closing::Closing;
use crate::flush::{Flush, Flushed};
use crate::metrics::{self, Ages};
use crate::reader::Read;
use crate::shard::StreamShard;
use crate::slots::Slots;

/// How often the checkpoint says that it is still true, also while nothing comes.
const REFRESH: Duration = Duration::from_secs(10);

/// How soon after the last records it first says so: until then, counts are known to include less than they do.
const SETTLED: Duration = Duration::from_secs(1);

/// What every applier of the process shares.
#[derive(Clone)]
pub(crate) struct Works {
    pub(crate) flush: Arc<Flush>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) closing: Closing,
    pub(crate) patience: Patience,
    pub(crate) cut: CutRules,
    pub(crate) window: CaptureLimits,
    pub(crate) slots: Slots,
}

/// The applier of one stream shard.
pub(crate) struct Applier {
    works: Works,
    shard: StreamShard,
    reads: mpsc::Receiver<Read>,
    fold: Fold,
    captures: Captures,
    /// The report of the window that the gathered prefix ends in.
    report: Option<Report>,
    /// Everything written before this time was passed on by the reader.
    read_up_to: UnixMillis,
    /// Everything written before this time is in the counters, and the checkpoint says so.
    stored: UnixMillis,
    origin: Instant,
    refresh: Instant,
    ages: Ages,
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Go,
    Stop,
}

impl Applier {
    /// Starts at `checkpoint`, with no window open.
    pub(crate) fn new(works: Works, shard: StreamShard, checkpoint: &Checkpoint, reads: mpsc::Receiver<Read>) -> Self {
        let now = Instant::now();
        let ages = Ages::new(works.slots.take());
        tracing::info!(shard = %shard.id, ordinal = %shard.ordinal, slot = ages.slot(), "reading a stream shard");
        Self {
            fold: Fold::new(works.cut),
            captures: Captures::new(works.window),
            works,
            shard,
            reads,
            report: None,
            read_up_to: checkpoint.at,
            stored: checkpoint.at,
            origin: now,
            refresh: now + REFRESH,
            ages,
        }
    }

    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        loop {
            let due = self.fold.due_at().map_or(self.refresh, |due| self.refresh.min(self.origin + due));
            let course = tokio::select! {
                biased;
                read = self.reads.recv() => self.take(read, stop).await?,
                () = sleep_until(due) => self.wake(stop).await?,
            };
            self.measure();
            if course == Course::Stop {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, read: Option<Read>, stop: &Stop) -> anyhow::Result<Course> {
        match read {
            Some(Read::Records(records)) => self.records(&records, stop).await,
            Some(Read::UpTo(at)) => {
                self.read_up_to = self.read_up_to.max(at);
                self.wake(stop).await
            }
            Some(Read::Break) => {
                self.captures.discontinuity();
                Ok(Course::Go)
            }
            Some(Read::End) => self.end(stop).await,
            // The reader was stopped: what it passed on is finished, and somebody else goes on behind it.
            None => self.flush(Cut::Stop, stop).await.map(|_| Course::Stop),
        }
    }

    /// What the passing of time asks for.
    async fn wake(&mut self, stop: &Stop) -> anyhow::Result<Course> {
        let course = match self.fold.due(self.now()) {
            Some(cut) => self.flush(cut, stop).await?,
            None => Course::Go,
        };
        if Instant::now() >= self.refresh {
            self.refresh(stop).await?;
        }
        Ok(course)
    }

    async fn records(&mut self, records: &[Record], stop: &Stop) -> anyhow::Result<Course> {
        for record in records {
            metrics::record_read(record);
            if let RecordKind::Foreign(reason) = &record.kind {
                metrics::quarantined(*reason);
                tracing::warn!(stream_shard = %self.shard.ordinal, sequence = %record.sequence, %reason, "a change record is none of our rows");
            }
            while let Err(cut) = self.fold.push(record, self.now()) {
                if self.flush(cut, stop).await? == Course::Stop {
                    return Ok(Course::Stop);
                }
            }
            // Also what some counter has already: it was touched inside the window all the same.
            self.report = self.captures.observe(record, self.now()).or(self.report.take());
            if let Some(cut) = self.fold.due(self.now())
                && self.flush(cut, stop).await? == Course::Stop
            {
                return Ok(Course::Stop);
            }
        }
        Ok(Course::Go)
    }

    /// The shard has ended: writes what is left, and closes it.
    async fn end(&mut self, stop: &Stop) -> anyhow::Result<Course> {
        if self.flush(Cut::Stop, stop).await? == Course::Go {
            self.works.closing.close(&self.shard, self.stored, stop).await?;
        }
        Ok(Course::Stop)
    }

    /// Writes what was gathered and moves the checkpoint behind it.
    async fn flush(&mut self, cut: Cut, stop: &Stop) -> anyhow::Result<Course> {
        let began = Instant::now();
        let prefix = self.fold.take();
        let report = self.report.take();
        let Some(last) = prefix.last else { return Ok(Course::Go) };
        if self.works.flush.flush(&self.shard, &prefix, report.as_ref(), stop).await? == Flushed::Finished {
            tracing::info!(stream_shard = %self.shard.ordinal, "the stream shard was finished by another worker");
            return Ok(Course::Stop);
        }
        let at = self.stored.max(self.read_up_to).max(prefix.written);
        let Works { checkpoints, patience, .. } = &self.works;
        let advance = || checkpoints.advance(&self.shard.label, &self.shard.id, last, at);
        patience.persist("move a checkpoint", Until::LastCall(stop), advance).await?;
        self.moved(at, SETTLED);
        metrics::flushed(cut, prefix.counters.len(), prefix.records, began.elapsed());
        Ok(Course::Go)
    }

    /// Says that the checkpoint still is where everything is applied.
    async fn refresh(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let at = if self.fold.due_at().is_none() { self.read_up_to } else { self.stored };
        if at > self.stored {
            let Works { checkpoints, patience, .. } = &self.works;
            let refresh = || checkpoints.refresh(&self.shard.label, &self.shard.id, at);
            patience.persist("refresh a checkpoint", Until::LastCall(stop), refresh).await?;
        }
        self.moved(at, REFRESH);
        Ok(())
    }

    fn moved(&mut self, at: UnixMillis, next: Duration) {
        self.stored = self.stored.max(at);
        self.captures.expire(self.now());
        self.refresh = Instant::now() + next;
    }

    fn measure(&self) {
        let now = self.works.patience.clock().now();
        self.ages.set(now.since(self.read_up_to.max(self.stored)), now.since(self.stored));
    }

    /// The monotonic time that spans are counted in.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl Task for Applier {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        // A store that is silent is not waited for at the last call: what is under way may still happen, and is repeated.
        match stop.until_last_call(self.follow(&stop)).await.unwrap_or_else(|stopped| Err(stopped.into())) {
            Err(error) if error.is::<Stopped>() => {
                tracing::warn!(stream_shard = %self.shard.ordinal, "what was not written is dropped: it will be read again");
                Ok(())
            }
            ended => ended,
        }
    }
}
