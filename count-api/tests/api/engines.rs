//! Runs the API over separate engines: the emulator behind a socket, and a real Redis where one is installed. The tests
//! stop them under load, and start them again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tally_adapters::{dynamodb, redis};
use tally_core::cached::Cache;
use tally_core::ids::{RowKey, ShardCount};
use tally_count_api::{Config, Ports};
use tally_emulator::{Fault, Policies, Rule};
use tally_testkit::{Redis, Store};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{
    BEGAN, PARTITIONS, counter, counter_id, define, eventually, get, log, partition, plant, post, post_id, serve,
    set_up, standing,
};

/// Tables that are also behind a socket, which can be closed and opened again.
pub(crate) struct Tables {
    pub(crate) store: Store,
    pub(crate) address: SocketAddr,
    serving: Option<(JoinSet<()>, oneshot::Sender<()>)>,
}

impl Tables {
    /// Starts with everything that a consumer and a streamer create.
    pub(crate) async fn start() -> Self {
        Self::of(ShardCount::DEFAULT, None).await
    }

    /// The same with a deployment of so many shards, where each role may do only what `policies` allow.
    pub(crate) async fn of(shards: ShardCount, policies: Option<Policies>) -> Self {
        let store = Store::in_real_time(tally_emulator::Config { policies, ..Default::default() }).await;
        let counted = |table: &str| Rule::new(Fault::Latency { min_ms: 0, max_ms: 0 }).on("BatchGetItem").table(table);
        store.faults([counted("like_counts"), counted("likes")]);
        set_up(&store.connection).await;
        dynamodb::Checkpoints::new(&store.connection).config(Some(shards)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut tables = Self { store, address: listener.local_addr().unwrap(), serving: None };
        tables.serve(listener);
        tables
    }

    fn serve(&mut self, listener: TcpListener) {
        let (stop, stopped) = oneshot::channel();
        let (emulator, mut task) = (self.store.emulator.clone(), JoinSet::new());
        task.spawn(async move {
            emulator.serve(listener, async { _ = stopped.await }).await.unwrap();
        });
        self.serving = Some((task, stop));
    }

    async fn stop(&mut self) {
        let (mut task, stop) = self.serving.take().expect("it is serving");
        drop(stop);
        task.join_next().await.unwrap().unwrap();
    }

    async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    /// The ports of an API that uses the socket.
    pub(crate) async fn ports(&self, cache: Option<Arc<dyn Cache>>) -> Ports {
        let endpoint = Some(format!("http://{}", self.address));
        let settings = dynamodb::Settings { endpoint, ..dynamodb::Settings::local("") };
        Ports { cache, ..Ports::over(&dynamodb::Connection::open(&settings).await) }
    }

    /// Returns how many batches of counters and rows were read.
    pub(crate) fn batches(&self) -> u64 {
        self.store.emulator.stats().fired("latency")
    }

    pub(crate) async fn plant(&self, post: &str, likes: i64) {
        plant(&self.store.connection, &post_id(post), counter(likes, 1)).await;
    }
}

/// Returns the cache in this Redis, which a fold has taken over.
async fn cache(server: &Redis) -> redis::PartitionCache {
    let cache = redis::PartitionCache::new(&redis::Settings::at(vec![server.url()])).unwrap();
    for partition in 0..PARTITIONS {
        let taken = cache.take_over(partition, &log(1).deployment, &standing(1_000, BEGAN, None, &[])).await.unwrap();
        assert!(taken.is_some(), "nothing later is there");
    }
    cache
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_posts_is_a_request_for_each_hundred_numbers_and_rows_of_a_member() {
    let tables = Tables::start().await;
    define(&tables.store.connection).await;
    let key = RowKey::of(&counter_id("p7", "retweets"), "u", ShardCount::DEFAULT);
    tables.store.put("likes", &json!({"pk": key.to_string(), "user_id": "u"})).await;
    let config = Config { local_ttl: Duration::ZERO, ..Config::default() };
    let (address, _running) = serve(config, tables.ports(None).await).await;
    for (posts, requests) in [(25, 1 + 1), (100, 4 + 3)] {
        let before = tables.batches();
        let ids: Vec<String> = (0..posts).map(|n| format!("p{n}")).collect();
        let names = ["views", "likes", "retweets", "replies"];
        let body = json!({"post_ids": ids, "counters": names, "member": "u"}).to_string();
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
    let mut server = Redis::start(&[]).await.unwrap();
    let mut tables = Tables::start().await;
    for post in 0..Load::POSTS {
        tables.plant(&format!("p{post}"), post + 1).await;
    }
    let config = Config {
        table: tally_count_api::read::Bounds { budget: Duration::from_secs(20), ..Config::default().table },
        ..Config::default()
    };
    let (address, running) = serve(config, tables.ports(Some(Arc::new(cache(&server).await))).await).await;
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
    server.restart().await.unwrap();
    eventually("readiness is back", async || readiness.report().ready).await;
    eventually("counts are back", async || get(address, "/v1/posts/p7/likes").await.status == 200).await;
    let both_back = Load::start(address);
    both_back.some(300).await;
    let statuses = both_back.end().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let (cache, p7) = (cache(&server).await, post_id("p7"));
    eventually("the cache is used again", async || {
        get(address, "/v1/posts/p7/likes").await;
        let got = cache.get(partition(&p7), std::slice::from_ref(&p7)).await;
        got.is_ok_and(|got| got.values[0].is_some())
    })
    .await;
}
