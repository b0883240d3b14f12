//! Whether the deployment has a ledger of changes, and whether this process is one to feed it: every streamer has to, or some
//! of the stream would be left out.

use std::sync::Arc;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::ids::{Ordinal, StreamLabel};
use tally_core::ledger::Rules;
use tally_core::ports::{ChangesTerms, Checkpoints, Producer, TopicReader};
use tally_service::{Clock, Host, Invalid, Patience, Stop, Task};

use crate::recorder::{Recording, Waiting};
use crate::slots::Slots;

/// The setting that says it.
const NAME: &str = "changes-topic";

/// How long the topic is asked for where its partitions are known.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far the clocks of two machines are apart at most.
const SKEW: Duration = Duration::from_secs(10);

/// How long a lapse is kept behind its end: longer than any window that it could be in.
const KEPT: Duration = Duration::from_secs(27 * 3600);

/// The wait between two looks at the lapses.
const EVERY: Duration = Duration::from_secs(600);

/// The bounds of a streamer's part in the ledger.
pub(crate) const RULES: Rules = Rules {
    age: Duration::from_millis(500),
    store: Duration::from_secs(1),
    bytes: 64 << 20,
    patience: Duration::from_secs(600),
    farewell: Duration::from_secs(2),
};

/// Where changes are written.
#[derive(Clone)]
pub struct ChangesPort {
    /// Writes them.
    pub producer: Arc<dyn Producer>,
    /// The topic.
    pub topic: String,
    /// The topic, to be asked how many partitions it has.
    pub log: Arc<dyn TopicReader>,
}

/// What the recorders of this process share; `None` where the deployment has no ledger of changes. The first streamer that
/// is given a topic begins it.
///
/// # Errors
/// The deployment has a ledger and this process is given no topic, or one of another number of partitions; a fault that
/// waiting does not mend; a stop.
pub(crate) async fn joined(
    host: &Host,
    checkpoints: &Arc<dyn Checkpoints>,
    port: Option<&ChangesPort>,
    label: &StreamLabel,
    patience: Patience,
) -> anyhow::Result<Option<Recording>> {
    let stands = host.wait_for(NAME, Backoff::STORE, || checkpoints.changes()).await?;
    let port = match (port, stands) {
        (Some(port), _) => port,
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            let problem = "missing: the deployment has a ledger of changes, and what a streamer without it reads would be left out";
            return Err(Invalid::setting(NAME, problem).into());
        }
    };
    let partitions = partitions(host, port, stands).await?;
    let begin = async || {
        let next = checkpoints.registry(label).await?.map_or(Ordinal(0), |registry| registry.next);
        checkpoints.begin_changes(partitions, next).await
    };
    let terms = match stands {
        Some(terms) => terms,
        None => host.wait_for(NAME, Backoff::STORE, begin).await?,
    };
    if terms.partitions != partitions {
        let problem = format!(
            "topic {} has {partitions} partitions, and the ledger of changes was begun with {}",
            port.topic, terms.partitions
        );
        return Err(Invalid::setting(NAME, problem).into());
    }
    if terms.since.is_none() {
        host.wait_for(NAME, Backoff::STORE, || adopt(&**checkpoints, label, terms, host.clock())).await?;
        tracing::info!(topic = port.topic, partitions, "the ledger of changes is begun");
    }
    Ok(Some(Recording {
        log: Arc::clone(&port.producer),
        topic: port.topic.as_str().into(),
        partitions,
        checkpoints: Arc::clone(checkpoints),
        patience,
        rules: RULES,
        waiting: Waiting::default(),
        slots: Slots::default(),
    }))
}

/// How many partitions the topic has. Counts do not wait for Kafka where the ledger is begun: its terms decide where
/// changes are written in any case.
async fn partitions(host: &Host, port: &ChangesPort, stands: Option<ChangesTerms>) -> anyhow::Result<u32> {
    let count = || async { port.log.logs().await.map(|logs| u32::try_from(logs.len()).unwrap_or(u32::MAX)) };
    let asked = host.wait_for("kafka", Backoff::STORE, count);
    let Some(stands) = stands else { return asked.await };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(counted) => counted,
        Err(_) => {
            tracing::warn!(
                topic = port.topic,
                "Kafka does not answer: the topic's partitions are taken to be those of the ledger"
            );
            Ok(stands.partitions)
        }
    }
}

/// Stream shards from before the ledger are in it from where they are now. Safe to repeat: what is stored stays.
async fn adopt(
    checkpoints: &dyn Checkpoints,
    label: &StreamLabel,
    terms: ChangesTerms,
    clock: Clock,
) -> tally_core::ports::Outcome<()> {
    for state in checkpoints.shards(label).await? {
        if state.checkpoint.ordinal < terms.from {
            checkpoints.adopt(label, &state.checkpoint).await?;
        }
    }
    checkpoints.changes_complete(clock.now().plus(SKEW)).await
}

/// The task that drops lapses that no window can be in any more.
pub(crate) struct DropLapses {
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) clock: Clock,
}

impl Task for DropLapses {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            let oldest = self.clock.now().minus(KEPT).0 / 1000;
            let lapses = self.checkpoints.lapses().await.unwrap_or_default();
            for lapse in lapses.into_iter().filter(|lapse| lapse.seconds.last < oldest) {
                if let Err(fault) = self.checkpoints.drop_lapse(lapse).await {
                    tracing::debug!(error = %fault, "a lapse of the ledger of changes cannot be dropped");
                }
            }
        }
        Ok(())
    }
}
