//! The whole consumer against the in-process cluster and the emulator, beside a bare loop of the same transactions over
//! the same SDK: what everything around the transactions costs.
//!
//! `cargo bench -p tally-consumer --bench whole`: the last lines are both rates and their ratio, the median of rounds.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rdkafka::mocking::MockCluster;
use tally_adapters::dynamodb::{Checkpoints, Connection, Likes, Settings, ensure_tables};
use tally_adapters::kafka::{self, Producer, Source};
use tally_consumer::{Action, App, Ports, ReadSettings};
use tally_core::batch::{Change, Limits};
use tally_core::event::{Action as Said, LikeEvent};
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId};
use tally_core::ids::{PostId, ShardCount, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{FencedRows, Producer as _};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator};
use tally_service::{Host, Running, Stage};
use tokio::net::TcpListener;

const PARTITIONS: u32 = 12;
/// Rows of a partition: a whole number of transactions, and less than the in-process cluster keeps.
const EVENTS: u64 = 99 * 40;
const ROUNDS: usize = 5;
const FLOOR: f64 = 0.8;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let bare = bare_loop().await;
        let whole = whole().await;
        let events = (EVENTS * u64::from(PARTITIONS)) as f64;
        let rate = |time: Duration| events / time.as_secs_f64();
        println!("round {round}: bare {:.0} rows/s, whole {:.0} rows/s", rate(bare), rate(whole));
        ratios.push(bare.as_secs_f64() / whole.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    println!("of the bare loop: {ratio:.2} (at least {FLOOR})");
    if ratio < FLOOR && !cfg!(debug_assertions) {
        std::process::exit(1);
    }
}

/// Fresh tables behind a loopback port.
async fn tables() -> (Connection, Host) {
    let emulator = Emulator::new(Config::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let host = Host::new("bench");
    host.worker(Stage::Support, "emulator", move |stop: tally_service::Stop| async move {
        emulator.serve(listener, async move { stop.requested().await }).await?;
        Ok(())
    });
    let connection = Connection::open(&Settings { endpoint: Some(endpoint), ..Settings::local("") }).await;
    ensure_tables(&connection).await.expect("the emulator takes the tables");
    (connection, host)
}

fn ids(partition: u32, n: u64) -> (PostId, UserId) {
    let post = PostId::new(&format!("post-{partition:08}")).expect("a valid id");
    (post, UserId::new(&format!("user-{n:010}")).expect("a valid id"))
}

/// The same transactions, one in flight a partition, by themselves.
async fn bare_loop() -> Duration {
    let (connection, _host) = tables().await;
    let likes = Likes::new(&connection, ShardCount::DEFAULT);
    let start = now();
    let chains = (0..PARTITIONS).map(|index| {
        let likes = likes.clone();
        async move {
            let partition = Partition { topic: "likes".into(), index };
            let mut fence = Fence { offset: Offset(0), cfg: 0, topic: TopicId("t".into()) };
            likes.create_fence(&partition, &fence).await.expect("the table takes a fence");
            while fence.offset.0 < EVENTS {
                let from = fence.offset.0;
                let to = from + Limits::MAX_ROWS as u64;
                let rows: Vec<_> = (from..to).map(|n| ids(index, n)).collect();
                let change = |(post, user)| Change { post, user, action: Said::Like, at: UnixMillis(5) };
                let changes: Vec<Change<'_>> = rows.iter().map(|(post, user)| change((post, user))).collect();
                let advance = Advance { from: fence.clone(), to: Offset(to) };
                assert_eq!(likes.commit(&partition, &advance, &changes).await, Commit::Done);
                fence = advance.reached();
            }
        }
    });
    futures_util::future::join_all(chains).await;
    start.elapsed()
}

/// The consumer from its first transaction to its last.
async fn whole() -> Duration {
    let (connection, _host) = tables().await;
    let cluster = MockCluster::new(1).expect("the in-process cluster starts");
    for topic in ["likes", "likes.dlq"] {
        cluster.create_topic(topic, 12, 1).expect("the topic is new");
    }
    let settings = kafka::Settings::plaintext(&cluster.bootstrap_servers());
    let producer = Producer::new(&settings).expect("the settings are good");
    fill(&producer).await;
    let likes = Likes::new(&connection, ShardCount::DEFAULT);
    let (rows, join) = (likes.clone(), settings.clone());
    let ports = Ports {
        checkpoints: Arc::new(Checkpoints::new(&connection)),
        rows: Box::new(move |_| Arc::new(rows)),
        join: Box::new(move || Ok(Box::new(Source::new(&join, "bench", "likes")?))),
        producer: Arc::new(producer),
        shelf: Box::new(move |topic| Ok(Arc::new(kafka::Shelf::new(&settings, "bench-shelf", topic)?))),
    };
    let app = App::with_ports(Action::Consume, ReadSettings::default(), ports);
    let running = Running::start(app, Host::new("consumer"));
    let began = until_fences(&likes, |sum| sum > 0).await;
    let ended = until_fences(&likes, |sum| sum == EVENTS * u64::from(PARTITIONS)).await;
    running.stop(Duration::from_secs(10)).await;
    ended - began
}

async fn until_fences(likes: &Likes, holds: impl Fn(u64) -> bool) -> Instant {
    loop {
        let fences = likes.fences("likes").await.expect("the table answers");
        if holds(fences.iter().map(|(_, fence)| fence.offset.0).sum()) {
            return now();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fill(producer: &Producer) {
    for index in 0..PARTITIONS {
        let sent = futures_util::stream::iter(0..EVENTS).map(|n| async move {
            let (post, user) = ids(index, n);
            let value = LikeEvent::new(&post, &user, Said::Like, UnixMillis(5)).encode();
            let key = Some(post.as_str().as_bytes());
            let record = Outgoing { topic: "likes", partition: Some(index), key, value: Some(&value), headers: &[] };
            producer.send(record).await.expect("the cluster takes events");
        });
        sent.buffered(1000).collect::<Vec<()>>().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}
