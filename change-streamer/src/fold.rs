//! The fold: reads the log `changes` and keeps the counters, the cache and the milestones. An ordinary consumer group shares
//! out the partitions. A member that lost one and does not know it does no harm: every update names what it replaces.

mod cached;
mod known;
mod member;
mod partition;
mod resume;
mod stated;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_core::cached::Cache;
use tally_core::changes::DeploymentId;
use tally_core::ports::Intake;
use tally_service::{Host, Patience, Stage};

use member::Member;

/// What a fold works on.
#[derive(Clone)]
pub struct Folding {
    /// The counters.
    pub counters: Arc<Counters>,
    /// The cache, where there is one.
    pub cache: Option<Arc<dyn Cache>>,
    /// Where positions, standings and losses are stored.
    pub store: Arc<Changes>,
    /// Whose log it is.
    pub deployment: DeploymentId,
    /// How it is folded.
    pub rules: Rules,
}

/// How a partition is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long changes are gathered before counters are written.
    pub linger: Duration,
    /// How much memory what is gathered may take before it is written.
    pub bytes: usize,
    /// How many requests of a partition are under way at once.
    pub concurrency: usize,
    /// How often it is stored at most what may be said of the counters: less than a second, at which the log states it.
    pub standing: Duration,
    /// How often the position is stored that the next fold begins at.
    pub position: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(100),
            bytes: 16 << 20,
            concurrency: 16,
            standing: Duration::from_millis(700),
            position: Duration::from_secs(30),
        }
    }
}

impl Folding {
    /// Starts the member of the group, which folds the partitions that it is given.
    pub fn spawn(self, intake: Box<dyn Intake>, host: &Host, patience: &Patience) {
        let member = Member { intake, folding: Arc::new(self), host: host.clone(), patience: patience.clone() };
        host.spawn(Stage::Intake, "fold", member);
    }
}
