//! Dead letters under way: each is sent until the dead-letter topic has acknowledged it, however long that takes, and
//! not again by the same worker once it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tally_core::event::Rejection;
use tally_core::fence::{Fence, Offset};
use tally_core::ports::log::Records;

use super::Worker;
use crate::{letter, metrics};

/// Dead letters that are acknowledged and not behind the fence, for as long as a worker lives: reading may come back to
/// their records many times.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    cfg: u64,
    offsets: BTreeSet<Offset>,
}

impl Acknowledged {
    /// Reading begins at `fence`. A fence that was reset may count in another topic.
    pub(super) fn begin(&mut self, fence: &Fence) {
        if self.cfg != fence.cfg {
            self.offsets.clear();
            self.cfg = fence.cfg;
        }
        self.prune(fence.offset);
    }

    /// What lies before `fence` does not come again.
    pub(super) fn prune(&mut self, fence: Offset) {
        if self.offsets.first().is_some_and(|first| *first < fence) {
            self.offsets = self.offsets.split_off(&fence);
        }
    }
}

/// The dead letters of one stretch of reading.
pub(super) struct Letters<'a> {
    worker: &'a Worker,
    under_way: FuturesUnordered<BoxFuture<'a, Offset>>,
    acknowledged: &'a mut Acknowledged,
}

impl<'a> Letters<'a> {
    pub(super) fn new(worker: &'a Worker, acknowledged: &'a mut Acknowledged) -> Self {
        Self { worker, under_way: FuturesUnordered::new(), acknowledged }
    }

    /// Whether the record at `offset` was put aside before.
    pub(super) fn has(&self, offset: Offset) -> bool {
        self.acknowledged.offsets.contains(&offset)
    }

    /// Begins to send the record at `offset` of `run`.
    pub(super) fn send(&mut self, run: Arc<Records>, offset: Offset, rejection: Rejection) {
        self.under_way.push(Box::pin(deliver(self.worker, run, offset, rejection)));
    }

    /// The next one that is acknowledged; pending while none is under way. Cancel safe.
    pub(super) async fn acknowledged(&mut self) -> Offset {
        match self.under_way.next().await {
            Some(offset) => {
                self.acknowledged.offsets.insert(offset);
                offset
            }
            None => std::future::pending().await,
        }
    }

    /// The fence has moved.
    pub(super) fn prune(&mut self, fence: Offset) {
        self.acknowledged.prune(fence);
    }
}

impl Drop for Letters<'_> {
    fn drop(&mut self) {
        // One that is still refused says so again when it is sent again.
        self.worker.shared.host.readiness().forget(&condition(self.worker));
    }
}

/// The name under which readiness knows the dead letters of this partition.
fn condition(worker: &Worker) -> String {
    format!("dead-letters-{}", worker.log.partition().index)
}

async fn deliver(worker: &Worker, run: Arc<Records>, offset: Offset, rejection: Rejection) -> Offset {
    let record = run.at(offset).expect("a rejected record is in the run it was read from");
    let (shared, partition) = (&worker.shared, worker.log.partition());
    let topic = &shared.settings.dead_letter_topic;
    let mut tries = 0u32;
    loop {
        let fault = match letter::write(&*shared.producer, topic, partition, record, &rejection).await {
            Ok(_) => break,
            Err(fault) => fault,
        };
        metrics::dead_letter_refused(&fault);
        tries = tries.saturating_add(1);
        if tries.is_power_of_two() {
            tracing::warn!(%partition, %offset, topic, tries, error = %fault, "a dead letter is not acknowledged");
        }
        shared.host.readiness().not_ready(&condition(worker), format!("`{topic}` takes no dead letters: {fault}"));
        shared.host.clock().sleep(worker.pause(tries - 1)).await;
    }
    // Whoever was refused: the topic takes dead letters.
    shared.host.readiness().forget(&condition(worker));
    metrics::records("rejected", 1);
    metrics::dead_letter(rejection.reason());
    tracing::debug!(%partition, %offset, reason = rejection.reason(), "dead letter: {rejection}");
    offset
}
