//! Follows the fences: how far the rows have come in each partition, for the gate and for people.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tally_core::ports::FencedRows;
use tally_service::{Clock, Stop, Task};

use crate::gate::Gate;

/// How often they are read.
const EVERY: Duration = Duration::from_millis(100);

/// The task that reads them.
pub(crate) struct Follow {
    pub(crate) rows: Arc<dyn FencedRows>,
    pub(crate) topic: String,
    pub(crate) gate: Arc<Gate>,
    /// Records behind all fences together.
    pub(crate) applied: Arc<AtomicU64>,
    pub(crate) clock: Clock,
}

impl Follow {
    async fn look(&self) {
        // One that cannot be read now is read the next time; writers wait meanwhile.
        let Ok(fences) = self.rows.fences(&self.topic).await else { return };
        for (partition, fence) in &fences {
            self.gate.passed(partition.index, fence.offset);
        }
        self.applied.store(fences.iter().map(|(_, fence)| fence.offset.0).sum(), Ordering::Relaxed);
    }
}

impl Task for Follow {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.look()).await.is_ok() {
            stop.unless_requested(self.clock.sleep(EVERY)).await?;
        }
        Ok(())
    }
}
