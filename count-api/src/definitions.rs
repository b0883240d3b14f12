//! Keeps in memory which counters the deployment defines, so that no request waits for a read of them. They are read
//! from DynamoDB at the start and every second, together with the names of the AWS Regions whose counts an answer adds
//! up. The process is not ready while `--topic` is not the topic that the deployment's events are in.

use tally_adapters::dynamodb::regions::NamedRegions;
use tally_adapters::dynamodb::{Checkpoints, Connection};
use tally_core::backoff::Backoff;
use tally_core::definitions::{Definition, Definitions, SubjectField};
use tally_core::ports::Outcome;
use tally_service::{Host, Readiness};
use tokio::sync::watch;

use crate::error::{Problem, Result};

/// The name under which the start waits for the first read.
const DEPENDENCY: &str = "counters";

/// The condition of readiness that the topic is the deployment's, named as the flag.
const TOPIC: &str = "topic";

/// The counters that were read last, and whether those without a topic have their events from another topic than
/// `--topic`. Clones see the same.
#[derive(Clone, Debug)]
pub struct Defined(watch::Receiver<(Definitions, bool)>);

impl Defined {
    /// Returns every counter, likes first.
    pub fn all(&self) -> Definitions {
        self.0.borrow().0.clone()
    }

    /// Returns the counters of a kind of subject, likes first.
    pub fn of(&self, subject: SubjectField) -> Vec<Definition> {
        self.0.borrow().0.iter().filter(|definition| definition.subject == subject).cloned().collect()
    }

    /// Returns the counter `name` of a kind of subject.
    ///
    /// # Errors
    /// Such subjects have no counter of this name.
    pub fn named(&self, subject: SubjectField, name: &str) -> Result<Definition> {
        let latest = self.0.borrow();
        let found = latest.0.named(name).filter(|definition| definition.subject == subject);
        found.cloned().ok_or(Problem::UnknownCounter)
    }

    /// Returns whether the counters without a topic have their events from another topic than `--topic`, so that no
    /// event written there counts.
    pub fn is_of_another_topic(&self) -> bool {
        self.0.borrow().1
    }
}

/// Reads the definitions again and again. Whoever reads the standings does so, see
/// [`FollowStandings`](crate::read::FollowStandings).
pub struct FollowDefinitions {
    deployment: Checkpoints,
    /// That of `--topic`.
    topic: String,
    readiness: Readiness,
    latest: watch::Sender<(Definitions, bool)>,
}

impl FollowDefinitions {
    /// Waits for the first read, before which a defined counter would be called unknown. `topic` is that of `--topic`.
    ///
    /// # Errors
    /// A fault that does not pass, or a stop.
    pub async fn begin(connection: &Connection, topic: &str, host: &Host) -> anyhow::Result<Self> {
        let (deployment, latest) = (Checkpoints::new(connection), watch::Sender::default());
        let this = Self { deployment, topic: topic.to_owned(), readiness: host.readiness().clone(), latest };
        host.wait_for(DEPENDENCY, Backoff::STORE, || this.follow()).await?;
        Ok(this)
    }

    /// Returns a view of what was read last.
    pub fn defined(&self) -> Defined {
        Defined(self.latest.subscribe())
    }

    /// Reads once, and returns the Regions whose entries an answer adds up. If that fails, the earlier counters stay, since
    /// none is ever removed.
    pub(crate) async fn follow(&self) -> Outcome<NamedRegions> {
        let (usual, regions) = self.deployment.defined().await?;
        let other = usual.topic.filter(|topic| *topic != self.topic);
        self.latest.send_replace((usual.definitions, other.is_some()));
        let Some(other) = other else {
            self.readiness.forget(TOPIC);
            return Ok(regions);
        };
        let own = &self.topic;
        let why =
            format!("--topic is `{own}`, and the rows are of the events of `{other}`: start this process with that");
        self.readiness.not_ready(TOPIC, why);
        Ok(regions)
    }
}
