//! The Kafka engines that the tests beside this file run against: the log in memory, and librdkafka with the brokers in
//! `TALLY_TEST_BROKERS` or with its in-process cluster.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::{ClientConfig, TopicPartitionList};
use tally_adapters::kafka::{
    Producer as KafkaProducer, Settings, Source, TopicReader as KafkaTopicReader, Transactions as KafkaTransactions,
};
use tally_adapters::memory::log::Broker;
use tally_core::ports::{Intake, Producer, TopicReader, Transactions};

/// The environment variable that names brokers of another engine.
const BROKERS: &str = "TALLY_TEST_BROKERS";
const GROUP: &str = "readers";
pub(crate) const PARTITIONS: u32 = 4;
/// Rebalances of the in-process cluster take up to fifteen seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A Kafka engine with one topic.
pub(crate) trait Engine {
    fn topic(&self) -> &str;
    fn join(&self) -> Box<dyn Intake>;
    fn producer(&self) -> Arc<dyn Producer>;
    fn reader(&self) -> Arc<dyn TopicReader>;
    /// Transactions under the engine's transactional id.
    fn transactions(&self) -> Arc<dyn Transactions>;
}

/// The in-memory log.
pub(crate) struct Twin(pub(crate) Broker);

impl Twin {
    pub(crate) fn new(partitions: u32) -> Self {
        let broker = Broker::new();
        broker.create_topic("likes", partitions);
        Self(broker)
    }
}

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
    fn reader(&self) -> Arc<dyn TopicReader> {
        Arc::new(self.0.reader("marks", self.topic()))
    }
    fn transactions(&self) -> Arc<dyn Transactions> {
        Arc::new(self.0.transactions("writer"))
    }
}

pub(crate) struct Librdkafka {
    brokers: String,
    topic: String,
    /// Ends when dropped, if it was started here.
    pub(crate) cluster: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Librdkafka {
    pub(crate) fn in_process(partitions: u32) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("likes", i32::try_from(partitions).unwrap(), 1).unwrap();
        Self { brokers: cluster.bootstrap_servers(), topic: "likes".to_owned(), cluster: Some(cluster) }
    }

    /// A topic of its own on shared brokers, which is left there.
    pub(crate) async fn elsewhere(partitions: u32) -> Self {
        let brokers = std::env::var(BROKERS).unwrap_or_else(|error| panic!("{BROKERS}: {error}"));
        let topic = format!("contract-{:016x}", RandomState::new().hash_one(()));
        let engine = Self { brokers, topic, cluster: None };
        engine.create_topic(&engine.topic, partitions).await;
        engine
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::plaintext(&self.brokers)
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", &self.brokers).create().unwrap()
    }

    pub(crate) async fn create_topic(&self, name: &str, partitions: u32) {
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

impl Librdkafka {
    /// A reader whose bookmarks are the offsets of the joined group.
    pub(crate) fn reader_of_members(&self) -> KafkaTopicReader {
        KafkaTopicReader::new(&self.settings(), &format!("{GROUP}-{}", self.topic), &self.topic).unwrap()
    }

    /// Deletes everything in a partition before `start`, as retention does. The in-process cluster does not support it.
    pub(crate) async fn delete_before(&self, index: u32, start: u64) {
        let mut offsets = TopicPartitionList::new();
        let (index, start) = (i32::try_from(index).unwrap(), i64::try_from(start).unwrap());
        offsets.add_partition_offset(&self.topic, index, rdkafka::Offset::Offset(start)).unwrap();
        let deleted = self.admin().delete_records(&offsets, &AdminOptions::new()).await.unwrap();
        deleted.elements()[0].error().unwrap();
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
    fn reader(&self) -> Arc<dyn TopicReader> {
        Arc::new(KafkaTopicReader::new(&self.settings(), &format!("marks-{}", self.topic), &self.topic).unwrap())
    }
    fn transactions(&self) -> Arc<dyn Transactions> {
        Arc::new(KafkaTransactions::new(&self.settings(), &format!("writer-{}", self.topic)))
    }
}

/// The in-memory log, and librdkafka with the brokers in `TALLY_TEST_BROKERS`, or else with its in-process cluster.
pub(crate) async fn engines() -> [Box<dyn Engine>; 2] {
    let is_elsewhere = std::env::var_os(BROKERS).is_some();
    let kafka = if is_elsewhere { Librdkafka::elsewhere(PARTITIONS).await } else { Librdkafka::in_process(PARTITIONS) };
    [Box::new(Twin::new(PARTITIONS)), Box::new(kafka)]
}
