//! A deployment in this process: the four services' own apps over the emulator and a broker in memory, under paused time.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::log::Broker;
use tally_adapters::memory::{Cache, Memory};
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::fence::least_of_each;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, RowKey, ShardCount};
use tally_core::ports::log::{Intake, Outgoing, Written};
use tally_core::ports::{ChangeStream as _, Counts as _, FencedRows as _, Positions as _, Rows as _, TopicReader as _};
use tally_core::time::UnixMillis;
use tally_count_api as api;
use tally_emulator::{Config, Emulator};
use tally_service::{Chance, Clock, Exit, Host, How, Running};
use tokio::time::Instant;

pub(crate) const TOPIC: &str = "likes";

/// The deployment. What it starts ends with the handle that it gives out.
pub(crate) struct Stack {
    pub(crate) emulator: Emulator,
    pub(crate) connection: Connection,
    pub(crate) broker: Broker,
    pub(crate) cache: Cache,
    pub(crate) checkpoints: dynamodb::Checkpoints,
    pub(crate) counts: dynamodb::Counts,
    pub(crate) recounts: dynamodb::Recounts,
    likes: dynamodb::Likes,
    rows: dynamodb::Rows,
    stream: dynamodb::Streams,
    pub(crate) shards: ShardCount,
    pub(crate) clock: Clock,
    started: AtomicU64,
}

impl Stack {
    /// Empty tables, made at `began`, whose stream has `open` shards.
    pub(crate) async fn at(began: UnixMillis, shards: ShardCount, open: u32) -> Self {
        let epoch = Some(std::time::UNIX_EPOCH + Duration::from_millis(began.0));
        let emulator = Emulator::new(Config { epoch, shards: open, roll_after: None, ..Config::default() });
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), began);
        dynamodb::ensure_tables(&connection).await.unwrap();
        Self {
            broker: Broker::new(),
            cache: Memory::new(began, 1).cache(),
            checkpoints: dynamodb::Checkpoints::new(&connection),
            counts: dynamodb::Counts::new(&connection),
            recounts: dynamodb::Recounts::new(&connection),
            likes: dynamodb::Likes::new(&connection, shards),
            rows: dynamodb::Rows::new(&connection),
            stream: dynamodb::Streams::new(&connection),
            emulator,
            connection,
            shards,
            clock: Clock::starting_at(began),
            started: AtomicU64::new(0),
        }
    }

    fn host(&self, name: &str) -> Host {
        let nth = self.started.fetch_add(1, Ordering::Relaxed);
        Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(nth))
    }

    pub(crate) fn consumer(&self) -> Running {
        let (shards, dead_letter_topic) = (Some(self.shards), "likes.dlq".to_owned());
        let settings = consumer::ReadSettings {
            topic: TOPIC.to_owned(),
            dead_letter_topic,
            group: "tally-consumer".to_owned(),
            shards,
            ..consumer::ReadSettings::default()
        };
        let (likes, broker, reader) = (self.likes.clone(), self.broker.clone(), self.broker.clone());
        let ports = consumer::Ports {
            checkpoints: Arc::new(self.checkpoints.clone()),
            rows: Box::new(move |_| Arc::new(likes)),
            maps: Arc::new(dynamodb::Maps::new(&self.connection)),
            join: Box::new(move || Ok(Box::new(broker.join("tally-consumer", TOPIC)) as Box<dyn Intake>)),
            producer: Arc::new(self.broker.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
        };
        Running::start(consumer::App::with_ports(consumer::Mode::Consume, settings, ports), self.host("consumer"))
    }

    pub(crate) fn streamer(&self) -> Running {
        let mut rules = streamer::Rules::default();
        rules.poll.idle = Duration::from_millis(500);
        let (table_prefix, shards) = (String::new(), Some(self.shards));
        let config = streamer::Config { table_prefix, shards, cache: None, feed: None, changes: None, rules };
        let ports =
            streamer::Ports { cache: Some(Arc::new(self.cache.clone())), ..streamer::Ports::over(&self.connection) };
        Running::start(streamer::App::with_ports(config, ports), self.host("change-streamer"))
    }

    /// A recount from its command line to its exit code.
    pub(crate) async fn recount(&self, line: &[&str]) -> Exit {
        let args = recount::Args::try_parse_from(std::iter::once(&"tally-batch-recount").chain(line)).unwrap();
        let config = recount::Config { shards: Some(self.shards), ..recount::Config::try_from(args).unwrap() };
        let ports = recount::Ports::over(&self.connection);
        let running = Running::start(recount::App::with_ports(config, ports), self.host("batch-recount"));
        let end = running.ended().await;
        let How::Finished(exit) = end.how else { panic!("{end}") };
        exit
    }

    /// What the API says at `path`, from its start to its end.
    pub(crate) async fn ask(&self, path: &str) -> Value {
        let config = api::Config { shards: Some(self.shards), ..api::Config::default() };
        let ports = api::Ports { cache: Some(Arc::new(self.cache.clone())), ..api::Ports::over(&self.connection) };
        let (app, front) = api::App::with_ports(config, ports).in_process();
        let _running = Running::start(app, self.host("count-api"));
        let front = front.await.expect("the API starts");
        let request = Request::get(path).header("host", "test").body(Full::<Bytes>::default()).unwrap();
        let peer = api::limits::Peer::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let Ok(answer) = front.answer(request, &peer).await;
        let body = answer.into_body().collect().await.map_err(|_| "no body").unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    /// Writes one event of a set, under its post's key.
    pub(crate) fn say(&self, post: &str, user: &str, action: &str) -> Written {
        let event = json!({"post_id": post, "user_id": user, "action": action});
        self.send(post, None, &event)
    }

    pub(crate) fn send(&self, post: &str, partition: Option<u32>, event: &Value) -> Written {
        let value = event.to_string();
        let (key, value) = (Some(post.as_bytes()), Some(value.as_bytes()));
        let record = Outgoing { topic: TOPIC, partition, key, value, headers: &[] };
        self.broker.append(record, self.clock.now()).unwrap()
    }

    /// Waits until every record is behind a fence and everything in the stream is applied.
    pub(crate) async fn quiet(&self) {
        eventually("every fence at its log's end", async || {
            let logs = self.broker.reader("quiet", TOPIC).logs().await.unwrap();
            let fences = least_of_each(&self.likes.fences(TOPIC).await.unwrap());
            logs.iter().all(|(partition, log)| {
                let fence = fences.get(&partition.index);
                log.end == log.start || fence.is_some_and(|offset| *offset >= log.end)
            })
        })
        .await;
        let now = self.clock.now();
        eventually("every stream shard is read up to now", async || {
            let label = self.stream.info().await.unwrap().label;
            let states = self.checkpoints.shards(&label).await.unwrap();
            let mut open = states.iter().filter(|state| !state.checkpoint.closed).peekable();
            open.peek().is_some() && open.all(|state| state.checkpoint.at > now)
        })
        .await;
    }

    /// What the counter says, after it was held against its rows, shard by shard.
    pub(crate) async fn exact(&self, counter: &CounterId) -> i64 {
        let stands = self.counts.counter(counter).await.unwrap().unwrap_or_default();
        for shard in self.shards.all() {
            let (key, mut rows, mut after) = (RowKey { counter: counter.clone(), shard }, 0, None);
            loop {
                let page = self.rows.weights(&key, after.as_ref()).await.unwrap();
                rows += page.items.iter().map(|(_, weight)| weight.expect("it is readable").get()).sum::<i64>();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(stands.shards.get(&shard).map_or(0, |tally| tally.rows), rows, "{key}");
        }
        assert!(stands.is_sound_as(counter.name.kind()), "{counter}: {stands:?}");
        stands.likes
    }
}

pub(crate) fn counter(post: &str, name: &str, kind: CounterKind) -> CounterId {
    CounterId { post: PostId::new(post).unwrap(), name: CounterName::new(name, kind).unwrap() }
}

/// Polls until `holds`, a quarter of a second of the test's time apart.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(3600);
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
