//! Start-up steps that services share: joining a group, and tasks over its partitions and over topics that they need.

use std::sync::Arc;

use tally_core::ports::{Intake, Outcome, OwnedPartition, TopicReader};
use tally_service::{Host, Readiness, Stage};

use super::args::Settings;
use super::membership::Membership;
use super::source::Source;
use super::topics::NeededTopic;
use crate::dynamodb::Connection;

/// Returns how to join `group`, which reads `topic`. Where there are `tables`, the member is one of their deployment: the
/// tables have been checked by the time it joins, so the connection knows the deployment.
pub fn joining(
    settings: &Settings,
    group: &str,
    topic: &str,
    tables: Option<&Connection>,
) -> impl Fn() -> Outcome<Box<dyn Intake>> + Send + Sync + use<> {
    let (settings, tables) = (settings.clone(), tables.cloned());
    let (group, topic) = (group.to_owned(), topic.to_owned());
    move || {
        let source = Source::new(&settings, &group, &topic)?;
        Ok(Box::new(source.of_deployment(tables.as_ref().and_then(Connection::deployment))))
    }
}

impl Membership {
    /// Returns the task for `intake`, which calls `begin` with each assigned partition. Rebalances and errors call
    /// nothing unless `on_rebalance` or `on_fault` is set.
    pub fn new(
        intake: Box<dyn Intake>,
        readiness: &Readiness,
        begin: impl Fn(Arc<dyn OwnedPartition>) + Send + 'static,
    ) -> Self {
        let (readiness, begin) = (readiness.clone(), Box::new(begin));
        Self { intake, readiness, begin, on_rebalance: |_| {}, on_fault: |_| {} }
    }
}

impl NeededTopic {
    /// Spawns the task, under `name`, that watches the topic that `reader` reads.
    pub fn watch(host: &Host, name: &str, reader: Arc<dyn TopicReader>, topic: &str, purpose: &'static str) {
        let (topic, readiness, clock) = (topic.to_owned(), host.readiness().clone(), host.clock());
        host.spawn(Stage::Support, name, Self { reader, topic, purpose, readiness, clock });
    }
}
