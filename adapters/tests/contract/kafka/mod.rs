//! Tests what Tally relies on in Kafka: membership of consumer groups, reading, producing and transactions. They run
//! with the in-memory log and with librdkafka: with the brokers in `TALLY_TEST_BROKERS`, or else with its in-process
//! cluster.

mod engine;
mod groups;
mod member;

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::AdminOptions;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tally_adapters::kafka::TopicReader as KafkaTopicReader;
use tally_core::event::partition_of;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Outcome, TopicReader as _};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition, TopicId};
use tokio::time::Instant;

use self::engine::{Engine, Librdkafka, PARTITIONS, Twin, engines};
use self::member::Member;

fn record<'a>(topic: &'a str, partition: u32, value: &'a [u8]) -> Outgoing<'a> {
    Outgoing { topic, partition: Some(partition), key: Some(b"k"), value: Some(value), headers: &[] }
}

async fn fill(engine: &dyn Engine, index: u32, count: u64) {
    let producer = engine.producer();
    for n in 0..count {
        let written = producer.send(record(engine.topic(), index, n.to_string().as_bytes())).await.unwrap();
        assert_eq!((written.partition, written.offset), (index, Offset(n)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_arrives_unchanged_in_the_partition_of_its_key() {
    for engine in engines().await {
        let headers = [("trace", Some(&b"t\xff"[..])), ("empty", None)];
        let sent =
            Outgoing { topic: engine.topic(), partition: None, key: Some(b"p-7"), value: None, headers: &headers };
        let written = engine.producer().send(sent).await.unwrap();
        assert_eq!(written.partition, partition_of(b"p-7", PARTITIONS));
        let mut member = Member::alone(&*engine).await;
        member.start(written.partition, 0).await;
        let owned = Arc::clone(&member.owned[&written.partition]);
        let records = member.polled(async move { owned.records().await.unwrap() }).await;
        let record = records.get(0).unwrap();
        assert_eq!((record.offset, record.key, record.value), (Offset(0), Some(&b"p-7"[..]), None));
        assert_eq!(record.headers().collect::<Vec<_>>(), headers);
        member.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_member_resumes_at_the_finished_offset_if_there_is_one() {
    for engine in engines().await {
        fill(&*engine, 1, 3).await;
        let mut member = Member::alone(&*engine).await;
        for index in [0, 1] {
            assert_eq!(member.committed(index).await, Ok(None));
        }
        member.start(1, 0).await;
        let owned = Arc::clone(&member.owned[&1]);
        let told = async move {
            owned.finished(Offset(2));
            while owned.committed().await != Ok(Some(Offset(2))) {
                tokio::task::yield_now().await;
            }
        };
        member.polled(told).await;
        member.leave().await;
        let mut next = Member::alone(&*engine).await;
        for (index, committed) in [(0, None), (1, Some(Offset(2)))] {
            assert_eq!(next.committed(index).await, Ok(committed));
        }
        next.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_read_from_any_start_and_can_be_restarted_elsewhere() {
    for engine in engines().await {
        fill(&*engine, 1, 300).await;
        let mut member = Member::alone(&*engine).await;
        let owned = Arc::clone(&member.owned[&1]);
        let (log, count) = member.polled(async { (owned.log().await, owned.partitions().await) }).await;
        let log = log.unwrap();
        assert_eq!((log.start, log.end, count), (Offset(0), Offset(300), Ok(PARTITIONS)));
        for at in [40, 290, 7, 7, 299] {
            member.start(1, at).await;
            let left = usize::try_from(300 - at).unwrap();
            assert_eq!(member.read(1, left).await, (at..300).collect::<Vec<_>>(), "from {at}");
        }
        member.start(1, 10).await;
        member.start(1, 200).await;
        assert_eq!(member.read(1, 1).await[0], 200, "nothing of the older position comes through");
        drop(owned);
        member.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_outside_of_the_log_is_a_fault() {
    for engine in engines().await {
        fill(&*engine, 0, 5).await;
        let mut member = Member::alone(&*engine).await;
        member.start(0, 999).await;
        let owned = Arc::clone(&member.owned[&0]);
        let fault = member.polled(async move { owned.records().await.unwrap_err() }).await;
        assert!(fault.is_retryable(), "{fault}");
        member.start(0, 3).await;
        assert_eq!(member.read(0, 2).await, [3, 4]);
        member.leave().await;
    }
}

/// The partition has ten records; the first six are deleted.
async fn what_is_left_is_read(engine: &dyn Engine) {
    let mut member = Member::alone(engine).await;
    let owned = Arc::clone(&member.owned[&0]);
    let log = member.polled(async { owned.log().await }).await.unwrap();
    assert_eq!((log.start, log.end), (Offset(6), Offset(10)));
    member.start(0, 3).await;
    let fault = member.polled(async { owned.records().await.unwrap_err() }).await;
    assert!(fault.is_retryable(), "{fault}");
    member.start(1, 0).await;
    assert_eq!(member.read(1, 2).await, [0, 1], "other partitions are as they were");
    member.start(0, 6).await;
    assert_eq!(member.read(0, 4).await, [6, 7, 8, 9]);
    drop(owned);
    member.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_records_are_a_fault_and_the_log_states_its_first_offset() {
    let twin = Twin::new(PARTITIONS);
    fill(&twin, 0, 10).await;
    fill(&twin, 1, 2).await;
    twin.0.trim("likes", 0, 6);
    what_is_left_is_read(&twin).await;
}

/// The in-process cluster cannot delete records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn records_deleted_by_kafka_are_a_fault_and_the_log_states_its_first_offset() {
    let kafka = Librdkafka::elsewhere(PARTITIONS).await;
    fill(&kafka, 0, 10).await;
    fill(&kafka, 1, 2).await;
    kafka.delete_before(0, 6).await;
    what_is_left_is_read(&kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_reader_reads_up_to_an_offset_and_stores_a_bookmark() {
    for engine in engines().await {
        fill(&*engine, 2, 20).await;
        let reader = engine.reader();
        let logs = reader.logs().await.unwrap();
        let ends: Vec<(u32, u64)> = logs.iter().map(|(partition, log)| (partition.index, log.end.0)).collect();
        assert_eq!(ends, [(0, 0), (1, 0), (2, 20), (3, 0)]);
        let partition = Partition { topic: engine.topic().into(), index: 2 };
        let read = reader.read(&partition, Offset(5), Offset(9)).await.unwrap();
        assert_eq!(read.iter().map(|record| record.offset.0).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(reader.read(&partition, Offset(9), Offset(9)).await.unwrap().is_empty());
        assert_eq!(settled(async || reader.bookmark(&partition).await).await, Ok(None));
        settled(async || reader.mark(&partition, Offset(9)).await).await.unwrap();
        assert_eq!(settled(async || engine.reader().bookmark(&partition).await).await, Ok(Some(Offset(9))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_is_written_as_a_whole_after_its_name_was_taken_over() {
    for engine in engines().await {
        let (writer, topic) = (engine.transactions(), engine.topic());
        let all = [record(topic, 0, b"a"), record(topic, 1, b"b"), record(topic, 0, b"c")];
        assert!(writer.write(&all).await.is_err(), "the name is not taken over yet");
        settled(async || writer.take_over().await).await.unwrap();
        writer.write(&all).await.unwrap();
        writer.write(&[]).await.unwrap();
        writer.write(&all[..1]).await.unwrap();
        assert_eq!(values(&*engine, 0).await, [b"a", b"c", b"a"]);
        assert_eq!(values(&*engine, 1).await, [b"b"]);
    }
}

/// Of two writers with one transactional id, only the last one to take it over can write.
async fn the_last_to_take_the_name_over_writes(engine: &dyn Engine) {
    let (first, second) = (engine.transactions(), engine.transactions());
    let all = [record(engine.topic(), 0, b"a"), record(engine.topic(), 0, b"b")];
    settled(async || first.take_over().await).await.unwrap();
    first.write(&all[..1]).await.unwrap();
    second.take_over().await.unwrap();
    assert!(first.write(&all).await.is_err(), "another has taken the name over");
    assert!(first.write(&all).await.is_err(), "and a fault is for good");
    second.write(&all[1..]).await.unwrap();
    assert_eq!(values(engine, 0).await, [b"a", b"b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_has_lost_its_name_cannot_finish_a_transaction() {
    the_last_to_take_the_name_over_writes(&Twin::new(PARTITIONS)).await;
}

/// The in-process cluster does not fence writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn a_writer_that_has_lost_its_name_cannot_finish_a_transaction_in_kafka() {
    the_last_to_take_the_name_over_writes(&Librdkafka::elsewhere(PARTITIONS).await).await;
}

/// The values in a partition.
async fn values(engine: &dyn Engine, index: u32) -> Vec<Vec<u8>> {
    let runs = tally_testkit::records(&*engine.reader()).await.unwrap();
    let found = runs.iter().filter(|(partition, _)| *partition == index).flat_map(|(_, run)| run.iter());
    found.filter_map(|record| record.value.map(<[u8]>::to_vec)).collect()
}

/// Repeats `call` while its fault is transient: a broker that has just started has no coordinator yet.
async fn settled<T>(call: impl AsyncFn() -> Outcome<T>) -> Outcome<T> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match call().await {
            Err(fault) if fault.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn topic_id(engine: &Librdkafka, topic: &str) -> TopicId {
    let reader = KafkaTopicReader::new(&engine.settings(), "marks", topic).unwrap();
    let id = reader.logs().await.unwrap().remove(0).1.topic;
    assert_eq!(reader.logs().await.unwrap().remove(0).1.topic, id, "an id is the topic's for its life");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_with_different_names_have_different_ids() {
    let engine = Librdkafka::in_process(1);
    let other = format!("{}-other", engine.topic());
    engine.create_topic(&other, 1).await;
    assert_ne!(topic_id(&engine, engine.topic()).await, topic_id(&engine, &other).await);
}

/// The in-process cluster has no topic ids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the brokers that TALLY_TEST_BROKERS names; localstack/engines test runs it"]
async fn a_recreated_topic_has_another_id() {
    let engine = Librdkafka::elsewhere(1).await;
    let topic = engine.topic();
    let before = topic_id(&engine, topic).await;
    assert_ne!(before, TopicId(topic.into()), "the broker has ids");
    let deleted = engine.admin().delete_topics(&[topic], &AdminOptions::new()).await.unwrap().remove(0);
    assert_eq!(deleted.unwrap(), topic);
    engine.create_topic(topic, 1).await;
    assert_ne!(topic_id(&engine, topic).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_failed_permanently_is_replaced() {
    let engine = Librdkafka::in_process(1);
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    let cluster = engine.cluster.as_ref().unwrap();
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[refused]);
    let producer = engine.producer();
    let fault = producer.send(record(engine.topic(), 0, b"1")).await.unwrap_err();
    assert!(fault.is_retryable() && fault.to_string().contains("replaced"), "{fault}");
    let written = producer.send(record(engine.topic(), 0, b"2")).await.unwrap();
    assert_eq!(written.offset, Offset(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_time_is_no_broker_that_is_away_and_the_next_record_is_written() {
    let engine = Librdkafka::in_process(1);
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
    engine.cluster.as_ref().unwrap().request_errors(RDKafkaApiKey::Produce, &[refused]);
    let producer = engine.producer();
    let fault = producer.send(record(engine.topic(), 0, b"1")).await.unwrap_err();
    assert!(
        !fault.is_retryable() && fault.to_string().ends_with("the clock of this machine or of the broker is wrong")
    );
    let written = producer.send_at(record(engine.topic(), 0, b"2"), UnixMillis(1_700_000_000_000)).await.unwrap();
    let partition = Partition { topic: engine.topic().into(), index: 0 };
    let read = engine.reader().read(&partition, written.offset, written.offset.next()).await.unwrap();
    assert_eq!(read.get(0).unwrap().at, UnixMillis(1_700_000_000_000));
}
