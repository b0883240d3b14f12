//! The surroundings of the consumer's component tests: a store, a broker, consumers, and the rows and sums that the
//! events should lead to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::memory::log::Broker;
use tally_consumer::{App, Ports, ReadSettings};
use tally_core::definitions::{Definition, Definitions, Direction, Entry};
use tally_core::event::{Said, encode, partition_of};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Intake, Outcome, TopicReader};
use tally_core::register::{Kept, Topic, Version};
use tally_core::topic::{Offset, Partition};
use tally_emulator::Config;
use tally_service::{Chance, Clock, Exit, Host, Running};
use tally_testkit::{BEGAN, Store, eventually, records};

pub(crate) const TOPIC: &str = "likes";
pub(crate) const DLQ: &str = "likes.dlq";
pub(crate) const GROUP: &str = "tally-consumer";
pub(crate) const TOMBSTONES: Duration = Duration::from_secs(24 * 3_600);

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) broker: Broker,
    pub(crate) settings: ReadSettings,
    pub(crate) clock: Clock,
    partitions: u32,
    seed: u64,
    rows: BTreeMap<(u32, String), (u64, bool)>,
    sums: BTreeMap<u32, i64>,
}

impl World {
    pub(crate) async fn new(partitions: u32) -> Self {
        Self::seeded(partitions, 0).await
    }

    pub(crate) async fn seeded(partitions: u32, seed: u64) -> Self {
        let (store, broker) = (Store::with(Config { seed, ..Config::default() }).await, Broker::new());
        broker.create_topic(TOPIC, partitions);
        broker.create_topic(DLQ, 1);
        let clock = Clock::starting_at(BEGAN);
        Checkpoints::new(&store.connection).config(None).await.unwrap();
        let settings = ReadSettings::default();
        Self { store, broker, settings, clock, partitions, seed, rows: BTreeMap::new(), sums: BTreeMap::new() }
    }

    /// A world of one partition, in which a consumer has written likes of so many users, `u-0` and so on.
    pub(crate) async fn with_likes(count: u32) -> (Self, Running) {
        let mut world = Self::new(1).await;
        let consumer = world.consumer();
        (0..count).for_each(|n| world.say(0, &format!("u-{n}"), Direction::Add));
        world.reaches_ends().await;
        (world, consumer)
    }

    /// Starts a consumer. All consumers share the group and the store.
    pub(crate) fn consumer(&mut self) -> Running {
        self.consumer_of(GROUP)
    }

    /// Starts a consumer in another group.
    pub(crate) fn consumer_of(&mut self, group: &'static str) -> Running {
        let broker = self.broker.clone();
        self.start(Box::new(move || Ok(Box::new(broker.join(group, TOPIC)))))
    }

    /// Starts a consumer of another topic, in a group of its own.
    pub(crate) fn consumer_of_topic(&mut self, topic: &'static str) -> Running {
        let (broker, before) = (self.broker.clone(), self.settings.clone());
        self.settings.topics.likes.topic = topic.to_owned();
        self.settings.topics.dead_letter_topic = Some(DLQ.to_owned());
        let running = self.start(Box::new(move || Ok(Box::new(broker.join("others", topic)))));
        self.settings = before;
        running
    }

    /// Starts a consumer that joins its group by `join`.
    pub(crate) fn start(&mut self, join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>) -> Running {
        self.seed += 1;
        let host = Host::new("consumer").with_clock(self.clock).with_chance(Chance::seeded(self.seed));
        let (connection, broker) = (self.store.connection.clone(), self.broker.clone());
        let ports = Ports {
            join,
            producer: Arc::new(self.broker.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(broker.reader("replay", topic)))),
        };
        Running::start(App::with_ports(None, self.settings.clone(), ports, connection), host)
    }

    pub(crate) async fn stop(&self, running: Running) {
        let shutdown = running.stop(Duration::from_secs(25)).await;
        assert_eq!(shutdown.exit(), Exit::CLEAN, "{shutdown:?}");
    }

    /// Waits until everything is committed, and compares it with the expected result; then the consumer stops cleanly.
    pub(crate) async fn ends_right(&self, running: Running) {
        self.reaches_ends().await;
        self.is_right().await;
        self.stop(running).await;
    }

    pub(crate) fn claims(&self) -> Claims {
        Claims::new(&self.store.connection, self.clock)
    }

    pub(crate) async fn topic(&self) -> Topic {
        self.claims().topic(TOPIC).await.unwrap().expect("the topic was read")
    }

    /// Defines `views`, a sum.
    pub(crate) async fn define_views(&self) {
        let views = Entry { name: "views".into(), kind: "sum".into(), add: "view".into(), ..Entry::default() };
        let checkpoints = Checkpoints::new(&self.store.connection);
        let to = Definitions::new(&[views]).unwrap();
        assert!(checkpoints.define(&Definitions::likes_alone(), &to).await.unwrap());
    }

    /// A post whose events belong to a partition.
    pub(crate) fn post(&self, partition: u32) -> PostId {
        let post = (0..).map(|n| format!("p-{n}"));
        let mut post = post.filter(|post| partition_of(post.as_bytes(), self.partitions) == partition);
        PostId::new(&post.next().unwrap()).unwrap()
    }

    /// Produces a member's event, and adds it to the expected result.
    pub(crate) fn say(&mut self, partition: u32, user: &str, direction: Direction) {
        let offset = self.say_in(partition, partition, user, direction);
        self.rows.insert((partition, user.to_owned()), (offset, direction == Direction::Add));
    }

    /// Produces a member's event about the post of `post` in `partition`, without adding it to the expected result.
    pub(crate) fn say_in(&mut self, partition: u32, post: u32, user: &str, direction: Direction) -> u64 {
        let (post, user) = (self.post(post), UserId::new(user).unwrap());
        let value = encode(&Definition::likes(), &post, direction, Said::Member(&user), None, BEGAN).unwrap();
        self.put(partition, &value)
    }

    pub(crate) fn view(&mut self, partition: u32, amount: i64) {
        let value = json!({"post_id": self.post(partition).as_str(), "action": "view", "n": amount});
        self.put(partition, value.to_string().as_bytes());
        *self.sums.entry(partition).or_default() += amount;
    }

    /// Produces a record that is not in the expected result.
    pub(crate) fn put(&self, partition: u32, value: &[u8]) -> u64 {
        let post = self.post(partition);
        let key = Some(post.as_str().as_bytes());
        let record = Outgoing { topic: TOPIC, partition: Some(partition), key, value: Some(value), headers: &[] };
        self.broker.append(record, BEGAN).unwrap().offset.0
    }

    /// The row of a member of the post of a partition.
    pub(crate) async fn row(&self, post: u32, user: &str) -> Value {
        self.store.item("likes", self.key(post, user)).await
    }

    pub(crate) fn key(&self, post: u32, user: &str) -> Value {
        let key = RowKey::of(&CounterId::likes(self.post(post)), user, ShardCount::DEFAULT);
        json!({"pk": {"S": key.to_string()}, "user_id": {"S": user}})
    }

    /// Compares the rows and sums with the expected result.
    pub(crate) async fn is_right(&self) {
        let mut rows = BTreeMap::new();
        let mut sums = BTreeMap::new();
        for item in self.store.items("likes").await {
            let pk = item["pk"]["S"].as_str().unwrap().parse::<RowKey>().unwrap();
            let partition = partition_of(pk.counter.post.as_bytes(), self.partitions);
            if let Some(n) = item["n"]["N"].as_str() {
                *sums.entry(partition).or_default() += n.parse::<i64>().unwrap();
                continue;
            }
            let version = item["v"]["N"].as_str().unwrap().parse::<Version>().unwrap();
            let is_live = item.get("gone").is_none();
            let user = item["user_id"]["S"].as_str().unwrap().to_owned();
            rows.insert((partition, user), (version.offset().0, is_live));
        }
        assert_eq!(rows, self.rows);
        assert_eq!(sums, self.sums);
    }

    /// The committed offset of a partition.
    pub(crate) async fn committed(&self, index: u32) -> Option<u64> {
        let reader = self.broker.reader(GROUP, TOPIC);
        reader.bookmark(&partition(index)).await.unwrap().map(|offset| offset.0)
    }

    /// Commits an offset, as Kafka's own tool does.
    pub(crate) async fn commit(&self, index: u32, offset: u64) {
        self.broker.reader(GROUP, TOPIC).mark(&partition(index), Offset(offset)).await.unwrap();
    }

    /// How far a partition is, by its claim.
    pub(crate) async fn kept(&self, index: u32) -> Kept {
        self.claims().read(&partition(index)).await.unwrap().kept.unwrap()
    }

    /// The safe offset of a partition.
    pub(crate) async fn safe(&self, index: u32) -> u64 {
        self.claims().read(&partition(index)).await.unwrap().kept.map_or(0, |kept| kept.safe.0)
    }

    pub(crate) async fn commits(&self, index: u32, offset: u64) {
        let what = format!("{offset} of {index} is committed");
        eventually(&what, async || self.committed(index).await == Some(offset)).await;
    }

    /// Waits until everything is committed.
    pub(crate) async fn reaches_ends(&self) {
        for (partition, log) in self.broker.reader(GROUP, TOPIC).logs().await.unwrap() {
            self.commits(partition.index, log.end.0).await;
        }
    }

    /// Waits until no late request can arrive any more.
    pub(crate) async fn ghosts_are_gone(&self) {
        self.store.faults([]);
        tokio::time::advance(Duration::from_secs(301)).await;
    }

    /// The dead letters, with their origin and reason.
    pub(crate) async fn letters(&self) -> Vec<(u32, u64, String)> {
        let runs = records(&self.broker.reader("test", DLQ)).await.unwrap();
        let letter = |record: tally_core::ports::log::Record<'_>| {
            let text = |name: &str| {
                let header = record.header(&format!("__connect.errors.{name}")).unwrap();
                String::from_utf8(header.to_vec()).unwrap()
            };
            (text("partition").parse().unwrap(), text("offset").parse().unwrap(), text("class.name"))
        };
        runs.iter().flat_map(|(_, run)| run.iter().map(letter)).collect()
    }

    /// The open losses, as text.
    pub(crate) async fn losses(&self) -> Vec<String> {
        let losses = Changes::new(&self.store.connection).losses().await.unwrap();
        losses.open().map(|(_, loss)| loss.what.clone()).collect()
    }
}

pub(crate) fn is_ready(consumer: &Running) -> bool {
    consumer.host().readiness().report().ready
}

/// What the readiness of a consumer reports, as text.
pub(crate) fn report(consumer: &Running) -> String {
    format!("{:?}", consumer.host().readiness().report())
}

/// Waits until the readiness of a consumer names `what`.
pub(crate) async fn names(consumer: &Running, what: &str) {
    eventually(what, async || report(consumer).contains(what)).await;
}

pub(crate) fn partition(index: u32) -> Partition {
    Partition { topic: TOPIC.into(), index }
}
