//! Which counters the deployment has, and which Regions an answer adds up. Both are read at the start and every second, so
//! that no request waits for them.

use tally_adapters::dynamodb::regions::NamedRegions;
use tally_adapters::dynamodb::{Checkpoints, Connection};
use tally_core::backoff::Backoff;
use tally_core::definitions::{Definition, Definitions, SubjectField};
use tally_core::ports::Outcome;
use tally_service::Host;
use tokio::sync::watch;

use crate::error::{Problem, Result};

/// The name under which the start waits for the first read.
const DEPENDENCY: &str = "counters";

/// The counters that were read last. Clones see the same ones.
#[derive(Clone, Debug)]
pub struct Defined(watch::Receiver<Definitions>);

impl Defined {
    /// Returns every counter, likes first.
    pub fn all(&self) -> Definitions {
        self.0.borrow().clone()
    }

    /// Returns the counters of a kind of subject, likes first.
    pub fn of(&self, subject: SubjectField) -> Vec<Definition> {
        self.0.borrow().iter().filter(|definition| definition.subject == subject).cloned().collect()
    }

    /// Returns the counter `name` of a kind of subject.
    ///
    /// # Errors
    /// Such subjects have no counter of this name.
    pub fn named(&self, subject: SubjectField, name: &str) -> Result<Definition> {
        let counters = self.0.borrow();
        let found = counters.named(name).filter(|definition| definition.subject == subject);
        found.cloned().ok_or(Problem::UnknownCounter)
    }
}

/// Reads the definitions again and again. Whoever reads the standings does so, see
/// [`FollowStandings`](crate::read::FollowStandings).
pub struct FollowDefinitions {
    deployment: Checkpoints,
    latest: watch::Sender<Definitions>,
}

impl FollowDefinitions {
    /// Waits for the first read, before which a defined counter would be called unknown.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn begin(connection: &Connection, host: &Host) -> anyhow::Result<Self> {
        let deployment = Checkpoints::new(connection);
        let (counters, _) = host.wait_for(DEPENDENCY, Backoff::STORE, || deployment.defined()).await?;
        Ok(Self { deployment, latest: watch::Sender::new(counters) })
    }

    /// Returns a view of what was read last.
    pub fn defined(&self) -> Defined {
        Defined(self.latest.subscribe())
    }

    /// Reads once, and returns the Regions whose entries an answer adds up. If that fails, the earlier counters stay, since
    /// none is ever removed.
    pub(crate) async fn follow(&self) -> Outcome<NamedRegions> {
        let (counters, regions) = self.deployment.defined().await?;
        self.latest.send_replace(counters);
        Ok(regions)
    }
}
