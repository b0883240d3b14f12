//! Reads one stream shard from where it was left, in order, and passes everything on; folding and writing are the
//! applier's.

mod outputs;
mod pace;
mod tip;

use std::sync::Arc;

pub(crate) use outputs::Outputs;
pub(crate) use pace::Pace;
pub use pace::PollRules;
use tally_core::fault::Fault;
use tally_core::ids::Sequence;
use tally_core::lineage::{Checkpoint, Loss, outage};
use tally_core::ports::{ChangeStream, Iterator, Position, Records, StreamFault};
use tally_core::tally::{Record, read};
use tally_core::time::UnixMillis;
use tally_service::{Patience, Stop, Task, Until};
pub(crate) use tip::{Shown, Tip};

use crate::metrics;
use crate::reports::Reports;
use crate::shard::StreamShard;

/// The most records one read may answer with: what the service allows.
const LIMIT: u32 = 1000;

/// What a reader passes on, in order.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    /// Records that follow right on those before.
    Records(Vec<Record>),
    /// That was all there is for now. Of no use to a recorder.
    Drained,
    /// Everything written before this time has been passed on.
    UpTo(UnixMillis),
    /// What follows may not follow right on what was before.
    Break,
    /// The shard has ended, and this was all of it.
    End,
}

/// What is read.
pub(crate) struct Source {
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) shard: StreamShard,
    pub(crate) reports: Reports,
    pub(crate) patience: Patience,
}

/// The reader of one stream shard.
pub(crate) struct Reader {
    stream: Arc<dyn ChangeStream>,
    shard: StreamShard,
    reports: Reports,
    patience: Patience,
    pace: Pace,
    tip: Tip,
    position: Position,
    /// The last record read.
    last: Option<Sequence>,
    /// When the service last answered: for so long nothing unread can have been trimmed unseen.
    contact: UnixMillis,
    /// For the ledger of changes something was trimmed before it was read.
    is_overdue: bool,
    outputs: Outputs,
}

/// Where a reader stands after a page.
enum Next {
    At(Iterator),
    /// A new iterator has to be taken.
    Anew,
    /// There is nothing more to read.
    Nothing,
}

impl Reader {
    /// Starts behind `checkpoint`, as read just now.
    pub(crate) fn new(
        Source { stream, shard, reports, patience }: Source,
        checkpoint: &Checkpoint,
        poll: PollRules,
        outputs: Outputs,
    ) -> Self {
        let (last, now) = (outputs.begin(), patience.clock().now());
        Self {
            stream,
            shard,
            reports,
            patience,
            pace: Pace::new(poll),
            tip: Tip::new(poll.idle),
            position: last.map_or(Position::Oldest, Position::After),
            last,
            contact: checkpoint.at,
            is_overdue: outputs.is_overdue(checkpoint, now),
            outputs,
        }
    }

    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let mut next = Next::Anew;
        loop {
            next = match next {
                Next::Anew => self.open(stop).await?,
                Next::At(iterator) => self.page(iterator, stop).await?,
                Next::Nothing => return Ok(()),
            }
        }
    }

    /// An iterator where reading stands. A loss is recorded before it is used.
    async fn open(&mut self, stop: &Stop) -> anyhow::Result<Next> {
        let contact = Checkpoint {
            id: self.shard.id.clone(),
            parent: None,
            ordinal: self.shard.ordinal,
            sequence: self.last,
            closed: false,
            at: self.contact,
        };
        let now = self.patience.clock().now();
        if std::mem::take(&mut self.is_overdue) {
            self.lapsed(stop).await?;
        }
        if self.outputs.applier.is_some()
            && let Some(loss) = outage(&contact, now)
        {
            self.lost(loss, stop).await?;
            self.contact = now;
        }
        self.tip.moved();
        let mut tries = 0;
        loop {
            let asked = self.stream.iterator(&self.shard.label, &self.shard.id, self.position);
            match stop.unless_requested(asked).await? {
                Ok(iterator) => return Ok(Next::At(iterator)),
                Err(StreamFault::Trimmed) if self.position != Position::Oldest => self.trimmed(stop).await?,
                Err(StreamFault::Gone) => return self.gone(stop).await,
                Err(other) => self.pause(other, &mut tries, stop).await?,
            }
        }
    }

    /// One read, after the wait that is due.
    async fn page(&mut self, iterator: Iterator, stop: &Stop) -> anyhow::Result<Next> {
        stop.unless_requested(self.patience.clock().sleep(self.pace.wait())).await?;
        let mut tries = 0;
        loop {
            let asked = self.patience.clock().now();
            match stop.unless_requested(self.stream.records(&iterator, LIMIT)).await? {
                Ok(records) => {
                    self.contact = asked;
                    return self.take(records, asked, stop).await;
                }
                Err(StreamFault::Expired) => {
                    metrics::stream_read("expired");
                    return Ok(Next::Anew);
                }
                Err(StreamFault::Trimmed) => {
                    self.trimmed(stop).await?;
                    return Ok(Next::Anew);
                }
                Err(StreamFault::Gone) => return self.gone(stop).await,
                Err(other) => self.pause(other, &mut tries, stop).await?,
            }
        }
    }

    /// Passes a page on.
    async fn take(&mut self, page: Records, asked: UnixMillis, stop: &Stop) -> anyhow::Result<Next> {
        self.pace.page(page.records.len(), LIMIT as usize);
        let newest = page.records.iter().map(|record| record.written).max();
        let shown = match newest {
            None => Shown::Nothing,
            Some(_) if page.records.len() * 2 >= LIMIT as usize => Shown::Many,
            Some(newest) => Shown::Few { newest },
        };
        let up_to = self.tip.page(shown, asked);
        metrics::stream_read(if page.records.is_empty() { "empty" } else { "records" });
        let mut records = Vec::with_capacity(page.records.len());
        for raw in &page.records {
            match read(raw) {
                Some(record) if Some(record.sequence) > self.last => {
                    self.last = Some(record.sequence);
                    records.push(record);
                }
                // The service answered with what it had answered with before.
                Some(_) => {}
                None => {
                    self.pass(Read::Records(std::mem::take(&mut records)), stop).await?;
                    self.lost(Loss::Unreadable(self.shard.id.clone()), stop).await?;
                }
            }
        }
        if let Some(last) = self.last {
            self.position = Position::After(last);
        }
        if !records.is_empty() {
            self.pass(Read::Records(records), stop).await?;
            if matches!(shown, Shown::Few { .. }) {
                self.outputs.drained(stop).await?;
            }
        }
        match page.next {
            Some(next) => {
                if let Some(up_to) = up_to {
                    self.pass(Read::UpTo(up_to), stop).await?;
                }
                Ok(Next::At(next))
            }
            // When the shard ended is not known: nothing is claimed of the time before this read.
            None => {
                self.pass(Read::End, stop).await?;
                Ok(Next::Nothing)
            }
        }
    }

    /// Reports a loss and waits until what lies behind it may be applied; the applier learns that the stream is broken
    /// here.
    async fn lost(&mut self, loss: Loss, stop: &Stop) -> anyhow::Result<()> {
        metrics::stream_read("lost");
        self.reports.lost(loss, Until::Requested(stop)).await?;
        self.pass(Read::Break, stop).await
    }

    /// Records behind the position are gone: for the counters too, or for the ledger of changes alone.
    async fn trimmed(&mut self, stop: &Stop) -> anyhow::Result<()> {
        if self.outputs.is_behind(self.last) {
            return self.lapsed(stop).await;
        }
        self.lost(Loss::Trimmed(self.shard.id.clone()), stop).await?;
        self.position = Position::Oldest;
        Ok(())
    }

    /// The ledger of changes lacks what was not read for it; reading goes on where the counters are.
    async fn lapsed(&mut self, stop: &Stop) -> anyhow::Result<()> {
        tracing::error!(shard = %self.shard.id, "the ledger of changes lacks records that were trimmed before they were read");
        self.outputs.record(Read::Break, stop).await?;
        if self.outputs.applier.is_some() {
            self.last = self.last.max(self.outputs.applied);
        }
        self.position = match self.last.filter(|_| self.outputs.applier.is_some()) {
            Some(last) => Position::After(last),
            None => Position::Oldest,
        };
        Ok(())
    }

    async fn gone(&self, stop: &Stop) -> anyhow::Result<Next> {
        tracing::warn!(shard = %self.shard.id, "the stream shard is gone");
        metrics::stream_read("gone");
        stop.unless_requested(self.reports.gone(&self.shard.id)).await??;
        Ok(Next::Nothing)
    }

    async fn pause(&self, fault: StreamFault, tries: &mut u32, stop: &Stop) -> anyhow::Result<()> {
        let fault = Fault::from(fault);
        metrics::stream_read(fault.class());
        let what = format!("read stream shard {}", self.shard.id);
        self.patience.pause(&what, fault, tries, Until::Requested(stop)).await
    }

    async fn pass(&self, read: Read, stop: &Stop) -> anyhow::Result<()> {
        self.outputs.pass(read, stop).await
    }
}

impl Task for Reader {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        stop.finish(self.follow(&stop)).await
    }
}
