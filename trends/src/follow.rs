//! How far the ledger is written, read twice a second for all partitions of this process. What is missing in it is read after how far
//! it is written: a lapse is stored before anything behind it is called written.

use std::sync::Arc;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::StreamLabel;
use tally_core::ports::{ChangeStream, Checkpoints, Outcome, TopicReader};
use tally_service::{Clock, Invalid, Stop, Task};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::{Reached, Standing};

/// The wait between two readings.
const EVERY: Duration = Duration::from_millis(500);

/// How long one reading may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the table is asked which stream it has, and the topic how many partitions.
const SELDOM: Duration = Duration::from_secs(60);

/// The task that reads.
pub(crate) struct FollowLedger {
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) changes: Arc<dyn TopicReader>,
    /// How many partitions the topic of changes has.
    pub(crate) partitions: usize,
    pub(crate) clock: Clock,
    pub(crate) told: watch::Sender<Standing>,
}

impl FollowLedger {
    async fn label(&self) -> Outcome<StreamLabel> {
        Ok(self.stream.info().await.map_err(Fault::from)?.label)
    }

    async fn read(&self, label: &StreamLabel, reached: &mut Reached) -> Outcome<Standing> {
        let as_of = reached.read(&self.checkpoints.shards(label).await?);
        let lapses = self.checkpoints.lapses().await?.into_iter().map(|lapse| lapse.seconds).collect();
        let since = self.checkpoints.changes().await?.and_then(|terms| terms.since);
        Ok(Standing { as_of, since, lapses })
    }

    /// Refuses a topic whose partitions were changed: a subject's changes are in another one from then on.
    async fn check(&self) -> anyhow::Result<()> {
        let Ok(Ok(logs)) = timeout(PATIENCE, self.changes.logs()).await else { return Ok(()) };
        if logs.is_empty() || logs.len() == self.partitions {
            return Ok(());
        }
        let problem = format!("its topic had {} partitions and has {} now", self.partitions, logs.len());
        Err(Invalid::setting("changes-topic", problem).into())
    }
}

impl Task for FollowLedger {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let (mut known, mut reached): (Option<StreamLabel>, _) = (None, Reached::default());
        let mut looked = self.clock.reading().at;
        loop {
            let now = self.clock.reading().at;
            if known.is_none() || now.saturating_sub(looked) >= SELDOM {
                looked = now;
                stop.unless_requested(self.check()).await??;
                if let Ok(Ok(label)) = stop.unless_requested(timeout(PATIENCE, self.label())).await?
                    && known.as_ref() != Some(&label)
                {
                    (known, reached) = (Some(label), Reached::default());
                }
            }
            if let Some(label) = &known {
                let why = match stop.unless_requested(timeout(PATIENCE, self.read(label, &mut reached))).await? {
                    Ok(Ok(standing)) => {
                        self.told.send_replace(standing);
                        None
                    }
                    Ok(Err(fault)) => Some(fault.to_string()),
                    Err(_) => Some(format!("no answer within {PATIENCE:?}")),
                };
                if let Some(why) = why {
                    tracing::debug!(error = why, "how far the ledger is written cannot be read");
                }
            }
            if stop.unless_requested(self.clock.sleep(EVERY)).await.is_err() {
                return Ok(());
            }
        }
    }
}
