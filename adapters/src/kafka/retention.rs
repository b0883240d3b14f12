//! How long a topic keeps its records.

use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::args::Settings;
use super::topics::topic_settings;

/// How long `topic` keeps a record; `None` where it keeps them for ever.
///
/// # Errors
/// The broker does not say, or its answer has no such setting.
pub async fn retention(settings: &Settings, topic: &str) -> Outcome<Option<Duration>> {
    let found = topic_settings(settings, topic).await?;
    let millis = found.get("retention.ms").and_then(|value| value.parse::<i64>().ok());
    let missing = || Fault::Transient(format!("reading the settings of `{topic}`: the answer has no retention.ms"));
    // -1 is for ever.
    Ok(u64::try_from(millis.ok_or_else(missing)?).ok().map(Duration::from_millis))
}
