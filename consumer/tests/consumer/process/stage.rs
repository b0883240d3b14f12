//! The environment of the tests of consumers as processes: librdkafka's in-process cluster, the emulator on a loopback
//! port, a producer with a ledger of the likes that should be there, and consumers that end with their test even if it
//! fails.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::kafka;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode, partition_of};
use tally_core::ids::{PostId, RowKey, ShardCount, UserId};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_core::topic::Partition;
use tally_emulator::{Config, Emulator};
use tally_service::Host;
use tally_testkit::{Engines, Process, eventually, records};

pub(crate) const PARTITIONS: u32 = 12;
/// The time of the like, if there is one, for each (post, user) of any event.
pub(crate) type Ledger = BTreeMap<(String, String), Option<UnixMillis>>;

/// The existing likes with their times.
pub(crate) type Likes = BTreeMap<(String, String), UnixMillis>;

/// The log line of a consumer that starts to read a partition.
pub(crate) const READING: &str = r#""message":"reading""#;

/// The maximum length of an id.
const LONGEST: usize = 256;

pub(crate) struct Stage {
    pub(crate) engines: Engines,
    pub(crate) emulator: Emulator,
    claims: Claims,
    producer: kafka::Producer,
    pub(crate) ledger: Ledger,
    /// The number of records in each partition, and the positions of the poison among them.
    pub(crate) ends: BTreeMap<u32, u64>,
    pub(crate) poison: Vec<(u32, u64)>,
    said: u64,
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let engines = Engines::start(Config::default(), &[("likes", PARTITIONS), ("likes.dlq", 2)]).await;
        let producer = kafka::Producer::new(&engines.kafka()).unwrap();
        let (emulator, connection) = (engines.store.emulator.clone(), engines.store.repeating(5));
        let claims = Claims::new(&connection, Host::new("stage").clock());
        let (ends, poison) = ((0..PARTITIONS).map(|index| (index, 0)).collect(), Vec::new());
        Self { engines, emulator, claims, producer, ledger: Ledger::new(), ends, poison, said: 0 }
    }

    /// Produces `count` events, 30 % of them unlikes and every hundredth poison. The ids contain all allowed
    /// characters.
    pub(crate) async fn say(&mut self, count: u64) {
        self.say_padded(count, 0).await;
    }

    /// The same, each with `padding` bytes in an unknown field.
    pub(crate) async fn say_padded(&mut self, count: u64, padding: usize) {
        let records: Vec<_> = (self.said..self.said + count).map(|n| self.draw(n, padding)).collect();
        self.said += count;
        let producer = &self.producer;
        let sent = futures_util::stream::iter(records).map(|(post, value, poison)| async move {
            let key = Some(post.as_str().as_bytes());
            let record = Outgoing { topic: "likes", partition: None, key, value: Some(&value), headers: &[] };
            let written = producer.send(record).await.expect("the cluster takes events");
            assert_eq!(written.partition, partition_of(post.as_str().as_bytes(), PARTITIONS));
            (written, poison)
        });
        let mut sent = sent.buffered(500);
        while let Some((written, poison)) = sent.next().await {
            self.ends.insert(written.partition, written.offset.0 + 1);
            if poison {
                self.poison.push((written.partition, written.offset.0));
            }
        }
    }

    /// Produces a record that is not an event, with this many bytes.
    pub(crate) async fn say_large(&mut self, bytes: usize) {
        let value = pad(7, bytes);
        let (key, value) = (Some(&b"p"[..]), Some(value.as_bytes()));
        let record = Outgoing { topic: "likes", partition: None, key, value, headers: &[] };
        let written = self.producer.send(record).await.expect("the cluster takes it");
        self.ends.insert(written.partition, written.offset.0 + 1);
        self.poison.push((written.partition, written.offset.0));
    }

    /// The record of event `n`: its post, its value, and whether it is poison.
    fn draw(&mut self, n: u64, padding: usize) -> (PostId, Vec<u8>, bool) {
        let draw = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let post = PostId::new(&format!("p#{}\"\u{1f600}", draw % 97)).unwrap();
        if draw.is_multiple_of(100) {
            return (post, br#"{"post_id":"#.to_vec(), true);
        }
        let user = format!("u'{}", (draw / 97) % 211);
        // Every action occurs with the longest ids.
        let user = if matches!(draw % 500, 1 | 7 | 8) { format!("{user:x<LONGEST$}") } else { user };
        let user = UserId::new(&user).unwrap();
        let direction = if draw % 10 < 3 { Direction::Remove } else { Direction::Add };
        let at = UnixMillis(1_700_000_000_000 + n);
        self.ledger.insert((post.to_string(), user.to_string()), (direction == Direction::Add).then_some(at));
        let mut value = encode(&Definition::likes(), &post, direction, Said::Member(&user), None, at).unwrap();
        if padding > 0 {
            let pad = format!(r#","pad":"{}"}}"#, pad(n, padding));
            value.splice(value.len() - 1.., pad.into_bytes());
        }
        (post, value, false)
    }

    /// The number of records that are not known to be finished.
    pub(crate) async fn behind(&self) -> u64 {
        let mut behind = 0;
        for (index, end) in &self.ends {
            let partition = Partition { topic: "likes".into(), index: *index };
            let kept = self.claims.read(&partition).await.ok().and_then(|claim| claim.kept);
            behind += end - kept.map_or(0, |kept| kept.safe.0);
        }
        behind
    }

    pub(crate) async fn caught_up(&self) {
        eventually("everything is finished", async || self.behind().await == 0).await;
    }

    /// Checks that rows equal the events, and dead letters the poison.
    pub(crate) async fn check(&self) {
        let there = |(key, since): (&(String, String), &Option<UnixMillis>)| Some((key.clone(), (*since)?));
        let expected: Likes = self.ledger.iter().filter_map(there).collect();
        let rows = self.rows().await;
        assert!(rows == expected, "rows and fold differ: {:?}", differences(&rows, &expected));
        let longest = rows.keys().filter(|(_, user)| user.len() == LONGEST).count();
        assert!(longest > 0 || self.said < 5_000, "an id as long as one may be is among {} rows", rows.len());
        let mut letters = self.letters().await;
        let total = letters.len();
        letters.dedup();
        let mut poison = self.poison.clone();
        poison.sort_unstable();
        assert_eq!(letters, poison, "dead letters and poison");
        let twice = total - letters.len();
        println!("{} rows, {longest} of the longest ids, {total} dead letters, {twice} of them twice", rows.len());
    }

    /// Waits until everything is finished, checks it, and stops the consumer.
    pub(crate) async fn ends_right(&self, consumer: &Process) {
        self.caught_up().await;
        self.check().await;
        consumer.stop().await.unwrap();
    }

    /// All rows.
    pub(crate) async fn rows(&self) -> Likes {
        let mut rows = Likes::new();
        for item in self.engines.store.items("likes").await {
            let Some(at) = item["liked_at"]["N"].as_str().filter(|_| item.get("gone").is_none()) else { continue };
            let key: RowKey = item["pk"]["S"].as_str().unwrap().parse().unwrap();
            let user = UserId::new(item["user_id"]["S"].as_str().unwrap()).unwrap();
            let place = (key.counter.post.to_string(), user.to_string());
            assert_eq!(key.shard, ShardCount::DEFAULT.shard_of(&user), "{place:?} is where it belongs");
            rows.insert(place, UnixMillis(at.parse().unwrap()));
        }
        rows
    }

    /// The position of the record behind each dead letter, in order.
    async fn letters(&self) -> Vec<(u32, u64)> {
        let reader = kafka::TopicReader::new(&self.engines.kafka(), "stage", "likes.dlq").unwrap();
        let mut letters = Vec::new();
        for (_, run) in records(&reader).await.unwrap() {
            letters.extend(run.iter().map(|record| {
                let text = |name: &str| {
                    let header = record.header(&format!("__connect.errors.{name}")).unwrap();
                    std::str::from_utf8(header).unwrap()
                };
                assert_eq!(text("topic"), "likes");
                let deployment = String::from_utf8_lossy(record.header("__tally.errors.deployment").unwrap());
                assert!(deployment.ends_with(":table/likes"), "{deployment}");
                (text("partition").parse().unwrap(), text("offset").parse().unwrap())
            }));
        }
        letters.sort_unstable();
        letters
    }

    /// Starts a consumer.
    pub(crate) fn consumer(&self, args: &[&str]) -> Process {
        let mut command = self.engines.command(env!("CARGO_BIN_EXE_tally-consumer"));
        command.args(["--log-format", "json", "--admin-listen", "127.0.0.1:0"]).args(args);
        Process::start("consumer", &mut command).unwrap()
    }
}

/// Digits that compress to about an eighth: half because they are digits, and a quarter because they are repeated four
/// times.
fn pad(seed: u64, len: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 32
    };
    let part: String = (0..len.div_ceil(32)).map(|_| format!("{:08x}", next())).collect();
    part.repeat(4)
}

/// The first few rows in which two tables differ.
fn differences(rows: &Likes, expected: &Likes) -> Vec<String> {
    let one = rows.iter().filter(|(key, at)| expected.get(key) != Some(at)).map(|row| format!("row {row:?}"));
    let other = expected.iter().filter(|(key, at)| rows.get(key) != Some(at)).map(|row| format!("event {row:?}"));
    one.chain(other).take(10).collect()
}

/// The consumer's metric of errors of the Kafka client.
pub(crate) async fn kafka_errors(consumer: &Process) -> u64 {
    let metrics = consumer.get("/metrics").await.unwrap().body;
    let values = metrics.lines().filter(|line| line.starts_with("tally_consumer_kafka_errors_total{"));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}
