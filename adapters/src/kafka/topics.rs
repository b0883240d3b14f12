//! Creates Kafka topics for operators, reads the settings and the last records of topics, watches topics that services
//! need, and finds out whether another deployment writes to the same log of changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::types::RDKafkaErrorCode;
use tally_core::changes::{BadMessage, DeploymentId, Message};
use tally_core::fault::Fault;
use tally_core::ports::log::Records;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::topic::{Offset, Partition};
use tally_service::{Clock, Host, Readiness, Stage, Stop, Task};
use tokio::time::timeout;

use super::args::Settings;
use super::context::Context;
use super::convert::fault_of;

/// How long the broker may take to answer, or one look at a topic.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a topic with `replication` replicas, or as many as the brokers choose. Returns whether it was created. Safe
/// to repeat: a topic that is there stays as it is.
///
/// # Errors
/// The brokers give no answer, or refuse.
pub async fn create_topic(
    settings: &Settings,
    name: &str,
    partitions: u32,
    replication: Option<u32>,
    configs: &[(&str, &str)],
) -> Outcome<bool> {
    let doing = format!("creating `{name}`");
    let number = |count: u32| i32::try_from(count).map_err(|_| Fault::Fatal(format!("{doing}: {count} is too many")));
    let replicas = TopicReplication::Fixed(replication.map_or(Ok(-1), number)?);
    let mut topic = NewTopic::new(name, number(partitions)?, replicas);
    for (key, value) in configs {
        topic = topic.set(key, value);
    }
    let created = client(settings)?.create_topics([&topic], &options()).await;
    match created.map_err(|error| fault_of(&doing, &error))?.into_iter().next() {
        Some(Ok(_)) => Ok(true),
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(false),
        Some(Err((_, code))) => Err(Fault::Fatal(format!("{doing}: {code}"))),
        None => Err(Fault::Transient(format!("{doing}: no answer"))),
    }
}

/// Returns those settings of a topic that have a value.
///
/// # Errors
/// The broker does not say.
pub async fn topic_settings(settings: &Settings, name: &str) -> Outcome<BTreeMap<String, String>> {
    let doing = format!("reading the settings of `{name}`");
    let asked = [ResourceSpecifier::Topic(name)];
    let described = client(settings)?.describe_configs(&asked, &options()).await;
    let described = described.map_err(|error| fault_of(&doing, &error))?.into_iter().next();
    let found = described.ok_or_else(|| Fault::Transient(format!("{doing}: no answer")))?;
    let found = found.map_err(|code| Fault::Transient(format!("{doing}: {code}")))?;
    Ok(found.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect())
}

/// Returns how long `topic` keeps a record; `None` where it keeps them for ever.
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

fn client(settings: &Settings) -> Outcome<AdminClient<Context>> {
    let client = AdminClient::from_config_and_context(&settings.client.clone(), Context::new(settings));
    client.map_err(|error| fault_of("creating a client", &error))
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT))
}

/// How often the task looks.
const EVERY: Duration = Duration::from_secs(10);

/// The task that watches a topic that a service needs. While there is no such topic, the service is not ready, and the log
/// names it. Where a look fails, the condition stays as it was: other parts say whether Kafka answers.
pub struct NeededTopic {
    reader: Arc<dyn TopicReader>,
    topic: String,
    /// What the topic is for.
    purpose: &'static str,
    readiness: Readiness,
    clock: Clock,
}

impl NeededTopic {
    /// Spawns the task, under `name`, that watches the topic that `reader` reads.
    pub fn watch(host: &Host, name: &str, reader: Arc<dyn TopicReader>, topic: &str, purpose: &'static str) {
        let (topic, readiness, clock) = (topic.to_owned(), host.readiness().clone(), host.clock());
        host.spawn(Stage::Support, name, Self { reader, topic, purpose, readiness, clock });
    }
}

impl Task for NeededTopic {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Self { reader, topic, purpose, readiness, clock } = self;
        loop {
            if let Ok(Ok(is_there)) = stop.unless_requested(timeout(TIMEOUT, reader.exists())).await? {
                say_whether_there(&readiness, &topic, purpose, is_there);
            }
            stop.unless_requested(clock.sleep(EVERY)).await?;
        }
    }
}

/// Shows in readiness and, once for each change, logs whether a topic is there.
pub fn say_whether_there(readiness: &Readiness, topic: &str, purpose: &str, is_there: bool) {
    let condition = format!("topic-{topic}");
    let was_missing = readiness.report().conditions.contains_key(&condition);
    match (is_there, was_missing) {
        (true, true) => {
            readiness.forget(&condition);
            tracing::info!(topic, purpose, "the topic is there now");
        }
        (false, false) => {
            readiness.not_ready(&condition, format!("there is no topic `{topic}`, which is for {purpose}: create it"));
            tracing::warn!(topic, purpose, "there is no such topic: create it");
        }
        _ => {}
    }
}

/// Looks whether a log of changes is another deployment's: two that write one log stop each other's counting. Returns what
/// is wrong if the last message of a partition is not of `deployment` but of another one. A record that is
/// no message, or one of a later build, says nothing about that.
///
/// # Errors
/// The topic cannot be read.
pub async fn foreign_log(reader: &dyn TopicReader, deployment: &DeploymentId) -> Outcome<Option<String>> {
    let last = last_records(reader).await?;
    let mut other = last.iter().filter_map(|(partition, records)| {
        let value = records.iter().last()?.value?;
        let Err(BadMessage::Deployment(other)) = Message::read(value, deployment) else { return None };
        Some(shared(&partition.topic, &other))
    });
    Ok(other.next())
}

/// Says that a topic has messages of the deployment `other`.
pub fn shared(topic: &str, other: &str) -> String {
    format!("`{topic}` has messages of another deployment, {other}: give each deployment a topic of its own")
}

/// Returns the last record of each partition, as a run of one. The last record of a compacted log is never dropped.
///
/// # Errors
/// The topic cannot be read.
pub async fn last_records(reader: &dyn TopicReader) -> Outcome<Vec<(Partition, Records)>> {
    let mut found = Vec::new();
    for (partition, log) in reader.logs().await? {
        let last = Offset(log.end.0.saturating_sub(1)).max(log.start);
        let records = reader.read(&partition, last, log.end).await?;
        if !records.is_empty() {
            found.push((partition, records));
        }
    }
    Ok(found)
}
