//! Where a reader passes on what it reads: to the counters from where they are, to the ledger of changes from where that is.

use tally_core::ids::Sequence;
use tally_core::ledger::Fed;
use tally_core::lineage::{Checkpoint, OUTAGE_LIMIT};
use tally_core::time::UnixMillis;
use tally_service::{Stop, Stopped};
use tokio::sync::mpsc;

use super::Read;

/// The tasks behind a reader.
pub(crate) struct Outputs {
    /// The applier; `None` where all of the stream shard is in the counters.
    pub(crate) applier: Option<mpsc::Sender<Read>>,
    /// The recorder, and how far the stream shard is fed; `None` where there is no ledger of changes.
    pub(crate) recorder: Option<(mpsc::Sender<Read>, Fed)>,
    /// What the counters have.
    pub(crate) applied: Option<Sequence>,
}

impl Outputs {
    /// Where reading begins: behind what both have. `None` is the oldest record there is.
    pub(super) fn begin(&self) -> Option<Sequence> {
        match &self.recorder {
            None => self.applied,
            Some((_, fed)) if self.applier.is_none() => fed.sequence,
            Some((_, fed)) => fed.sequence.min(self.applied),
        }
    }

    /// Whether what is read behind `last` is for the ledger alone, so that its loss is none of the counters'.
    pub(super) fn is_behind(&self, last: Option<Sequence>) -> bool {
        self.recorder.is_some() && (self.applier.is_none() || last < self.applied)
    }

    /// Whether the stream shard was not fed for longer than its records are sure to be kept.
    pub(super) fn is_overdue(&self, checkpoint: &Checkpoint, now: UnixMillis) -> bool {
        let fed_at = self.recorder.as_ref().map(|(_, fed)| fed.at.unwrap_or(checkpoint.at));
        fed_at.is_some_and(|at| now.since(at) > OUTAGE_LIMIT)
    }

    /// Passes `read` on to all.
    pub(super) async fn pass(&self, read: Read, stop: &Stop) -> anyhow::Result<()> {
        let Some(applier) = &self.applier else { return self.record(read, stop).await };
        if self.recorder.is_some() {
            self.record(read.clone(), stop).await?;
        }
        let read = match read {
            Read::Records(mut records) => {
                records.retain(|record| Some(record.sequence) > self.applied);
                if records.is_empty() {
                    return Ok(());
                }
                Read::Records(records)
            }
            read => read,
        };
        // The applier ends first where the shard turns out to be finished.
        stop.unless_requested(applier.send(read)).await?.map_err(|_| Stopped.into())
    }

    /// Tells the applier that there is no more for now.
    pub(super) async fn drained(&self, stop: &Stop) -> anyhow::Result<()> {
        let Some(applier) = &self.applier else { return Ok(()) };
        stop.unless_requested(applier.send(Read::Drained)).await?.map_err(|_| Stopped.into())
    }

    /// Passes `read` on to the recorder alone.
    pub(super) async fn record(&self, read: Read, stop: &Stop) -> anyhow::Result<()> {
        let Some((recorder, _)) = &self.recorder else { return Ok(()) };
        stop.unless_requested(recorder.send(read)).await?.map_err(|_| Stopped.into())
    }
}
