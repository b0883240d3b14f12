//! The fold: reads the log `changes` and keeps the counters, the cache, the milestones and what this Region publishes.
//! A consumer group shares out the partitions, and a `PartitionFold` works on each. A member that has lost a partition
//! without knowing it does no harm: every update names the values that it replaces.

mod partition;
mod stated;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::kafka::Membership;
use tally_core::cached::{Cache, StandingAt, TakeOver, Told, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Host, Patience, Seldom, Stage};
use tokio::time::Instant;

use partition::PartitionFold;

use crate::args::Rules;
use crate::metrics;
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
        let membership = Membership::new(intake, host.readiness(), move |log: Arc<dyn OwnedPartition>| {
            let name = format!("fold {}", log.partition());
            let fold = PartitionFold::new(Arc::clone(&folding), log, patience.clone(), of.readiness());
            of.worker(Stage::Work, &name, fold);
        });
        host.spawn(Stage::Intake, "fold", membership);
    }
}

/// The cache of one partition. After each write the fold tells it the new values together with the standing, which says up
/// to when all changes are in them, and which losses are open. If the cache does not answer, the fold takes it over once it
/// answers again. That empties it, so no reader finds a value that has missed a change.
struct Cached {
    cache: Option<Arc<dyn Cache>>,
    deployment: DeploymentId,
    partition: u32,
    hold: Option<TakeOver>,
    /// When this fold may take the cache over.
    from: Instant,
    /// When it was last logged that this failed.
    said: Seldom,
}

/// How long a fold leaves the cache alone after another took it over: two that fight over it keep it empty.
const LOST: Duration = Duration::from_secs(3);

/// How often it is logged that the cache cannot be taken over.
const SAID: Duration = Duration::from_secs(60);

impl Cached {
    fn new(cache: Option<Arc<dyn Cache>>, deployment: DeploymentId, partition: u32) -> Self {
        Self { cache, deployment, partition, hold: None, from: Instant::now(), said: Seldom::default() }
    }

    /// Tells the cache the values of a flush, also those that the table had already, and the standing behind all of
    /// them. If this fold does not hold the cache, takes it over instead.
    async fn tell(&mut self, values: &[(CounterId, Value)], stated: &StandingAt) {
        let Some(cache) = &self.cache else { return };
        if let Some(hold) = &mut self.hold {
            match cache.tell(self.partition, hold, values, Some(stated)).await {
                Ok(Told::Written(replaced)) => {
                    metrics::CACHE_UPDATES.counter(&["replaced"]).increment(replaced as u64);
                    metrics::CACHE_UPDATES
                        .counter(&["absent_or_newer"])
                        .increment(values.len().saturating_sub(replaced) as u64);
                    return;
                }
                Ok(Told::Lost) => {
                    self.from = Instant::now() + LOST;
                    tracing::warn!(
                        partition = self.partition,
                        "the cache forgot what it was told, or another fold has it: it is taken over again"
                    );
                }
                Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not told"),
            }
            metrics::CACHE_UPDATES.counter(&["failed"]).increment(values.len() as u64);
            self.hold = None;
        }
        if Instant::now() < self.from {
            return;
        }
        // Everything before the place of the standing is in the table by now.
        match cache.take_over(self.partition, &self.deployment, stated).await {
            Ok(hold) => self.hold = hold,
            Err(fault) if self.said.is_due(SAID) => {
                tracing::warn!(partition = self.partition, %fault, "the cache was not taken over");
            }
            Err(_) => {}
        }
    }
}
