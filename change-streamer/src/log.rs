//! Compares the topic of the log `changes` with the configuration of the log that the deployment has stored. The first
//! process stores it; a topic that was created anew becomes the next generation; one that another deployment writes, or
//! that has another number of partitions, is refused or reported. The process calls [`joined`] and [`name_others`] at
//! start, and each fold calls [`configured`] and [`require_partitions`] when it begins.

use std::sync::Arc;

use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::kafka::foreign_log;
use tally_core::backoff::Backoff;
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ports::{Intake, Outcome, Producer, TopicReader};
use tally_core::topic::TopicId;
use tally_service::{Host, Invalid};

/// How the log is reached.
#[derive(Clone)]
pub struct LogPorts {
    /// The topic's name.
    pub topic: String,
    /// Writes the topic.
    pub producer: Arc<dyn Producer>,
    /// Reads the topic outside of any group.
    pub reader: Arc<dyn TopicReader>,
    /// Joins the group that folds it.
    pub join: Arc<dyn Fn() -> Outcome<Box<dyn Intake>> + Send + Sync>,
}

/// Returns the name of the group that folds the log of a deployment.
pub fn group_of(table_prefix: &str) -> String {
    format!("{table_prefix}tally-change-streamer")
}

/// Waits for the topic; returns the log's configuration, which is stored first where there is none. Safe to repeat.
///
/// # Errors
/// A topic of another number of partitions or another deployment, a fault that waiting does not mend, or a stop.
pub(crate) async fn joined(host: &Host, changes: &Changes, log: &LogPorts) -> anyhow::Result<Config> {
    let deployment = DeploymentId(format!("{:032x}", host.chance().token()).into());
    let look = || async {
        let (topic, partitions) = partitions_of(&*log.reader, &log.topic).await?;
        let new = Config { deployment: deployment.clone(), partitions, topic: topic.clone(), generation: 1 };
        // Before anything is stored or sent. A deployment that has begun with this topic goes on, since others may have
        // begun to write it later.
        if let Some(problem) = foreign_log(&*log.reader, &deployment).await? {
            let is_foreign = match changes.config().await? {
                None => true,
                Some(config) if config.topic == topic => false,
                Some(config) => foreign_log(&*log.reader, &config.deployment).await?.is_some(),
            };
            if is_foreign {
                return Ok(Err(Invalid::setting("changes-topic", problem)));
            }
        }
        changes.begin_log(&new).await?;
        Ok(Ok((configured(changes, &topic).await?, partitions)))
    };
    let (config, partitions) = host.wait_for("changes", Backoff::STORE, look).await??;
    require_partitions(&config, partitions)?;
    Ok(config)
}

/// Logs an error if another deployment writes the topic as well: the folds of both halt at messages that are not
/// theirs. The relay goes on, since the table's stream forgets what is not copied within a day.
///
/// # Errors
/// A fault that waiting does not mend, or a stop.
pub(crate) async fn name_others(host: &Host, config: &Config, log: &LogPorts) -> anyhow::Result<()> {
    let look = || foreign_log(&*log.reader, &config.deployment);
    if let Some(problem) = host.wait_for("changes", Backoff::STORE, look).await? {
        tracing::error!(topic = log.topic, problem, "another deployment writes the log of changes");
    }
    Ok(())
}

/// Checks that the topic has as many partitions as the log: otherwise counters would be looked for elsewhere.
///
/// # Errors
/// The topic has another number of partitions than the log.
pub(crate) fn require_partitions(config: &Config, partitions: u32) -> Result<(), Invalid> {
    if partitions == config.partitions {
        return Ok(());
    }
    let problem = format!(
        "the topic has {partitions} partitions, and the log of this deployment {}: create it anew with as many",
        config.partitions
    );
    Err(Invalid::setting("changes-topic", problem))
}

/// Returns a topic's id and its number of partitions.
pub(crate) async fn partitions_of(reader: &dyn TopicReader, topic: &str) -> Outcome<(TopicId, u32)> {
    let partitions = reader.logs().await?;
    let count = u32::try_from(partitions.len()).unwrap_or(u32::MAX);
    let first = partitions.into_iter().next();
    let (_, first) = first.ok_or_else(|| Fault::Transient(format!("there is no topic `{topic}`")))?;
    Ok((first.topic, count))
}

/// Returns the stored configuration of the log. If the topic was created anew since, stores it as the log's next
/// generation. Changes in the former topic are lost, which the fold of each partition finds.
pub(crate) async fn configured(changes: &Changes, topic: &TopicId) -> Outcome<Config> {
    let config = changes.begun().await?;
    if config.topic == *topic {
        return Ok(config);
    }
    let adopted = changes.adopt_topic(&config, topic, config.partitions).await?;
    adopted.ok_or_else(|| Fault::Transient("another process has adopted the topic of changes".to_owned()))
}
