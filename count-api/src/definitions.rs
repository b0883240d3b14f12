//! Follows which counters the deployment has, and which Regions an answer adds up. A task reads both at the start and
//! every second, so that no request waits for them.

use std::time::Duration;

use tally_adapters::dynamodb::regions::NamedRegions;
use tally_adapters::dynamodb::{Checkpoints, Connection};
use tally_core::backoff::Backoff;
use tally_core::definitions::{Definition, Definitions, SubjectField};
use tally_core::time::Now;
use tally_service::{Clock, Host, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Problem;

/// The wait between two reads.
const EVERY: Duration = Duration::from_secs(1);

/// The time limit of one read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name under which the start waits for the first read.
const DEPENDENCY: &str = "counters";

/// The counters and the Regions that were read last. Clones see the same ones.
#[derive(Clone, Debug)]
pub struct Defined(watch::Receiver<Read>);

/// The result of one read.
#[derive(Clone, Debug)]
struct Read {
    /// When it began.
    began: Now,
    counters: Definitions,
    regions: NamedRegions,
}

impl Defined {
    /// Returns every counter, likes first.
    pub fn all(&self) -> Definitions {
        self.0.borrow().counters.clone()
    }

    /// Returns the Regions whose entries an answer adds up, and when their read began.
    pub fn regions(&self) -> (NamedRegions, Now) {
        let read = self.0.borrow();
        (read.regions.clone(), read.began)
    }

    /// Returns the counters of a kind of subject, likes first.
    pub fn of(&self, subject: SubjectField) -> Vec<Definition> {
        self.0.borrow().counters.iter().filter(|definition| definition.subject == subject).cloned().collect()
    }

    /// Returns the counter `name` of a kind of subject.
    ///
    /// # Errors
    /// Such subjects have no counter of this name.
    pub fn named(&self, subject: SubjectField, name: &str) -> Result<Definition, Problem> {
        let read = self.0.borrow();
        let found = read.counters.named(name).filter(|definition| definition.subject == subject);
        found.cloned().ok_or(Problem::UnknownCounter)
    }
}

/// The task that reads the definitions.
pub struct FollowDefinitions {
    deployment: Checkpoints,
    clock: Clock,
    latest: watch::Sender<Read>,
}

impl FollowDefinitions {
    /// Waits for the first read, before which a defined counter would be called unknown.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn begin(connection: &Connection, host: &Host) -> anyhow::Result<Self> {
        let deployment = Checkpoints::new(connection);
        let began = host.clock().reading();
        let (counters, regions) = host.wait_for(DEPENDENCY, Backoff::STORE, || deployment.defined()).await?;
        let first = Read { began, counters, regions };
        Ok(Self { deployment, clock: host.clock(), latest: watch::Sender::new(first) })
    }

    /// Returns a view of what this task has read last.
    pub fn defined(&self) -> Defined {
        Defined(self.latest.subscribe())
    }

    /// Reads once. If that fails, the earlier counters stay, since none is ever removed.
    async fn follow(&self) {
        let began = self.clock.reading();
        let why = match timeout(PATIENCE, self.deployment.defined()).await {
            Ok(Ok((counters, regions))) => {
                self.latest.send_replace(Read { began, counters, regions });
                return;
            }
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        tracing::debug!(error = why, "the counters cannot be read: those read before stay");
    }
}

impl Task for FollowDefinitions {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            self.follow().await;
        }
        Ok(())
    }
}
