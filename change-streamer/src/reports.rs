//! What readers and appliers report to the task that follows the stream, over one channel.

use std::collections::BTreeMap;

use tally_core::ids::StreamShardId;
use tally_core::lineage::Loss;
use tally_core::shards::{Input, Waiter};
use tally_core::time::UnixMillis;
use tally_service::{Stopped, Until};
use tokio::sync::{mpsc, oneshot};

/// Reports that may wait for the task that follows the stream.
const WAITING: usize = 256;

/// One report.
#[derive(Debug)]
pub(crate) enum Report {
    /// A loss was met. `go_on` is told once what lies behind it may be applied.
    Lost { loss: Loss, go_on: oneshot::Sender<()> },
    /// The service has no stream shard of this name.
    Gone(StreamShardId),
    /// The stream shard has ended and all of it is applied; its checkpoint says `at`.
    Applied { shard: StreamShardId, at: UnixMillis },
}

/// Where reports go. Clones lead to the same task.
#[derive(Clone)]
pub(crate) struct Reports(mpsc::Sender<Report>);

impl Reports {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Report>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Has `loss` recorded as a gap, and returns once what lies behind it may be applied. Safe to repeat: the same loss is
    /// one gap.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) async fn lost(&self, loss: Loss, until: Until<'_>) -> Result<(), Stopped> {
        let (go_on, told) = oneshot::channel();
        let held = async {
            self.send(Report::Lost { loss, go_on }).await?;
            told.await.map_err(|_| Stopped)
        };
        until.unless_over(held).await?
    }

    /// Says that the service has no stream shard of this name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) async fn gone(&self, shard: &StreamShardId) -> Result<(), Stopped> {
        self.send(Report::Gone(shard.clone())).await
    }

    /// Says that the stream shard has ended and all of it is applied, so that it is closed. Safe to repeat.
    ///
    /// # Errors
    /// [`Stopped`]: the process stops, and the next worker finds the same end.
    pub(crate) async fn applied(&self, shard: &StreamShardId, at: UnixMillis) -> Result<(), Stopped> {
        self.send(Report::Applied { shard: shard.clone(), at }).await
    }

    async fn send(&self, report: Report) -> Result<(), Stopped> {
        self.0.send(report).await.map_err(|_| Stopped)
    }
}

/// Readers and appliers that wait behind a loss.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    waiters: BTreeMap<Waiter, oneshot::Sender<()>>,
    /// The latest waiter's number.
    latest: u64,
}

impl Waiting {
    /// The report as the machine takes it.
    pub(crate) fn input(&mut self, report: Report) -> Input {
        match report {
            Report::Lost { loss, go_on } => {
                self.latest += 1;
                self.waiters.insert(Waiter(self.latest), go_on);
                Input::Lost(Waiter(self.latest), loss)
            }
            Report::Gone(shard) => Input::Gone(shard),
            Report::Applied { shard, at } => Input::Applied { shard, at },
        }
    }

    /// Lets a waiter go on; one that was stopped has dropped the other end.
    pub(crate) fn go_on(&mut self, waiter: Waiter) {
        if let Some(go_on) = self.waiters.remove(&waiter) {
            let _ = go_on.send(());
        }
    }
}
