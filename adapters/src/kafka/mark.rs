//! Whose group it is: what committed offsets carry, so that two deployments do not share a topic out between them.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::context::Context;
use super::fault::fault_of;

/// How long one call to the broker may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What the mark of a deployment begins with.
const PREFIX: &str = "tally ";

/// A deployment that reads a topic as a group.
pub(super) struct Mark {
    pub(super) topic: Box<str>,
    pub(super) group: Box<str>,
    pub(super) deployment: Arc<str>,
}

impl Mark {
    /// Refuses a group that has read the topic for another deployment. Blocks.
    pub(super) fn check(&self, consumer: &StreamConsumer<Context>) -> Outcome<()> {
        let Self { topic, group, deployment } = self;
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
            (*other != **deployment).then(|| other.to_owned())
        });
        let Some(other) = other else { return Ok(()) };
        Err(Fault::Fatal(format!(
            "group `{group}` reads `{topic}` for another deployment, {other}: give this one, {deployment}, a --group of its \
             own, which costs nothing, as no offset is taken from a group"
        )))
    }
}

/// Marks an offset that is committed as this deployment's.
pub(super) fn sign(list: &mut TopicPartitionList, deployment: &str) {
    for mut element in list.elements() {
        element.set_metadata(format!("{PREFIX}{deployment}"));
    }
}
