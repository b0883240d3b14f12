//! How long a topic keeps its records.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::config::FromClientConfigAndContext as _;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::args::Settings;
use super::context::Context;
use super::fault::fault_of;

/// How long the broker may take to say it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long `topic` keeps a record; `None` where it keeps them for ever.
///
/// # Errors
/// The broker does not say, or its answer has no such setting.
pub async fn retention(settings: &Settings, topic: &str) -> Outcome<Option<Duration>> {
    let doing = format!("reading the settings of `{topic}`");
    let client = AdminClient::from_config_and_context(&settings.client.clone(), Context::new(settings));
    let client = client.map_err(|error| fault_of("creating a client", &error))?;
    let options = AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT));
    let asked = [ResourceSpecifier::Topic(topic)];
    let described = client.describe_configs(&asked, &options).await.map_err(|error| fault_of(&doing, &error))?;
    let missing = || Fault::Transient(format!("{doing}: the answer has no retention.ms"));
    let found = described.into_iter().next().ok_or_else(missing)?;
    let found = found.map_err(|code| Fault::Transient(format!("{doing}: {code}")))?;
    let millis = found.get("retention.ms").and_then(|entry| entry.value.as_deref()?.parse::<i64>().ok());
    // -1 is for ever.
    Ok(u64::try_from(millis.ok_or_else(missing)?).ok().map(Duration::from_millis))
}
