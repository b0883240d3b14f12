//! Watches that the topic of changes keeps its partitions.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::TopicReader;
use tally_service::{Clock, Invalid, Stop, Task};
use tokio::time::timeout;

/// How often the topic is asked how many partitions it has.
const EVERY: Duration = Duration::from_secs(60);

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task that watches.
pub(crate) struct WatchTopic {
    pub(crate) changes: Arc<dyn TopicReader>,
    /// How many partitions the topic of changes has.
    pub(crate) partitions: usize,
    pub(crate) clock: Clock,
}

impl WatchTopic {
    /// Refuses a topic whose partitions were changed: a subject's changes are in another one from then on.
    async fn check(&self) -> anyhow::Result<()> {
        let Ok(Ok(logs)) = timeout(PATIENCE, self.changes.logs()).await else { return Ok(()) };
        if logs.is_empty() || logs.len() == self.partitions {
            return Ok(());
        }
        let problem = format!("its topic had {} partitions and has {} now", self.partitions, logs.len());
        Err(Invalid::setting("changes-topic", problem).into())
    }
}

impl Task for WatchTopic {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            let Ok(checked) = stop.unless_requested(self.check()).await else { break };
            checked?;
        }
        Ok(())
    }
}
