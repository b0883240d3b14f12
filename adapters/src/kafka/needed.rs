//! Watches a topic that a service needs. While there is no such topic, the service is not ready, and the log names it.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::TopicReader;
use tally_service::{Clock, Readiness, Stop, Task};
use tokio::time::timeout;

/// How often the task looks.
const EVERY: Duration = Duration::from_secs(10);

/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task that looks. Where a look fails, the condition stays as it was: other parts say whether Kafka answers.
pub struct NeededTopic {
    pub reader: Arc<dyn TopicReader>,
    pub topic: String,
    /// What the topic is for.
    pub purpose: &'static str,
    pub readiness: Readiness,
    pub clock: Clock,
}

impl Task for NeededTopic {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Self { reader, topic, purpose, readiness, clock } = self;
        loop {
            if let Ok(Ok(is_there)) = stop.unless_requested(timeout(PATIENCE, reader.exists())).await? {
                say_whether_there(&readiness, &topic, purpose, is_there);
            }
            stop.unless_requested(clock.sleep(EVERY)).await?;
        }
    }
}

/// Shows in readiness and, once for each change, logs whether a topic is there.
pub fn say_whether_there(readiness: &Readiness, topic: &str, purpose: &str, is_there: bool) {
    let condition = format!("topic-{topic}");
    let was_missing = readiness.report().conditions.contains_key(&condition);
    match (is_there, was_missing) {
        (true, true) => {
            readiness.forget(&condition);
            tracing::info!(topic, purpose, "the topic is there now");
        }
        (false, false) => {
            readiness.not_ready(&condition, format!("there is no topic `{topic}`, which is for {purpose}: create it"));
            tracing::warn!(topic, purpose, "there is no such topic: create it");
        }
        _ => {}
    }
}
