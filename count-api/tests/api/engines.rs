//! Runs the API over separate engines: the emulator behind a socket, and a real Redis where one is installed. The tests
//! stop them under load, and start them again.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use tally_adapters::{dynamodb, redis};
use tally_core::cached::{Cache, Value};
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_count_api::{Config, Ports};
use tally_emulator::{Emulator, Fault, Policies, Rule};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{
    BEGAN, PARTITIONS, counter, counter_id, define, eventually, get, log, partition, plant, post, post_id, request,
    send, serve, set_up, standing,
};

/// The emulator behind a socket that can be closed and opened again, with everything in it.
pub(crate) struct Tables {
    emulator: Emulator,
    pub(crate) address: SocketAddr,
    serving: Option<(JoinSet<()>, oneshot::Sender<()>)>,
}

impl Tables {
    /// Starts the emulator with everything that a consumer and a streamer create.
    pub(crate) async fn start() -> Self {
        Self::deployed(Some(ShardCount::DEFAULT)).await
    }

    /// Starts the emulator with all tables, and creates a deployment of so many shards, if any.
    pub(crate) async fn deployed(shards: Option<ShardCount>) -> Self {
        Self::of(shards, tally_emulator::Config::default()).await
    }

    /// The same, where each role may do only what its policies allow. The role `local` sets them up.
    pub(crate) async fn under(policies: Policies) -> Self {
        let config = tally_emulator::Config { policies: Some(policies), ..tally_emulator::Config::default() };
        Self::of(Some(ShardCount::DEFAULT), config).await
    }

    async fn of(shards: Option<ShardCount>, config: tally_emulator::Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let emulator = Emulator::new(config);
        let counted = |table: &str| Rule::new(Fault::Latency { min_ms: 0, max_ms: 0 }).on("BatchGetItem").table(table);
        emulator.set_faults(vec![counted("like_counts"), counted("likes")]);
        let mut tables = Self { emulator, address, serving: None };
        tables.serve(listener);
        let connection = tables.connection().await;
        dynamodb::ensure_tables(&connection).await.unwrap();
        set_up(&connection).await;
        if let Some(shards) = shards {
            dynamodb::Checkpoints::new(&connection).config(Some(shards)).await.unwrap();
        }
        tables
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = oneshot::channel();
        let (emulator, mut task) = (self.emulator.clone(), JoinSet::new());
        task.spawn(async move {
            emulator.serve(listener, async { _ = stopped.await }).await.unwrap();
        });
        self.serving = Some((task, stop));
    }

    pub(crate) async fn stop(&mut self) {
        let (mut task, stop) = self.serving.take().expect("it is serving");
        drop(stop);
        task.join_next().await.unwrap().unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    /// Calls one operation as any client may.
    pub(crate) async fn call(&self, operation: &str, body: &'static str) {
        let (target, signed) = (format!("DynamoDB_20120810.{operation}"), "AWS4-HMAC-SHA256 Credential=local");
        let call = request("POST", "/").header("x-amz-target", target).header("authorization", signed);
        let call = call.header("content-type", "application/x-amz-json-1.0");
        let answer = send(self.address, call.body(Full::from(body)).unwrap()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    pub(crate) async fn connection(&self) -> dynamodb::Connection {
        let endpoint = Some(format!("http://{}", self.address));
        dynamodb::Connection::open(&dynamodb::Settings { endpoint, ..dynamodb::Settings::local("") }).await
    }

    /// Returns how many batches of counters and rows were read.
    pub(crate) fn batches(&self) -> u64 {
        let faults = self.emulator.stats().faults;
        faults.get("BatchGetItem").and_then(|faults| faults.get("latency")).copied().unwrap_or_default()
    }

    pub(crate) async fn plant(&self, post: &str, likes: i64) {
        plant(&self.connection().await, &post_id(post), counter(likes, 1)).await;
    }
}

/// A Redis on a free port, which is stopped when this is dropped.
pub(crate) struct RedisServer {
    port: u16,
    child: Child,
}

impl RedisServer {
    pub(crate) async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let server = Self { port, child: Self::spawn(port) };
        server.up().await;
        server
    }

    fn spawn(port: u16) -> Child {
        let port = port.to_string();
        let options = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let server = std::env::var("TALLY_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let started = Command::new(&server).args(options).stdout(Stdio::null()).spawn();
        started.unwrap_or_else(|error| panic!("{server}: {error}"))
    }

    async fn up(&self) {
        eventually("redis answers", async || tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok())
            .await;
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn restart(&mut self) {
        self.child = Self::spawn(self.port);
        self.up().await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the cache in it, which a fold has taken over.
    async fn cache(&self) -> redis::PartitionCache {
        let cache = redis::PartitionCache::new(&redis::Settings::at(vec![self.url()])).unwrap();
        for partition in 0..PARTITIONS {
            let taken =
                cache.take_over(partition, &log(1).deployment, &standing(1_000, BEGAN, None, &[])).await.unwrap();
            assert!(taken.is_some(), "nothing later is there");
        }
        cache
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn ports(tables: &Tables, cache: Option<Arc<dyn Cache>>) -> Ports {
    Ports { cache, ..Ports::over(&tables.connection().await) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_works_over_the_wire() {
    let tables = Tables::start().await;
    tables.plant("p#1", 5).await;
    let (address, _running) = serve(Config::default(), ports(&tables, None).await).await;
    let count = get(address, "/v1/posts/p%231/likes").await.json();
    assert_eq!((count["likes"].as_u64(), count["exact"].as_bool()), (Some(5), Some(true)));
    let batch = post(address, "/v1/likes:batchGet", r#"{"post_ids":["x","p#1"]}"#).await.json();
    assert_eq!((batch["counts"][0]["likes"].as_u64(), batch["counts"][1]["likes"].as_u64()), (Some(0), Some(5)));
    assert_eq!(get(address, "/v1/posts/p%231/likes/u").await.json()["liked"], false);
    assert_eq!(get(address, "/v1/posts/p%231/likers").await.json()["likers"], serde_json::json!([]));
    // No store gives such cursors. If it refuses one, the client gets a 400.
    for after in ["\u{1}recount", &"x".repeat(1500), "é"] {
        use base64::Engine;
        let cursor = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("1/0/{after}"));
        let answer = get(address, &format!("/v1/posts/p/likers?cursor={cursor}")).await;
        assert!([200, 400].contains(&answer.status.as_u16()), "{after}: {answer:?}");
    }
    tables.plant("neg", -2).await;
    assert_eq!(get(address, "/v1/posts/neg/likes").await.json()["likes"], 0);
    let recounts = dynamodb::Recounts::new(&tables.connection().await);
    eventually("it is queued", async || !recounts.queued(None).await.unwrap().items.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn what_was_read_from_the_table_is_in_redis_and_what_redis_has_is_served() {
    let server = RedisServer::start().await;
    let tables = Tables::start().await;
    tables.plant("p", 5).await;
    let cache = server.cache().await;
    let config = Config { local_ttl: Duration::ZERO, cache_budget: Duration::from_secs(2), ..Config::default() };
    let (address, _running) = serve(config, ports(&tables, Some(Arc::new(cache.clone()))).await).await;
    assert_eq!(get(address, "/v1/posts/p/likes").await.json()["likes"], 5);
    let (id, index) = (post_id("p"), partition(&post_id("p")));
    let held = async |id: &CounterId| cache.get(index, std::slice::from_ref(id)).await.unwrap().values.remove(0);
    eventually("it is filled", async || held(&id).await.is_some_and(|value| value.likes == 5)).await;
    let later = standing(2_000, BEGAN, None, &[]);
    let mut hold = cache.take_over(index, &log(1).deployment, &later).await.unwrap().expect("it is later");
    assert_eq!(get(address, "/v1/posts/p/likes").await.json()["likes"], 5);
    eventually("it is filled again", async || held(&id).await.is_some()).await;
    let newer = Value::from(&counter(6, 2_001));
    cache.tell(index, &mut hold, &[(id, newer)], None).await.unwrap();
    assert_eq!(get(address, "/v1/posts/p/likes").await.json()["likes"], 6);
    let batch = post(address, "/v1/likes:batchGet", r#"{"post_ids":["p","q"]}"#).await.json();
    assert_eq!(batch["counts"][0]["version"], 2_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_posts_is_a_request_for_each_hundred_numbers_and_rows_of_a_member() {
    let tables = Tables::start().await;
    define(&tables.connection().await).await;
    let key = RowKey::of(&counter_id("p7", "retweets"), "u", ShardCount::DEFAULT);
    let row = format!(r#"{{"TableName":"likes","Item":{{"pk":{{"S":"{key}"}},"user_id":{{"S":"u"}}}}}}"#);
    tables.call("PutItem", row.leak()).await;
    let config = Config { local_ttl: Duration::ZERO, ..Config::default() };
    let (address, _running) = serve(config, ports(&tables, None).await).await;
    for (posts, requests) in [(25, 1 + 1), (100, 4 + 3)] {
        let before = tables.batches();
        let ids: Vec<String> = (0..posts).map(|n| format!("p{n}")).collect();
        let names = ["views", "likes", "retweets", "replies"];
        let body = serde_json::json!({"post_ids": ids, "counters": names, "member": "u"}).to_string();
        let counts = post(address, "/v1/counters:batchGet", &body).await.json();
        let counts = counts["counts"].as_array().unwrap();
        let mine: Vec<_> =
            counts.iter().filter(|it| it["mine"] == true).map(|it| (&it["post_id"], &it["counter"])).collect();
        assert_eq!((counts.len(), mine), (posts * 4, vec![(&"p7".into(), &"retweets".into())]));
        assert_eq!(tables.batches() - before, requests, "{posts} posts");
    }
    let twice = r#"{"post_ids":["p7","p7"],"counters":["retweets"],"member":"u"}"#;
    let twice = post(address, "/v1/counters:batchGet", twice).await.json();
    assert_eq!((&twice["counts"][0]["mine"], &twice["counts"][1]["mine"]), (&true.into(), &true.into()));
}

/// Readers that send one request after another and check every answer.
struct Load {
    stop: Arc<AtomicBool>,
    readers: JoinSet<Vec<u16>>,
    answered: Arc<AtomicUsize>,
}

impl Load {
    const POSTS: i64 = 40;

    fn start(address: SocketAddr) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut readers = JoinSet::new();
        for reader in 0..4 {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            readers.spawn(async move {
                let mut statuses = Vec::new();
                for n in (reader..).step_by(3) {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let post = n % Self::POSTS;
                    let answer = get(address, &format!("/v1/posts/p{post}/likes")).await;
                    statuses.push(answer.status.as_u16());
                    if answer.status == 200 {
                        let json = answer.json();
                        assert_eq!(json["likes"].as_i64(), Some(post + 1), "a wrong number: {json}");
                    } else {
                        assert_eq!(answer.status, 503, "{answer:?}");
                        assert!(answer.header("retry-after").is_some());
                    }
                    answered.fetch_add(1, Ordering::SeqCst);
                }
                statuses
            });
        }
        Self { stop, readers, answered }
    }

    /// Waits until this many more answers were given.
    async fn some(&self, answers: usize) {
        let enough = self.answered.load(Ordering::SeqCst) + answers;
        eventually("answers go on", async || self.answered.load(Ordering::SeqCst) >= enough).await;
    }

    async fn end(mut self) -> Vec<u16> {
        self.stop.store(true, Ordering::SeqCst);
        let mut statuses = Vec::new();
        while let Some(reader) = self.readers.join_next().await {
            statuses.extend(reader.expect("no reader met a wrong number"));
        }
        statuses
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn stores_that_stop_under_load_cost_time_and_never_a_wrong_number() {
    let mut server = RedisServer::start().await;
    let mut tables = Tables::start().await;
    for post in 0..Load::POSTS {
        tables.plant(&format!("p{post}"), post + 1).await;
    }
    let config = Config {
        table: tally_count_api::read::Bounds { budget: Duration::from_secs(20), ..Config::default().table },
        ..Config::default()
    };
    let (address, running) = serve(config, ports(&tables, Some(Arc::new(server.cache().await))).await).await;
    let readiness = running.host().readiness().clone();

    let both_up = Load::start(address);
    both_up.some(200).await;
    assert!(both_up.end().await.iter().all(|status| *status == 200));

    let without_redis = Load::start(address);
    without_redis.some(50).await;
    server.kill();
    let began = Instant::now();
    without_redis.some(300).await;
    assert!(readiness.report().ready, "the table serves");
    eprintln!("300 answers without redis took {:?}", began.elapsed());
    assert!(without_redis.end().await.iter().all(|status| *status == 200), "the table alone is enough");

    let without_both = Load::start(address);
    without_both.some(20).await;
    tables.stop().await;
    // Each request uses up the client's attempts, and all tests of this process share what they may cost.
    without_both.some(20).await;
    eventually("readiness says so", async || !readiness.report().ready).await;
    let statuses = without_both.end().await;
    assert!(statuses.contains(&503), "{statuses:?}");

    tables.restart().await;
    server.restart().await;
    eventually("readiness is back", async || readiness.report().ready).await;
    eventually("counts are back", async || get(address, "/v1/posts/p7/likes").await.status == 200).await;
    let both_back = Load::start(address);
    both_back.some(300).await;
    let statuses = both_back.end().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let (cache, p7) = (server.cache().await, post_id("p7"));
    eventually("the cache is used again", async || {
        get(address, "/v1/posts/p7/likes").await;
        let got = cache.get(partition(&p7), std::slice::from_ref(&p7)).await;
        got.is_ok_and(|got| got.values[0].is_some())
    })
    .await;
}
