//! Reads a Kafka topic from end to end without joining a consumer group. Its bookmarks, which say how far a caller has
//! come, are the committed offsets of a group. It also lists the members of that group, and the partitions that each of
//! them holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use rdkafka::Offset as At;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::groups::{GroupList, GroupMemberInfo};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{self, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition, TopicId};

use super::args::Settings;
use super::context::Context;
use super::convert::{blocking, fault_of, list_of, offset_in, push, raw};
use super::topic_id;

/// How long one call to the broker may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many records one read returns at most, and how heavy they may get.
const RECORDS: usize = 1000;
const WEIGHT: usize = 4 << 20;

/// Reads one topic.
#[derive(Clone)]
pub struct TopicReader {
    topic: Box<str>,
    group: Box<str>,
    consumer: Arc<Mutex<BaseConsumer<Context>>>,
}

impl TopicReader {
    /// A reader of `topic` whose bookmarks belong to `group`.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn new(settings: &Settings, group: &str, topic: &str) -> Outcome<Self> {
        let mut config = settings.client.clone();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("enable.partition.eof", "true")
            // A read that has all it wanted leaves a request behind, which the broker answers only after this. Until then
            // the next read, of whatever partition, waits.
            .set("fetch.wait.max.ms", "10")
            .set("auto.offset.reset", "error");
        Ok(Self {
            topic: topic.into(),
            group: group.into(),
            consumer: Arc::new(Mutex::new(client(&config, settings)?)),
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&BaseConsumer<Context>) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let consumer = Arc::clone(&self.consumer);
        blocking(move || ask(&consumer.lock(), call)).await
    }
}

#[async_trait]
impl log::TopicReader for TopicReader {
    async fn exists(&self) -> Outcome<bool> {
        let topic = self.topic.clone();
        self.blocking(move |consumer| exists(consumer, &topic)).await
    }

    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        let topic = self.topic.clone();
        self.blocking(move |consumer| logs(consumer, &topic)).await
    }

    async fn log(&self, partition: &Partition) -> Outcome<Log> {
        let partition = partition.clone();
        self.blocking(move |consumer| log_of(consumer, &partition)).await
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        let partition = partition.clone();
        self.blocking(move |consumer| read(consumer, &partition, from, to)).await
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        // This call takes a time in an offset's place.
        let list = list_of(partition, At::Offset(i64::try_from(at.0).unwrap_or(i64::MAX)))?;
        self.blocking(move |consumer| {
            offset_in("finding the offset of a time", consumer.offsets_for_times(list, TIMEOUT))
        })
        .await
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        let list = list_of(partition, At::Invalid)?;
        self.blocking(move |consumer| offset_in("reading a bookmark", consumer.committed_offsets(list, TIMEOUT))).await
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        let list = list_of(partition, raw(at))?;
        self.blocking(move |consumer| {
            consumer.commit(&list, CommitMode::Sync).map_err(|error| fault_of("setting a bookmark", &error))
        })
        .await
    }
}

/// Returns a client for lookups: where logs end, how many partitions a topic has, and what `group` has committed. An end
/// is behind everything that was acknowledged, also where an open transaction hides later records from readers. With
/// this isolation level librdkafka does not ask for stable offsets; that makes no difference, since nobody commits the
/// group's offsets in a transaction.
pub(super) fn client_for_lookups(settings: &Settings, group: &str) -> Outcome<BaseConsumer<Context>> {
    let mut config = settings.client.clone();
    config.set("group.id", group).set("enable.auto.commit", "false").set("isolation.level", "read_uncommitted");
    client(&config, settings)
}

fn client(config: &ClientConfig, settings: &Settings) -> Outcome<BaseConsumer<Context>> {
    let consumer = config.create_with_context(Context::new(settings));
    consumer.map_err(|error| fault_of("creating a reader", &error))
}

/// Calls the client, and tells it of its brokers again if that fails. Polls before that until the client can log in:
/// only a poll asks for a token, and no task polls this client all the time. Several threads may ask at once. Blocks.
#[expect(clippy::disallowed_methods, reason = "a deadline of a blocking call, on a thread of its own")]
pub(super) fn ask<T>(
    consumer: &BaseConsumer<Context>,
    call: impl FnOnce(&BaseConsumer<Context>) -> Outcome<T>,
) -> Outcome<T> {
    let deadline = Instant::now() + TIMEOUT;
    while !consumer.context().can_log_in() {
        if Instant::now() >= deadline {
            return Err(Fault::Transient("logging in to kafka: no token in time".to_owned()));
        }
        // Nothing is assigned, so this can only be an error, which the call itself will report.
        drop(consumer.poll(Duration::from_millis(100)));
    }
    call(consumer).inspect_err(|_| consumer.context().brokers.name_again(consumer.client()))
}

fn exists(consumer: &BaseConsumer<Context>, topic: &str) -> Outcome<bool> {
    let doing = format!("looking for `{topic}`");
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).map_err(|error| fault_of(&doing, &error))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    match found.and_then(|found| found.error()).map(RDKafkaErrorCode::from) {
        None => Ok(found.is_some_and(|found| !found.partitions().is_empty())),
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(false),
        Some(code) => Err(fault_of(&doing, &KafkaError::MetadataFetch(code))),
    }
}

fn logs(consumer: &BaseConsumer<Context>, topic: &str) -> Outcome<Vec<(Partition, Log)>> {
    let failed = |error: KafkaError| fault_of(&format!("looking at `{topic}`"), &error);
    let id = topic_id::read(consumer.client(), topic, TIMEOUT)?;
    let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).map_err(failed)?;
    let partitions = metadata.topics().iter().flat_map(|found| found.partitions()).map(|partition| partition.id());
    let mut logs = Vec::new();
    for index in partitions.filter_map(|id| u32::try_from(id).ok()) {
        let partition = Partition { topic: topic.into(), index };
        logs.push((partition.clone(), watermarks(consumer, &partition, id.clone())?));
    }
    logs.sort_by_key(|(partition, _)| partition.index);
    Ok(logs)
}

/// Returns what the broker says of a log. Blocks. Asks for the id last: no topic gets an earlier one's id, so the other
/// answers are of that topic.
pub(super) fn log_of(consumer: &BaseConsumer<Context>, partition: &Partition) -> Outcome<Log> {
    let log = watermarks(consumer, partition, TopicId("".into()))?;
    Ok(Log { topic: topic_id::read(consumer.client(), &partition.topic, TIMEOUT)?, ..log })
}

fn watermarks(consumer: &BaseConsumer<Context>, partition: &Partition, id: TopicId) -> Outcome<Log> {
    let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
    let marks = consumer.fetch_watermarks(&partition.topic, index, TIMEOUT);
    let (start, end) = marks.map_err(|error| fault_of(&format!("looking at the log of {partition}"), &error))?;
    let offset =
        |raw| u64::try_from(raw).map(Offset).map_err(|_| Fault::Transient(format!("{partition} has no offsets")));
    Ok(Log { topic: id, start: offset(start)?, end: offset(end)? })
}

fn read(consumer: &BaseConsumer<Context>, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
    let mut records = Records::default();
    if from >= to {
        return Ok(records);
    }
    let failed = |error: KafkaError| fault_of(&format!("reading {partition}"), &error);
    consumer.assign(&list_of(partition, raw(from))?).map_err(failed)?;
    let read = fill(consumer, partition, to, &mut records);
    consumer.assign(&TopicPartitionList::new()).map_err(failed)?;
    read.map(|()| records)
}

#[expect(clippy::disallowed_methods, reason = "a deadline of a blocking call, on a thread of its own")]
fn fill(consumer: &BaseConsumer<Context>, partition: &Partition, to: Offset, records: &mut Records) -> Outcome<()> {
    let deadline = Instant::now() + TIMEOUT;
    while records.len() < RECORDS && records.weight() < WEIGHT {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let nothing =
                records.is_empty().then(|| Fault::Transient(format!("reading {partition}: no answer in time")));
            return nothing.map_or(Ok(()), Err);
        }
        match consumer.poll(left.min(Duration::from_millis(500))) {
            None => {}
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            Some(Err(error)) if fault_of("", &error).is_retryable() && records.is_empty() => {}
            Some(Err(error)) => return Err(fault_of(&format!("reading {partition}"), &error)),
            Some(Ok(message)) => {
                let Some(left) = raw(to).to_raw().map(|to| to - message.offset()).filter(|left| *left > 0) else {
                    break;
                };
                push(records, &message);
                // This was the last one. The client would wait for the next record, which may not be there yet.
                if left == 1 {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// How long the brokers may take to describe a group.
const DESCRIBING: Duration = Duration::from_secs(5);

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name that its process gives itself.
    pub client: String,
    /// Where it connects from.
    pub host: String,
    /// The partitions of the topic that it holds.
    pub partitions: Vec<u32>,
}

impl TopicReader {
    /// Returns the members of the reader's group; none where there is no such group.
    ///
    /// # Errors
    /// The brokers do not say.
    pub async fn members(&self) -> Outcome<Vec<Member>> {
        let (group, topic) = (self.group.clone(), self.topic.clone());
        self.blocking(move |consumer| {
            let listed = consumer.fetch_group_list(Some(&group), DESCRIBING);
            let listed = listed.map_err(|error| fault_of(&format!("describing group `{group}`"), &error))?;
            Ok(members(&listed, &topic))
        })
        .await
    }
}

fn members(listed: &GroupList, topic: &str) -> Vec<Member> {
    let member = |member: &GroupMemberInfo| Member {
        client: member.client_id().to_owned(),
        // A broker writes it as `/10.0.0.7`.
        host: member.client_host().trim_start_matches('/').to_owned(),
        partitions: member.assignment().and_then(|assigned| assigned_of(assigned, topic)).unwrap_or_default(),
    };
    listed.groups().iter().flat_map(|group| group.members()).map(member).collect()
}

/// Returns the partitions of `topic` in an assignment of Kafka's consumer protocol: a version, and for each topic its
/// name and its partitions. `None` where the bytes are no such assignment.
fn assigned_of(mut assigned: &[u8], topic: &str) -> Option<Vec<u32>> {
    let rest = &mut assigned;
    take::<2>(rest)?;
    let mut found = Vec::new();
    for _ in 0..u32::from_be_bytes(take(rest)?) {
        let length = usize::from(u16::from_be_bytes(take(rest)?));
        let (name, behind) = rest.split_at_checked(length)?;
        *rest = behind;
        for _ in 0..u32::from_be_bytes(take(rest)?) {
            let partition = u32::from_be_bytes(take(rest)?);
            if name == topic.as_bytes() {
                found.push(partition);
            }
        }
    }
    Some(found)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_holds_of_a_topic_is_read_from_its_assignment_and_nothing_from_anything_else() {
        let of = |topic: &str, partitions: &[u32]| {
            let length = u16::try_from(topic.len()).unwrap().to_be_bytes();
            let count = u32::try_from(partitions.len()).unwrap().to_be_bytes();
            let each = partitions.iter().flat_map(|partition| partition.to_be_bytes());
            length.into_iter().chain(topic.bytes()).chain(count).chain(each).collect::<Vec<u8>>()
        };
        let head = [0, 1, 0, 0, 0, 2];
        let mut assigned = [&head[..], &of("likes", &[0, 300]), &of("views", &[7])].concat();
        assigned.extend([0xff; 4]);
        assert_eq!(assigned_of(&assigned, "likes"), Some(vec![0, 300]));
        assert_eq!(assigned_of(&assigned, "other"), Some(vec![]));
        assert_eq!(assigned_of(&assigned[..20], "likes"), None);
        assert_eq!(assigned_of(&[], "likes"), None);
    }
}
