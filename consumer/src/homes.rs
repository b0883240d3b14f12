//! The task that looks each second at how often changes of maps were announced, and tells the workers.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::CounterMaps;
use tally_service::{Clock, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long it waits between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct FollowHomes {
    pub(crate) maps: Arc<dyn CounterMaps>,
    pub(crate) announced: watch::Sender<u64>,
    pub(crate) clock: Clock,
}

impl Task for FollowHomes {
    /// A look that fails says nothing: maps grow old by it, and stay right.
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            match stop.unless_requested(timeout(PATIENCE, self.maps.announced())).await? {
                Ok(Ok(announced)) => {
                    self.announced.send_if_modified(|seen| std::mem::replace(seen, announced) != announced);
                }
                Ok(Err(fault)) => tracing::debug!(error = %fault, "cannot read how often maps were changed"),
                Err(_) => tracing::debug!("cannot read how often maps were changed: no answer within {PATIENCE:?}"),
            }
        }
        Ok(())
    }
}
