//! Which counters the deployment has, and over which Regions they are added up: read at the start and each second. No request
//! waits for it.

use std::time::Duration;

use tally_adapters::dynamodb::regions::NamedRegions;
use tally_adapters::dynamodb::{Checkpoints, Connection};
use tally_core::backoff::Backoff;
use tally_core::definitions::{Definition, Definitions, SubjectField};
use tally_service::{Clock, Host, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::Problem;

/// The wait between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// How long one reading may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the start waits for.
const DEPENDENCY: &str = "counters";

/// The counters and the Regions as they were last read. Clones see the same ones.
#[derive(Clone, Debug)]
pub struct Defined(watch::Receiver<(Definitions, NamedRegions)>);

impl Defined {
    /// Every counter, likes first.
    pub fn all(&self) -> Definitions {
        self.0.borrow().0.clone()
    }

    /// The Regions whose entries an answer adds up.
    pub fn regions(&self) -> NamedRegions {
        self.0.borrow().1.clone()
    }

    /// The counters of a subject, likes first.
    pub fn of(&self, subject: SubjectField) -> Vec<Definition> {
        self.0.borrow().0.iter().filter(|definition| definition.subject == subject).cloned().collect()
    }

    /// The counter `name` of a subject.
    ///
    /// # Errors
    /// The subject has no such counter.
    pub fn named(&self, subject: SubjectField, name: &str) -> Result<Definition, Problem> {
        let (defined, _) = &*self.0.borrow();
        let found = defined.named(name).filter(|definition| definition.subject == subject);
        found.cloned().ok_or(Problem::UnknownCounter)
    }
}

/// The task that reads them.
pub struct FollowDefinitions {
    deployment: Checkpoints,
    clock: Clock,
    latest: watch::Sender<(Definitions, NamedRegions)>,
}

impl FollowDefinitions {
    /// Waits for the first reading: without it a counter that is defined would be called unknown.
    ///
    /// # Errors
    /// A fault that waiting does not mend, or a stop.
    pub async fn begin(connection: &Connection, host: &Host) -> anyhow::Result<Self> {
        let deployment = Checkpoints::new(connection);
        let first = host.wait_for(DEPENDENCY, Backoff::STORE, || deployment.defined()).await?;
        Ok(Self { deployment, clock: host.clock(), latest: watch::Sender::new(first) })
    }

    /// What this task has read last, now and later.
    pub fn defined(&self) -> Defined {
        Defined(self.latest.subscribe())
    }

    /// A reading that fails leaves the counters as they were read before: none is ever taken away.
    async fn follow(&self) {
        let why = match timeout(PATIENCE, self.deployment.defined()).await {
            Ok(Ok(read)) => {
                self.latest.send_replace(read);
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
