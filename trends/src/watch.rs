//! Checks that the topic of changes keeps its number of partitions.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::TopicReader;
use tally_service::{Clock, Invalid, Stop, Task};
use tokio::time::timeout;

/// How often the number of partitions is checked.
const EVERY: Duration = Duration::from_secs(60);

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task that checks the topic.
pub(crate) struct WatchTopic {
    pub(crate) changes: Arc<dyn TopicReader>,
    /// The number of partitions that the topic had at the start.
    pub(crate) partitions: usize,
    pub(crate) clock: Clock,
}

impl WatchTopic {
    /// Fails if the number of partitions has changed, since a subject's changes then go to another one.
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
