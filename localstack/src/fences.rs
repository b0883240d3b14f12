//! Follows the fences: how far the rows have come in each partition, for the gate and for the choice of
//! partitions of sums.

use std::sync::Arc;
use std::time::Duration;

use tally_core::fence::least_of_each;
use tally_core::ports::FencedRows;
use tally_service::{Stop, Task};

use crate::engine::TOPIC;
use crate::local::Local;

/// How often they are read.
const EVERY: Duration = Duration::from_millis(100);

pub(crate) struct FollowFences(pub(crate) Arc<Local>);

impl FollowFences {
    async fn look(&self) {
        // Where they cannot be read now, writers wait until the next look.
        let Ok(fences) = self.0.engines.store.fences.fences(TOPIC).await else { return };
        for (index, offset) in least_of_each(&fences) {
            self.0.gate.passed(index, offset);
        }
        self.0.sums.seen(TOPIC, &self.0.gate.lags());
    }
}

impl Task for FollowFences {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.look()).await.is_ok() {
            stop.unless_requested(self.0.clock.sleep(EVERY)).await?;
        }
        Ok(())
    }
}
