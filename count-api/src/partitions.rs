//! Follows the Kafka topics that events are written to. It makes the process not ready while one is missing, and counts
//! their partitions and, for the policy `least-lag`, the records that wait in each: over these partitions the API
//! spreads the events of sums, which are counters of amounts, such as views.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::kafka::{Spreading, say_whether_there};
use tally_core::ids::CounterKind;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::register::Claim;
use tally_core::spread::SumPolicy;
use tally_core::topic::{Log, Partition};
use tally_service::{Clock, Readiness, Stop, Task};
use tokio::time::timeout;

use crate::definitions::Defined;

/// The wait between two looks, with the policy `least-lag` and with others.
const LAGS: Duration = Duration::from_secs(1);
const PARTITIONS: Duration = Duration::from_secs(30);

/// The time limit of one look.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a topic by its name.
pub type Topics = Arc<dyn Fn(&str) -> Outcome<Arc<dyn TopicReader>> + Send + Sync>;

/// The task that looks. If a look fails, the earlier result stays; before the first one, keys decide the partition.
pub(crate) struct FollowPartitions {
    pub(crate) topics: Topics,
    pub(crate) claims: Claims,
    pub(crate) spreading: Spreading,
    pub(crate) defined: Defined,
    /// The topic of sums whose definition names none.
    pub(crate) topic: String,
    pub(crate) clock: Clock,
    pub(crate) readiness: Readiness,
    pub(crate) readers: BTreeMap<String, Arc<dyn TopicReader>>,
}

impl FollowPartitions {
    async fn look(&mut self) {
        let (defined, spreads) = (self.defined.all(), self.spreading.policy() != SumPolicy::Post);
        // Each topic, and whether its sums are spread.
        let mut topics: BTreeMap<&str, bool> = BTreeMap::new();
        for definition in defined.iter() {
            let topic = definition.topic.as_deref().unwrap_or(&self.topic);
            *topics.entry(topic).or_default() |= spreads && definition.kind() == CounterKind::Sum;
        }
        for (topic, is_spread) in topics {
            let reader = match self.readers.get(topic) {
                Some(reader) => Ok(Arc::clone(reader)),
                None => (self.topics)(topic),
            };
            let seen = match reader {
                Ok(reader) => {
                    let reader = self.readers.entry(topic.to_owned()).or_insert(reader);
                    let claims = (self.spreading.policy() == SumPolicy::LeastLag).then_some(&self.claims);
                    let look = async {
                        let is_there = reader.exists().await?;
                        say_whether_there(&self.readiness, topic, "events", is_there);
                        if is_there && is_spread { lags(topic, &**reader, claims).await } else { Ok(Vec::new()) }
                    };
                    timeout(PATIENCE, look).await
                }
                Err(fault) => Ok(Err(fault)),
            };
            match seen {
                Ok(Ok(lags)) if is_spread => self.spreading.seen(topic, &lags),
                Ok(Ok(_)) => {}
                Ok(Err(fault)) => tracing::debug!(topic, error = %fault, "the partitions cannot be seen"),
                Err(_) => tracing::debug!(topic, "the partitions cannot be seen within {PATIENCE:?}"),
            }
        }
    }
}

impl Task for FollowPartitions {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let every = if self.spreading.policy() == SumPolicy::LeastLag { LAGS } else { PARTITIONS };
        while stop.unless_requested(self.look()).await.is_ok() {
            stop.unless_requested(self.clock.sleep(every)).await?;
        }
        Ok(())
    }
}

/// Returns for each partition how many records no consumer has finished; 0 without `claims`. If no consumer has stored
/// anything for a partition, all its records wait.
async fn lags(topic: &str, reader: &dyn TopicReader, claims: Option<&Claims>) -> Outcome<Vec<u64>> {
    let logs = reader.logs().await?;
    let Some(claims) = claims else { return Ok(vec![0; logs.len()]) };
    let claims = claims.all(topic, u32::try_from(logs.len()).unwrap_or(u32::MAX)).await?;
    let lag = |((_, log), claim): (&(Partition, Log), Claim)| {
        let kept = claim.kept.filter(|kept| kept.topic == log.topic);
        let done = kept.map_or(log.start, |kept| kept.safe.max(log.start));
        log.end.0.saturating_sub(done.0)
    };
    Ok(logs.iter().zip(claims).map(lag).collect())
}

#[cfg(test)]
mod tests;
