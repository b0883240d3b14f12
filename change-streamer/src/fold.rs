//! The fold: reads the log `changes` and keeps the counters, the cache, the milestones and what this Region publishes.
//! A consumer group shares out the partitions, and a `PartitionFold` works on each. A member that has lost a partition
//! without knowing it does no harm: every update names the values that it replaces.

mod cached;
mod partition;
mod stated;
mod write;

use std::sync::Arc;

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::kafka::Membership;
use tally_core::cached::Cache;
use tally_core::changes::DeploymentId;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Host, Patience, Stage};

use partition::PartitionFold;

use crate::args::Rules;
use crate::regions::Publishing;

/// What the folds of a process share.
#[derive(Clone)]
pub struct Folding {
    /// The counters.
    pub counters: Arc<Counters>,
    /// The cache, where there is one.
    pub cache: Option<Arc<dyn Cache>>,
    /// Where positions, standings and losses are stored.
    pub store: Arc<Changes>,
    /// The deployment that the log belongs to.
    pub deployment: DeploymentId,
    /// How the log is folded.
    pub rules: Rules,
    /// How counts are published for other Regions, where this one has a name.
    pub publishing: Option<Arc<Publishing>>,
}

impl Folding {
    /// Starts the member of the group, which folds the partitions that it is given.
    pub fn spawn(self, intake: Box<dyn Intake>, host: &Host, patience: &Patience) {
        let (folding, of, patience) = (Arc::new(self), host.clone(), patience.clone());
        let begin = Box::new(move |log: Arc<dyn OwnedPartition>| {
            let name = format!("fold {}", log.partition());
            let fold = PartitionFold::new(Arc::clone(&folding), log, patience.clone(), of.readiness());
            of.worker(Stage::Work, &name, fold);
        });
        let readiness = host.readiness().clone();
        host.spawn(
            Stage::Intake,
            "fold",
            Membership { intake, readiness, begin, on_rebalance: |_| {}, on_fault: |_| {} },
        );
    }
}
