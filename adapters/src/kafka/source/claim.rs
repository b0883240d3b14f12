//! A deployment's claim to its Kafka consumer group: the offsets that it commits name it (they are signed), so that two
//! deployments do not divide a topic between them. A member asks whether another deployment has signed offsets of the
//! group, before it joins and again a while after each assignment. Two that join at once find nothing at first; by then
//! each has signed.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::context::Context;
use super::super::convert::fault_of;
use super::until;

/// How long after an assignment the group is asked again. A member signs its first offsets as it begins to read.
const AGAIN: Duration = Duration::from_secs(15);
/// How long one call to the broker may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// What comes before the deployment's name in a signature.
const PREFIX: &str = "tally ";

/// Returns a fatal fault where the group has read the topic for another deployment. Blocks.
fn check(consumer: &StreamConsumer<Context>, topic: &str, group: &str, deployment: &str) -> Outcome<()> {
    let looking = |error| fault_of(&format!("looking at the offsets of group `{group}`"), &error);
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).map_err(looking)?;
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics().iter().flat_map(|found| found.partitions()) {
        list.add_partition_offset(topic, partition.id(), At::Invalid).map_err(looking)?;
    }
    if list.count() == 0 {
        return Ok(());
    }
    let committed = consumer.committed_offsets(list, TIMEOUT).map_err(looking)?;
    let other = committed.elements().into_iter().find_map(|element| {
        let other = element.metadata().strip_prefix(PREFIX)?;
        (other != deployment).then(|| other.to_owned())
    });
    let Some(other) = other else { return Ok(()) };
    Err(Fault::Fatal(format!(
        "group `{group}` reads `{topic}` for another deployment, {other}: give this one, {deployment}, a --group of its own, \
         which costs nothing, as no offset is taken from a group"
    )))
}

/// Signs offsets that are to be committed as this deployment's.
pub(in crate::kafka) fn sign(list: &mut TopicPartitionList, deployment: &str) {
    for mut element in list.elements() {
        element.set_metadata(format!("{PREFIX}{deployment}"));
    }
}

/// The group of a member, the deployment that reads as it, and the question about them.
#[derive(Default)]
pub(super) struct Claim {
    pub(super) topic: Box<str>,
    pub(super) group: Box<str>,
    /// What tells the deployment from any other. Where it is not known, nobody claims the group.
    pub(super) deployment: Option<Arc<str>>,
    pub(super) again: Option<Instant>,
    pub(super) asking: Option<JoinHandle<Outcome<()>>>,
}

impl Claim {
    /// Notes that partitions were assigned, so that the group is asked again.
    pub(super) fn assigned(&mut self) {
        self.again = self.deployment.is_some().then(|| Instant::now() + AGAIN);
    }

    /// Returns a fatal fault where the group has read the topic for another deployment. Several calls share one
    /// question, so this is cancel safe.
    pub(super) async fn ask(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> Outcome<()> {
        let Some(deployment) = self.deployment.clone() else { return Ok(()) };
        let asking = self.asking.get_or_insert_with(|| {
            let (topic, group, consumer) = (self.topic.clone(), self.group.clone(), Arc::clone(consumer));
            tokio::task::spawn_blocking(move || check(&consumer, &topic, &group, &deployment))
        });
        let answer = asking.await;
        self.asking = None;
        answer.map_err(|error| Fault::Transient(format!("asking the group: {error}")))?
    }

    /// Waits until the group has to be left, and returns why: for ever where nobody claims the group. Asks again later
    /// where a broker does not answer. Cancel safe.
    pub(super) async fn lost(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> String {
        loop {
            until(self.again).await;
            match self.ask(consumer).await {
                Ok(()) => self.again = None,
                Err(Fault::Fatal(why)) => {
                    self.again = None;
                    return why;
                }
                Err(_) => self.assigned(),
            }
        }
    }
}
