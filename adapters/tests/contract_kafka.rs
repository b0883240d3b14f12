//! The contract of the log's ports, held by the in-memory twin, by librdkafka against its in-process cluster, and by
//! librdkafka against the brokers that `TALLY_TEST_BROKERS` names.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]
#![expect(clippy::print_stderr, reason = "a skipped engine says so")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use tally_adapters::kafka::{Producer as KafkaProducer, Settings, Shelf as KafkaShelf, Source};
use tally_adapters::memory::log::Broker;
use tally_core::event::partition_of;
use tally_core::fence::{Offset, Partition, TopicId};
use tally_core::ports::log::{Outgoing, Over, Rebalance};
use tally_core::ports::{Intake, OwnedPartition, Producer, Shelf};

/// The environment variable that names brokers of another engine.
const BROKERS: &str = "TALLY_TEST_BROKERS";
const GROUP: &str = "readers";
const PARTITIONS: u32 = 4;
/// Rebalances of the in-process cluster take up to fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine under contract, with one topic.
trait Engine {
    fn topic(&self) -> &str;
    fn join(&self) -> Box<dyn Intake>;
    fn producer(&self) -> Arc<dyn Producer>;
    fn shelf(&self) -> Arc<dyn Shelf>;
}

struct Twin(Broker);

impl Engine for Twin {
    fn topic(&self) -> &'static str {
        "likes"
    }
    fn join(&self) -> Box<dyn Intake> {
        Box::new(self.0.join(GROUP, self.topic()))
    }
    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(self.0.clone())
    }
    fn shelf(&self) -> Arc<dyn Shelf> {
        Arc::new(self.0.shelf("marks", self.topic()))
    }
}

struct Librdkafka {
    brokers: String,
    topic: String,
    /// Gone when dropped, where it is one of our own.
    cluster: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Librdkafka {
    fn in_process(partitions: u32) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("likes", i32::try_from(partitions).unwrap(), 1).unwrap();
        Self { brokers: cluster.bootstrap_servers(), topic: "likes".to_owned(), cluster: Some(cluster) }
    }

    /// A topic of its own at brokers that others use, too; left behind. `None`, said aloud, where none are named.
    async fn elsewhere(partitions: u32) -> Option<Self> {
        let Ok(brokers) = std::env::var(BROKERS) else {
            eprintln!("skipped: {BROKERS} names no brokers");
            return None;
        };
        let topic = format!("contract-{:016x}", RandomState::new().hash_one(()));
        let engine = Self { brokers, topic, cluster: None };
        engine.create_topic(&engine.topic, partitions).await;
        Some(engine)
    }

    fn settings(&self) -> Settings {
        Settings::plaintext(&self.brokers)
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap()
    }

    async fn create_topic(&self, name: &str, partitions: u32) {
        let partitions = i32::try_from(partitions).unwrap();
        if let Some(cluster) = &self.cluster {
            cluster.create_topic(name, partitions, 1).unwrap();
            return;
        }
        let admin = self.admin();
        let new = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        admin.create_topics([&new], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
        let created = |metadata: &rdkafka::metadata::Metadata| {
            let topic = &metadata.topics()[0];
            topic.error().is_none() && topic.partitions().iter().all(|partition| partition.leader() >= 0)
        };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !created(&admin.inner().fetch_metadata(Some(name), PATIENCE).unwrap()) {
            assert!(tokio::time::Instant::now() < deadline, "{name} has no leaders");
            tokio::task::yield_now().await;
        }
    }
}

impl Engine for Librdkafka {
    fn topic(&self) -> &str {
        &self.topic
    }
    fn join(&self) -> Box<dyn Intake> {
        Box::new(Source::new(&self.settings(), &format!("{GROUP}-{}", self.topic), &self.topic).unwrap())
    }
    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(KafkaProducer::new(&self.settings()).unwrap())
    }
    fn shelf(&self) -> Arc<dyn Shelf> {
        Arc::new(KafkaShelf::new(&self.settings(), &format!("marks-{}", self.topic), &self.topic).unwrap())
    }
}

/// Librdkafka against every Kafka there is.
async fn kafkas(partitions: u32) -> Vec<Librdkafka> {
    let mut kafkas = vec![Librdkafka::in_process(partitions)];
    kafkas.extend(Librdkafka::elsewhere(partitions).await);
    kafkas
}

async fn engines() -> Vec<Box<dyn Engine>> {
    let broker = Broker::new();
    broker.create_topic("likes", PARTITIONS);
    let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(Twin(broker))];
    engines.extend(kafkas(PARTITIONS).await.into_iter().map(|kafka| Box::new(kafka) as Box<dyn Engine>));
    engines
}

/// A member and what it owns, polled only while a test waits for something.
struct Member {
    intake: Box<dyn Intake>,
    owned: BTreeMap<u32, Arc<dyn OwnedPartition>>,
    ended: Vec<(Over, u32)>,
}

impl Member {
    fn new(engine: &dyn Engine) -> Self {
        Self { intake: engine.join(), owned: BTreeMap::new(), ended: Vec::new() }
    }

    async fn step(&mut self) {
        match self.intake.rebalance().await {
            Ok(Rebalance::Assigned(partitions)) => {
                self.owned.extend(partitions.into_iter().map(|owned| (owned.partition().index, owned)));
            }
            Ok(Rebalance::Ended(over, partitions)) => {
                for partition in partitions {
                    self.ended.push((over, partition.index));
                    self.owned.remove(&partition.index);
                }
            }
            Err(fault) => assert!(fault.is_retryable(), "{fault}"),
        }
    }

    /// Owns so many partitions.
    async fn owns(&mut self, count: usize) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.owned.len() != count {
                self.step().await;
            }
        });
        waited.await.expect("a rebalance in time");
    }

    /// What `work` yields, with the membership polled meanwhile.
    async fn polled<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = self.step() => {}
                () = tokio::time::sleep(PATIENCE) => panic!("not in time"),
            }
        }
    }

    /// The offsets of the next `count` records of a partition.
    async fn read(&mut self, index: u32, count: usize) -> Vec<u64> {
        let owned = Arc::clone(&self.owned[&index]);
        self.polled(async move {
            let mut offsets = Vec::new();
            while offsets.len() < count {
                let records = owned.records().await.unwrap();
                offsets.extend(records.iter().map(|record| record.offset.0));
            }
            offsets
        })
        .await
    }

    async fn start(&mut self, index: u32, at: u64) {
        let owned = Arc::clone(&self.owned[&index]);
        self.polled(async move { owned.start_at(Offset(at)).await }).await.unwrap();
    }
}

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
async fn a_record_arrives_as_it_was_written_where_its_key_belongs() {
    for engine in engines().await {
        let headers = [("trace", Some(&b"t\xff"[..])), ("empty", None)];
        let sent =
            Outgoing { topic: engine.topic(), partition: None, key: Some(b"p-7"), value: None, headers: &headers };
        let written = engine.producer().send(sent).await.unwrap();
        assert_eq!(written.partition, partition_of(b"p-7", PARTITIONS));
        let mut member = Member::new(&*engine);
        member.owns(PARTITIONS as usize).await;
        member.start(written.partition, 0).await;
        let owned = Arc::clone(&member.owned[&written.partition]);
        let records = member.polled(async move { owned.records().await.unwrap() }).await;
        let record = records.get(0).unwrap();
        assert_eq!((record.offset, record.key, record.value), (Offset(0), Some(&b"p-7"[..]), None));
        assert_eq!(record.headers().collect::<Vec<_>>(), headers);
        member.intake.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_read_from_where_it_is_started_and_again_from_elsewhere() {
    for engine in engines().await {
        fill(&*engine, 1, 300).await;
        let mut member = Member::new(&*engine);
        member.owns(PARTITIONS as usize).await;
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
        member.intake.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_outside_the_log_is_a_fault_and_not_a_guess() {
    for engine in engines().await {
        fill(&*engine, 0, 5).await;
        let mut member = Member::new(&*engine);
        member.owns(PARTITIONS as usize).await;
        member.start(0, 999).await;
        let owned = Arc::clone(&member.owned[&0]);
        let fault = member.polled(async move { owned.records().await.unwrap_err() }).await;
        assert!(fault.is_retryable(), "{fault}");
        member.start(0, 3).await;
        assert_eq!(member.read(0, 2).await, [3, 4]);
        member.intake.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_the_partitions_and_a_leaver_gives_its_back() {
    for engine in engines().await {
        let mut one = Member::new(&*engine);
        one.owns(PARTITIONS as usize).await;
        let mut two = Member::new(&*engine);
        let half = PARTITIONS as usize / 2;
        one.polled(two.owns(half)).await;
        assert_eq!(one.owned.len(), half);
        assert!(one.owned.keys().all(|index| !two.owned.contains_key(index)));
        assert!(one.ended.iter().all(|(over, _)| *over == Over::Revoked), "{:?}", one.ended);
        two.owned.clear();
        tokio::join!(two.intake.leave(), one.owns(PARTITIONS as usize));
        one.intake.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shelf_reads_to_a_bound_and_keeps_a_bookmark() {
    for engine in engines().await {
        fill(&*engine, 2, 20).await;
        let shelf = engine.shelf();
        let logs = shelf.logs().await.unwrap();
        let ends: Vec<(u32, u64)> = logs.iter().map(|(partition, log)| (partition.index, log.end.0)).collect();
        assert_eq!(ends, [(0, 0), (1, 0), (2, 20), (3, 0)]);
        let partition = Partition { topic: engine.topic().into(), index: 2 };
        let read = shelf.read(&partition, Offset(5), Offset(9)).await.unwrap();
        assert_eq!(read.iter().map(|record| record.offset.0).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(shelf.read(&partition, Offset(9), Offset(9)).await.unwrap().is_empty());
        assert_eq!(shelf.bookmark(&partition).await, Ok(None));
        shelf.mark(&partition, Offset(9)).await.unwrap();
        assert_eq!(engine.shelf().bookmark(&partition).await, Ok(Some(Offset(9))));
    }
}

async fn topic_id(engine: &Librdkafka, topic: &str) -> TopicId {
    let shelf = KafkaShelf::new(&engine.settings(), "marks", topic).unwrap();
    let id = shelf.logs().await.unwrap().remove(0).1.topic;
    assert_eq!(shelf.logs().await.unwrap().remove(0).1.topic, id, "an id is the topic's for its life");
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_topics_of_different_names_have_different_ids() {
    for engine in kafkas(1).await {
        let other = format!("{}-other", engine.topic());
        engine.create_topic(&other, 1).await;
        assert_ne!(topic_id(&engine, engine.topic()).await, topic_id(&engine, &other).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_created_again_has_another_id() {
    // The in-process cluster knows no ids.
    let Some(engine) = Librdkafka::elsewhere(1).await else { return };
    let topic = engine.topic();
    let before = topic_id(&engine, topic).await;
    assert_ne!(before, TopicId(topic.into()), "the broker has ids");
    let deleted = engine.admin().delete_topics(&[topic], &AdminOptions::new()).await.unwrap().remove(0);
    assert_eq!(deleted.unwrap(), topic);
    engine.create_topic(topic, 1).await;
    assert_ne!(topic_id(&engine, topic).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_does_not_take_stops_the_reading_and_not_the_membership() {
    for engine in kafkas(1).await {
        let producer = engine.producer();
        let value = vec![b'x'; 4000];
        // Less than the five mebibytes the in-process cluster keeps, and more than a queue holds.
        for _ in 0..1100 {
            producer.send(record(engine.topic(), 0, &value)).await.unwrap();
        }
        let mut member = Member::new(&engine);
        member.owns(1).await;
        member.start(0, 0).await;
        member.polled(tokio::time::sleep(Duration::from_secs(2))).await;
        let all: Vec<u64> = (0..1100).collect();
        assert_eq!(member.read(0, 1100).await, all, "a pause loses nothing and repeats nothing");
        assert!(member.ended.is_empty());
        member.intake.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_failed_for_good_is_replaced() {
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
