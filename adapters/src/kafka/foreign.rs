//! Looks whether a log of changes is another deployment's: two that write one log stop each other's counting.

use tally_core::changes::{BadMessage, DeploymentId, Message};
use tally_core::ports::{Outcome, TopicReader};
use tally_core::topic::Offset;

/// Returns what is wrong if the last message of a partition is not of `deployment` but of another one. A record that is
/// no message, or one of a later build, says nothing about that.
///
/// # Errors
/// The topic cannot be read.
pub async fn foreign_log(reader: &dyn TopicReader, deployment: &DeploymentId) -> Outcome<Option<String>> {
    for (partition, log) in reader.logs().await? {
        let last = Offset(log.end.0.saturating_sub(1)).max(log.start);
        let records = reader.read(&partition, last, log.end).await?;
        let Some(value) = records.iter().last().and_then(|record| record.value) else { continue };
        if let Err(BadMessage::Deployment(other)) = Message::read(value, deployment) {
            let topic = &partition.topic;
            return Ok(Some(format!(
                "`{topic}` has messages of another deployment, {other}: give each deployment a topic of its own"
            )));
        }
    }
    Ok(None)
}
