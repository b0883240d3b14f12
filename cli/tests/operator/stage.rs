//! `Stage`, over which all tests of this folder run `tally`, the operators' command: a healthy deployment in DynamoDB's
//! emulator and an in-process Kafka, functions that bring it into another state, and `tally`, which runs the command.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::json;
use tally_adapters::dynamodb::changes::{Changes, Config as LogConfig};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Connection, Consistency, Usual};
use tally_adapters::kafka;
use tally_change_streamer as streamer;
use tally_core::audit::{AuditRun, RunRecord, RunScope, Summary};
use tally_core::cached::StandingAt;
use tally_core::changes::{DeploymentId, LossNumber, Place, Standing};
use tally_core::fold::Stated;
use tally_core::ids::{CounterId, ShardCount, StreamShard};
use tally_core::ports::{ChangeStream, TopicReader};
use tally_core::register::{Kept, Topic, Version};
use tally_core::relay::Fed;
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};
use tally_emulator::Config;
use tally_service::{Clock, Host, Running};
use tally_testkit::process::run;
use tally_testkit::{Engines, Store};

pub(crate) use tally_testkit::process::Done as Said;

pub(crate) const PARTITIONS: u32 = 2;
/// A file that defines a sum, for `tally counters apply`.
pub(crate) const VIEWS: &str = "[[counters]]\nname = \"views\"\nkind = \"sum\"\nadd = \"view\"\n";
/// Few shards, so that answers about a post are short.
const SHARDS: u64 = 4;
/// How long tombstones are kept.
const DAY: Duration = Duration::from_secs(86_400);

pub(crate) struct Stage {
    pub(crate) engines: Engines,
    pub(crate) connection: Connection,
    pub(crate) checkpoints: dynamodb::Checkpoints,
    pub(crate) changes: Changes,
    pub(crate) recounts: dynamodb::Recounts,
    pub(crate) claims: Claims,
    producer: FutureProducer,
    pub(crate) clock: Clock,
}

impl Stage {
    /// Creates a deployment. There are no events yet, and every reader is up to date.
    pub(crate) async fn set() -> Self {
        Self::under(Config { shards: 2, ..Config::default() }).await
    }

    pub(crate) async fn under(config: Config) -> Self {
        let stage = Self::unfollowed(config).await;
        stage.follow(stage.clock.now()).await;
        stage
    }

    /// Creates a deployment whose log of changes no change-streamer has set up yet.
    pub(crate) async fn unfollowed(config: Config) -> Self {
        let topics = [("likes", PARTITIONS), ("likes.dlq", 1), ("changes", PARTITIONS), ("moved", PARTITIONS)];
        let engines = Engines::start(config, &topics).await;
        let (connection, clock) = (engines.store.repeating(5), Host::new("stage").clock());
        let producer = ClientConfig::new().set("bootstrap.servers", &engines.brokers).create().unwrap();
        let checkpoints = dynamodb::Checkpoints::new(&connection);
        checkpoints.config(Some(ShardCount::new(SHARDS).unwrap())).await.unwrap();
        let stage = Self {
            checkpoints,
            changes: Changes::new(&connection),
            recounts: dynamodb::Recounts::new(&connection),
            claims: Claims::new(&connection, clock),
            clock,
            engines,
            connection,
            producer,
        };
        let logs = stage.reader("likes").logs().await.unwrap();
        let begins = logs.iter().map(|(_, log)| log.end).collect();
        let topic = Topic::first(logs[0].1.topic.clone(), begins);
        stage.claims.begin_topic("likes", &topic).await.unwrap();
        assert!(stage.checkpoints.move_usual(&Usual::default(), "likes").await.unwrap());
        stage.catch_up().await;
        stage
    }

    pub(crate) fn store(&self) -> &Store {
        &self.engines.store
    }

    pub(crate) async fn topic(&self) -> Topic {
        self.claims.topic("likes").await.unwrap().unwrap()
    }

    /// Changes what is stored about the topic.
    pub(crate) async fn know(&self, change: impl FnOnce(&mut Topic)) {
        let seen = self.topic().await;
        let mut to = seen.clone();
        change(&mut to);
        assert!(self.claims.replace_topic("likes", &seen, &to).await.unwrap());
    }

    /// Claims a partition as a consumer does. Stores that its rows have come to `safe`, or are where they were, and a
    /// `change` of what is stored about them.
    pub(crate) async fn keep(&self, index: u32, safe: Option<u64>, change: impl FnOnce(&mut Kept)) {
        let (claim, _) = self.claims.raise(&partition(index)).await.unwrap();
        let kept = claim.kept.unwrap_or(Kept::first(&self.topic().await, Offset(0)));
        let safe = safe.map_or(kept.safe, Offset);
        let mut kept = kept.come_to([safe; 2], None, self.clock.now(), DAY);
        change(&mut kept);
        assert!(self.claims.keep(&partition(index), claim.n, &kept).await.unwrap().is_some());
    }

    /// Stores that the rows of a partition have come to `safe`, and to the time `safe_at`.
    pub(crate) async fn come_to(&self, index: u32, safe: u64, safe_at: UnixMillis) {
        self.keep(index, Some(safe), |kept| kept.safe_at = Some(safe_at)).await;
    }

    /// Stores that everything in the topic is in the rows.
    pub(crate) async fn catch_up(&self) {
        for (partition, log) in self.reader("likes").logs().await.unwrap() {
            self.come_to(partition.index, log.end.0, self.clock.now()).await;
        }
    }

    pub(crate) async fn kept(&self, index: u32) -> Kept {
        self.claims.read(&partition(index)).await.unwrap().kept.unwrap()
    }

    /// Returns a reader whose bookmarks are the offsets that the group of consumers has committed.
    pub(crate) fn consumers(&self) -> kafka::TopicReader {
        kafka::TopicReader::new(&self.engines.kafka(), "tally-consumer", "likes").unwrap()
    }

    /// Sets the log of changes up: it has every shard of the stream, and all of it is counted, up to `at`.
    async fn follow(&self, at: UnixMillis) {
        let topic = self.reader("changes").logs().await.unwrap().remove(0).1.topic;
        let config =
            LogConfig { deployment: DeploymentId("stage".into()), partitions: PARTITIONS, topic, generation: 1 };
        self.changes.begin_log(&config).await.unwrap();
        let stream = dynamodb::Streams::new(&self.connection);
        let label = stream.info().await.unwrap().label;
        for shard in stream.shards(&label).await.unwrap() {
            self.changes.begin(&StreamShard::new(&label, &shard.id), None, Fed { to: None, at }).await.unwrap();
        }
        for partition in 0..PARTITIONS {
            self.stand(partition, 1, Standing { as_of: Some(at), ..Standing::default() }).await;
        }
    }

    /// Starts a change-streamer.
    pub(crate) fn streamer(&self) -> Running {
        let (kafka, connection) = (self.engines.kafka(), &self.connection);
        let log = streamer::LogPorts::over(&kafka, "changes", &streamer::group_of(""), connection).unwrap();
        let app =
            streamer::App::with_ports(None, streamer::Settings::default(), streamer::Ports::over(connection, log));
        Running::start(app, Host::new("streamer"))
    }

    /// Waits until `id` has so many likes.
    pub(crate) async fn counted(&self, id: &CounterId, likes: i64) {
        let counters = Counters::new(&self.connection);
        tally_testkit::eventually(&format!("{id} has {likes} likes"), async || {
            let read = counters.read(std::slice::from_ref(id), Consistency::Strong).await.unwrap();
            read.counters.get(id).map(|counter| counter.as_ref().unwrap().likes) == Some(likes)
        })
        .await;
    }

    /// Stores the standing of a partition: up to when all changes are in its counters, and which losses are open.
    pub(crate) async fn stand(&self, partition: u32, offset: u64, standing: Standing) {
        let standing = StandingAt { at: Place::new(1, Offset(offset)), standing };
        let stands = self.changes.stated(partition).await.unwrap().unwrap_or_default();
        let stated = Stated { standing, revision: stands.revision + 1, ..stands };
        assert_eq!(self.changes.state(partition, &stated).await.unwrap(), Ok(()));
    }

    /// Adds a stream shard, of which the log has everything up to `span` ago.
    pub(crate) async fn unread_for(&self, span: Duration) {
        let label = dynamodb::Streams::new(&self.connection).info().await.unwrap().label;
        let shard = StreamShard::new(&label, &format!("shardId-late-{}", span.as_secs()).as_str().into());
        self.changes.begin(&shard, None, Fed { to: None, at: self.clock.now().minus(span) }).await.unwrap();
    }

    /// Opens a loss, which the standing of every partition has heard of.
    pub(crate) async fn lose(&self, kind: &str, what: &str) -> LossNumber {
        let now = self.clock.now();
        let number = self.changes.open_new_loss(now, kind, what).await.unwrap();
        for partition in 0..PARTITIONS {
            let loss = Some(Place::new(1, Offset(1)));
            self.stand(partition, 2, Standing { as_of: Some(now), loss, open: [number].into() }).await;
        }
        number
    }

    pub(crate) fn reader(&self, topic: &str) -> kafka::TopicReader {
        kafka::TopicReader::new(&self.engines.kafka(), "tally-dlq-replay", topic).unwrap()
    }

    /// Writes a record whose time is `age` ago.
    pub(crate) async fn say(&self, topic: &str, partition: i32, value: &[u8], headers: &[(&str, &str)], age: Duration) {
        let at = self.clock.now().0 - u64::try_from(age.as_millis()).unwrap();
        let mut owned = rdkafka::message::OwnedHeaders::new();
        for (key, value) in headers {
            owned = owned.insert(rdkafka::message::Header { key, value: Some(*value) });
        }
        let record = FutureRecord::to(topic).key("p").payload(value).partition(partition).headers(owned);
        let record = record.timestamp(i64::try_from(at).unwrap());
        self.producer.send(record, Duration::from_secs(30)).await.unwrap();
    }

    /// Writes that a user likes a post, to a partition of the topic of likes.
    pub(crate) async fn like(&self, partition: i32, post: &str, user: &str) {
        let like = json!({"post_id": post, "user_id": user, "action": "like"}).to_string();
        self.say("likes", partition, like.as_bytes(), &[], Duration::ZERO).await;
    }

    /// Writes a dead letter about the record at `offset`, which would be an event now.
    pub(crate) async fn put_aside(&self, offset: u64) {
        self.put_aside_of(&self.deployment().await, offset).await;
    }

    /// Returns the name that the deployment has in dead letters and receipts.
    pub(crate) async fn deployment(&self) -> String {
        let likes = self.store().call("DescribeTable", json!({"TableName": "likes"})).await;
        likes["Table"]["TableArn"].as_str().unwrap().to_owned()
    }

    /// Writes a dead letter as `deployment` would.
    pub(crate) async fn put_aside_of(&self, deployment: &str, offset: u64) {
        let offset = offset.to_string();
        let headers = [
            ("__connect.errors.topic", "likes"),
            ("__connect.errors.partition", "1"),
            ("__connect.errors.offset", &offset),
            ("__connect.errors.class.name", "refused_by_store"),
            ("__connect.errors.exception.message", "too busy"),
            ("__tally.errors.deployment", deployment),
        ];
        let event = br#"{"post_id":"p","user_id":"u","action":"like"}"#;
        self.say("likes.dlq", 0, event, &headers, Duration::ZERO).await;
    }

    /// Switches expiry of a table's items by an attribute on or off.
    pub(crate) async fn expire(&self, table: &str, by: &str, on: bool) {
        let wanted = json!({"Enabled": on, "AttributeName": by});
        let update = json!({"TableName": table, "TimeToLiveSpecification": wanted});
        self.store().call("UpdateTimeToLive", update).await;
    }

    /// Deletes every item of a table whose key is one attribute.
    pub(crate) async fn delete_all(&self, table: &str, key: &str) {
        for item in self.store().items(table).await {
            self.store().call("DeleteItem", json!({"TableName": table, "Key": {key: item[key]}})).await;
        }
    }

    /// Returns all items of the tables, and what two topics hold, to compare it before and after a command.
    pub(crate) async fn everything(&self) -> BTreeMap<String, Vec<String>> {
        let mut all = BTreeMap::new();
        for table in ["likes", "like_counts", "checkpoints", "recounts"] {
            let mut items: Vec<String> = self.store().items(table).await.iter().map(ToString::to_string).collect();
            items.sort();
            all.insert(table.to_owned(), items);
        }
        for topic in ["likes", "likes.dlq"] {
            let reader = self.reader(topic);
            let mut logs = Vec::new();
            for (partition, log) in reader.logs().await.unwrap() {
                logs.push(format!("{partition} {log:?} {:?}", reader.bookmark(&partition).await.unwrap()));
            }
            all.insert(topic.to_owned() + " in kafka", logs);
        }
        all
    }

    /// Puts a member's row into the table `likes`, under a row key.
    pub(crate) async fn row(&self, key: &str, user: &str) {
        self.store().put("likes", &json!({"pk": key, "user_id": user, "liked_at": 5})).await;
    }

    /// Puts a counter of likes, with its total and the parts of its shards.
    pub(crate) async fn count(&self, id: &str, likes: i64, shards: &[(&str, i64)]) {
        let mut item = json!({"post_id": id, "likes": likes, "version": 3});
        shards.iter().for_each(|(name, rows)| item[name] = json!(rows));
        self.store().put("like_counts", &item).await;
    }

    /// Returns how many records the topic of likes has got so far.
    pub(crate) async fn sent(&self) -> u64 {
        self.reader("likes").logs().await.unwrap().iter().map(|(_, log)| log.end.0).sum()
    }

    /// Returns the command `tally` with the arguments in `line`, each behind a space. It has this deployment's settings, and
    /// none of the test's environment.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.engines.command(env!("CARGO_BIN_EXE_tally"));
        command.args(line.split(' ')).env("TALLY_OPERATOR", "anna");
        command
    }

    /// Runs the command `line` to its end.
    pub(crate) async fn tally(&self, line: &str) -> Said {
        run(&mut self.command(line)).await
    }

    /// Runs the command `line` and checks what it says, as [`shown`] does.
    pub(crate) async fn shows<const N: usize>(&self, line: &str, code: i32, texts: [&str; N]) -> Said {
        let said = self.tally(line).await;
        shown(&said, code, texts);
        said
    }

    /// Runs the command `line` with `--yes` and a reason.
    pub(crate) async fn made(&self, line: &str) -> Said {
        run(self.command(line).args(["--yes", "--why", "a test"])).await
    }

    /// Runs the command `line` with `--yes` and a reason, and checks what it says, as [`shown`] does.
    pub(crate) async fn does<const N: usize>(&self, line: &str, code: i32, texts: [&str; N]) -> Said {
        let said = self.made(line).await;
        shown(&said, code, texts);
        said
    }
}

/// Checks the exit code of a command, and that its answer or, where it failed without one, its error has these texts.
pub(crate) fn shown<const N: usize>(said: &Said, code: i32, texts: [&str; N]) {
    let text_of = if code == 0 || !said.out.is_empty() { &said.out } else { &said.err };
    assert_eq!(said.code, Some(code), "{said:?}");
    texts.iter().for_each(|text| assert!(text_of.contains(text), "{text}: {said:?}"));
}

/// Returns the record of an audit that began and ended at this time.
pub(crate) fn audited(at: UnixMillis, summary: Summary) -> RunRecord {
    let (run, scope) = (AuditRun::beginning(at, 1), RunScope::Audit);
    RunRecord { run, began: at, ended: Some(at), scope, dry_run: false, summary }
}

/// Returns the stored form of the version that a routed event at `offset` has.
pub(crate) fn version(generation: u16, offset: u64) -> u64 {
    Version::new(generation, true, Offset(offset)).to_string().parse().unwrap()
}

pub(crate) fn partition(index: u32) -> Partition {
    Partition { topic: "likes".into(), index }
}

/// Checks that a command was refused, and why.
pub(crate) fn refused(said: &Said, why: &str) {
    assert!(said.code.is_some_and(|code| code != 0) && said.err.contains(why), "{why}: {said:?}");
}

/// Returns the verdict about a point that `tally doctor` or `tally restore` has checked, and the detail.
pub(crate) fn point(said: &Said, what: &str) -> [String; 2] {
    let json = said.json();
    let points = json.as_array().or(json["points"].as_array()).unwrap();
    let point = points.iter().find(|point| point["what"] == what).unwrap_or_else(|| panic!("{what}: {said:?}"));
    ["verdict", "detail"].map(|name| point[name].as_str().unwrap().to_owned())
}
