//! What the tests of the API share: an API in this process over emulated tables, counters to write, a small HTTP
//! client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tally_adapters::dynamodb::changes::{Changes, Config as Log};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::{Counters, Update, Written};
use tally_adapters::dynamodb::{self, Connection, Consistency};
use tally_adapters::memory::log::Broker;
use tally_core::cached::{Cache as _, StandingAt, Value};
use tally_core::changes::{DeploymentId, LossNumber, Place, Standing, partition_of};
use tally_core::definitions::{Definitions, Entry};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId, RowKey, Shard, ShardCount};
use tally_core::register::{Kept, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition, TopicId};
use tally_count_api::{App, Config, Ports};
use tally_emulator::{Fault, Rule};
use tally_service::{Clock, Host, Running, Secret};
use tally_testkit::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::counts::world::Watched;

pub(crate) use tally_testkit::{BEGAN, eventually};

/// How many partitions the log of changes has.
pub(crate) const PARTITIONS: u32 = 4;

/// The place of the standings with which every test begins. Everything that a test plants is before it.
const BEGINNING: u64 = 1_000;

/// How long a test waits for something.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the last part of the problem's type.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let kind = self.json()["type"].as_str().unwrap().to_owned();
        kind.strip_prefix("urn:tally:problem:").unwrap().to_owned()
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let asking = async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            anyhow::Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::join!(asking, connection).0
    };
    timeout(DEADLINE, exchange).await.expect("an answer in time").expect("an answer")
}

/// Opens a connection and sends these bytes. The API may close it before all are sent.
pub(crate) async fn sent(address: SocketAddr, bytes: impl AsRef<[u8]>) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes.as_ref()).await;
    stream
}

/// Reads until the API closes the connection. A reset closes it, too.
pub(crate) async fn rest(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("it is hung up on");
    String::from_utf8_lossy(&rest).into_owned()
}

pub(crate) fn request(method: &str, target: &str) -> hyper::http::request::Builder {
    Request::builder().method(method).uri(target).header("host", "localhost")
}

pub(crate) async fn get(address: SocketAddr, target: &str) -> Answer {
    ask(address, "GET", target).await
}

pub(crate) async fn ask(address: SocketAddr, method: &str, target: &str) -> Answer {
    send(address, request(method, target).body(Full::default()).unwrap()).await
}

/// The same with a header.
pub(crate) async fn get_with(address: SocketAddr, target: &str, header: (&str, &str)) -> Answer {
    ask_with(address, "GET", target, header).await
}

pub(crate) async fn ask_with(address: SocketAddr, method: &str, target: &str, header: (&str, &str)) -> Answer {
    send(address, request(method, target).header(header.0, header.1).body(Full::default()).unwrap()).await
}

pub(crate) async fn post(address: SocketAddr, target: &str, body: &str) -> Answer {
    tell(address, "POST", target, body).await
}

pub(crate) async fn put(address: SocketAddr, target: &str, body: &str) -> Answer {
    tell(address, "PUT", target, body).await
}

async fn tell(address: SocketAddr, method: &str, target: &str, body: &str) -> Answer {
    let request = request(method, target).header("content-type", "application/json");
    send(address, request.body(Full::from(body.to_owned())).unwrap()).await
}

/// Returns a counter with all of it in shard 0. Its version is a place in generation 0 of the log.
pub(crate) fn counter(value: i64, version: u64) -> Counter {
    let parts = [(Shard::new(0).unwrap(), value)].into();
    Counter { likes: value, version: Place::from_stored(version), parts, updated_at: BEGAN, ..Counter::default() }
}

pub(crate) fn post_id(text: &str) -> CounterId {
    CounterId::likes(PostId::new(text).unwrap())
}

/// Sets and sums of posts and of hashtags, with and without an action that takes away.
pub(crate) fn several() -> Definitions {
    let hashtag = Some("hashtag".to_owned());
    let tagged =
        Entry { subject: hashtag.clone(), member: Some("post_id".to_owned()), ..Entry::set("posts", "tag", None) };
    Definitions::new(&[
        Entry::set("retweets", "retweet", Some("unretweet")),
        Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", None) },
        Entry::sum("views", "view", None),
        Entry::sum("score", "up", Some("down")),
        Entry { topic: Some("posts".to_owned()), ..tagged },
        Entry { subject: hashtag, ..Entry::sum("searches", "search", None) },
    ])
    .unwrap()
}

/// The counter `name` of [`several`].
pub(crate) fn counter_id(subject: &str, name: &str) -> CounterId {
    let name = several().named(name).unwrap().name.clone();
    CounterId { post: PostId::new(subject).unwrap(), name }
}

/// The log of changes of every test.
pub(crate) fn log(generation: u16) -> Log {
    Log { deployment: DeploymentId("tally".into()), partitions: PARTITIONS, topic: TopicId("t".into()), generation }
}

/// The first shard of a counter.
pub(crate) fn key(id: &CounterId) -> RowKey {
    RowKey { counter: id.clone(), shard: Shard::new(0).unwrap() }
}

/// The partition of a counter.
pub(crate) fn partition(id: &CounterId) -> u32 {
    partition_of(&key(id), PARTITIONS)
}

/// Returns the standing of a place where everything until `as_of` is in.
pub(crate) fn standing(at: u64, as_of: UnixMillis, loss: Option<u64>, open: &[u64]) -> StandingAt {
    let open = open.iter().map(|number| LossNumber(*number)).collect();
    let standing = Standing { as_of: Some(as_of), loss: loss.map(Place::from_stored), open };
    StandingAt { at: Place::from_stored(at), standing }
}

/// What is stored of a partition of a topic whose generation is the first.
pub(crate) fn kept(safe: u64, at: UnixMillis, safe_at: Option<UnixMillis>) -> Kept {
    let topic = Topic::first(TopicId("t".into()), Vec::new());
    Kept { safe_at, at, ..Kept::first(&topic, Offset(safe)) }
}

/// A consumer takes a partition over and stores this of it.
pub(crate) async fn keep(claims: &Claims, topic: &str, index: u32, kept: &Kept) {
    let partition = Partition { topic: topic.into(), index };
    let (claim, _) = claims.raise(&partition).await.unwrap();
    assert!(claims.keep(&partition, claim.n, kept).await.unwrap().is_some());
}

/// A topic is read for the first time.
pub(crate) async fn begin_topic(claims: &Claims, topic: &str, partitions: usize) {
    let first = Topic::first(TopicId("t".into()), vec![Offset(0); partitions]);
    claims.begin_topic(topic, &first).await.unwrap();
}

/// Everything that Kafka ever acknowledged is a row at any time, in each partition of a topic.
pub(crate) async fn all_is_a_row(connection: &Connection, topic: &str, partitions: u32) {
    let claims = Claims::new(connection, Clock::starting_at(BEGAN));
    begin_topic(&claims, topic, partitions as usize).await;
    for index in 0..partitions {
        keep(&claims, topic, index, &kept(0, UnixMillis(1), Some(UnixMillis::MAX))).await;
    }
}

/// Sets the deployment up as a consumer and a change-streamer do: everything until the beginning is counted.
pub(crate) async fn set_up(connection: &Connection) {
    let changes = Changes::new(connection);
    changes.begin_log(&log(0)).await.unwrap();
    Counters::new(connection).put_reserved().await.unwrap();
    for partition in 0..PARTITIONS {
        tally_testkit::stand(&changes, partition, &standing(BEGINNING, BEGAN, None, &[])).await;
    }
    all_is_a_row(connection, "likes", PARTITIONS).await;
    all_is_a_row(connection, "posts", 1).await;
}

/// Writes a counter over any earlier one. Returns how often that read counters.
pub(crate) async fn plant(connection: &Connection, id: &CounterId, after: Counter) -> u64 {
    let counters = Counters::new(connection);
    let new = Update { counter: id.clone(), before: None, after: after.clone() };
    if counters.write(&[new]).await.unwrap() == [Written::Stored] {
        return 0;
    }
    let mut read = counters.read(std::slice::from_ref(id), Consistency::Strong).await.unwrap();
    let before = read.counters.remove(id).transpose().unwrap();
    let written = counters.write(&[Update { counter: id.clone(), before, after }]).await.unwrap();
    assert_eq!(written, [Written::Stored]);
    1
}

/// A deployment in this process: its emulated tables, its cache, and what the fold of a test writes to them.
#[derive(Clone)]
pub(crate) struct Deployed {
    pub(crate) store: Arc<Store>,
    pub(crate) cache: Watched,
    /// How often the test itself read counters.
    own_reads: Arc<AtomicU64>,
}

impl Deployed {
    pub(crate) async fn start() -> Self {
        let this = Self { store: Arc::new(Store::start().await), cache: Watched::default(), own_reads: Arc::default() };
        set_up(this.connection()).await;
        this.checkpoints().config(Some(ShardCount::DEFAULT)).await.unwrap();
        for partition in 0..PARTITIONS {
            let stated = standing(BEGINNING, BEGAN, None, &[]);
            let taken = this.cache.inner.take_over(partition, &log(1).deployment, &stated).await;
            taken.unwrap().expect("nothing later is there");
        }
        this.mended();
        this
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.store.connection
    }

    pub(crate) fn checkpoints(&self) -> dynamodb::Checkpoints {
        dynamodb::Checkpoints::new(self.connection())
    }

    pub(crate) fn ports(&self, cache: bool) -> Ports {
        Ports { cache: cache.then(|| Arc::new(self.cache.clone()) as _), ..Ports::over(self.connection()) }
    }

    pub(crate) async fn plant(&self, id: &CounterId, after: Counter) {
        let reads = plant(self.connection(), id, after).await;
        self.own_reads.fetch_add(reads, Ordering::SeqCst);
    }

    /// Puts a member's row.
    pub(crate) async fn plant_row(&self, id: &CounterId, member: &str) {
        self.put_row(id, member, json!({"liked_at": {"N": BEGAN.to_string()}})).await;
    }

    /// Writes the tombstone that the removal of a member leaves.
    pub(crate) async fn plant_tombstone(&self, id: &CounterId, member: &str) {
        self.put_row(id, member, json!({"v": {"N": "7"}, "gone": {"N": "4000000000"}})).await;
    }

    async fn put_row(&self, id: &CounterId, member: &str, mut item: serde_json::Value) {
        item["pk"] = json!({"S": RowKey::of(id, member, ShardCount::DEFAULT).to_string()});
        item["user_id"] = json!({"S": member});
        self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
    }

    /// Stores the same standing for every partition, as the fold does.
    pub(crate) async fn stand(&self, standing: &StandingAt) {
        for partition in 0..PARTITIONS {
            assert!(tally_testkit::stand(&Changes::new(self.connection()), partition, standing).await);
        }
    }

    /// Makes a counter unreadable.
    pub(crate) async fn damage(&self, id: &CounterId) {
        self.plant(id, counter(1, 1)).await;
        let key = json!({"post_id": {"S": id.stored()}});
        self.store.edit("like_counts", key, "likes", json!({"S": "canary"})).await;
    }

    /// Makes reads of counters take so long.
    pub(crate) fn slow_down(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        let late = Fault::Latency { min_ms: millis, max_ms: millis };
        self.store.faults([Rule::new(late).on("BatchGetItem").table("like_counts")]);
    }

    /// Ends the faults of reads of counters.
    pub(crate) fn mended(&self) {
        self.slow_down(Duration::ZERO);
    }

    /// Returns how often the API read counters.
    pub(crate) fn reads(&self) -> u64 {
        self.store.emulator.stats().fired("latency") - self.own_reads.load(Ordering::SeqCst)
    }

    /// Returns the counter in the cache.
    pub(crate) async fn held(&self, id: &CounterId) -> Option<Value> {
        self.cache.inner.get(partition(id), std::slice::from_ref(id)).await.unwrap().values.remove(0)
    }
}

/// The topics that an API writes to.
pub(crate) fn broker() -> Broker {
    let broker = Broker::new();
    broker.create_topic("likes", 4);
    broker.create_topic("posts", 1);
    broker
}

/// Defines the counters of [`several`].
pub(crate) async fn define(connection: &Connection) {
    let checkpoints = dynamodb::Checkpoints::new(connection);
    assert_eq!(checkpoints.define(&Definitions::likes_alone(), &several()).await, Ok(true));
}

/// An API over a deployment.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) tables: Deployed,
    pub(crate) broker: Broker,
    pub(crate) running: Running,
}

/// What an API under test has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct With {
    pub(crate) cache: bool,
    pub(crate) writes: bool,
}

pub(crate) const CACHED: With = With { cache: true, writes: false };
pub(crate) const WRITING: With = With { cache: false, writes: true };

/// The tokens of these lines.
pub(crate) fn token(lines: &str) -> Option<Secret> {
    Some(Secret::from(lines.to_owned()))
}

/// An API that keeps no number in memory.
pub(crate) fn uncached() -> Config {
    Config { local_ttl: Duration::ZERO, ..Config::default() }
}

impl Api {
    /// An API with several counters. Whatever `config` says, it takes writes from any caller if it writes, and calls an
    /// answer fresh for an hour.
    pub(crate) async fn start(config: Config, with: With) -> Self {
        Self::wired(config, with, |app| app).await
    }

    /// The same, as `wire` has it.
    pub(crate) async fn wired(config: Config, with: With, wire: impl FnOnce(App) -> App) -> Self {
        Self::at(Clock::starting_at(BEGAN), config, with, wire).await
    }

    /// The same with this clock.
    pub(crate) async fn at(clock: Clock, config: Config, with: With, wire: impl FnOnce(App) -> App) -> Self {
        // A slow machine makes no answer old.
        let config = Config { open_writes: true, fresh_within: Duration::from_secs(3_600), ..config };
        let (tables, broker) = (Deployed::start().await, broker());
        define(tables.connection()).await;
        let producer = with.writes.then(|| Arc::new(broker.clone()) as _);
        let app = wire(App::with_ports(None, config, Ports { producer, ..tables.ports(with.cache) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let running = Running::start(App { listener: Some(listener), ..app }, Host::new("count-api").with_clock(clock));
        timeout(DEADLINE, running.ready()).await.expect("ready in time").expect("no early end");
        Self { address, tables, broker, running }
    }

    pub(crate) async fn plant(&self, post: &str, likes: i64, version: u64) {
        self.tables.plant(&post_id(post), counter(likes, version)).await;
    }

    /// The same of any counter of [`several`].
    pub(crate) async fn plant_counter(&self, subject: &str, name: &str, value: i64, version: u64) {
        self.tables.plant(&counter_id(subject, name), counter(value, version)).await;
    }
}
