//! Watches that a topic is there which a service needs: where it is not, the service is not ready, and the log says which one it
//! misses.

use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::TopicReader;
use tally_service::{Clock, Readiness, Stop, Task};
use tokio::time::timeout;

/// How often it is looked for.
const EVERY: Duration = Duration::from_secs(10);

/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The task that watches. What it cannot see stays as it was: whether Kafka answers is said elsewhere.
pub struct NeededTopic {
    pub reader: Arc<dyn TopicReader>,
    pub topic: String,
    /// What goes there, or comes from there.
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

/// Says in readiness and, once for each change, in the log whether a topic is there.
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
