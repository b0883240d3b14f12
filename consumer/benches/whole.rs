//! The whole consumer against the in-process cluster and the emulator, beside a bare loop of the same transactions over
//! the same SDK: what everything around the transactions costs.
//!
//! `cargo bench -p tally-consumer --bench whole`: both sides in turn, measured alike: the rows written between the first
//! look at the fences that finds one moved and the look that finds all of them at the end. The last line is the median
//! of the rounds' ratios.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rdkafka::mocking::MockCluster;
use tally_adapters::dynamodb::{Checkpoints, Connection, Likes, Maps, Settings, ensure_tables};
use tally_adapters::kafka::{self, Producer, Source};
use tally_consumer::{App, Mode, Ports, ReadSettings};
use tally_core::batch::{BatchLimits, Change};
use tally_core::event::{Action as Said, LikeEvent};
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId, least_of_each};
use tally_core::ids::{CounterId, PostId, ShardCount, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::ports::{FencedRows, Producer as _};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator};
use tally_service::{Host, Running, Stage};
use tokio::net::TcpListener;

const PARTITIONS: u32 = 12;
/// Rows of a partition: a whole number of transactions, less than the in-process cluster keeps, and so many that the
/// start, when partitions are positioned one after the other, weighs little.
const EVENTS: u64 = 99 * 120;
const ROUNDS: usize = 7;
const FLOOR: f64 = 0.8;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let (bare, whole) = if round % 2 == 0 {
            let bare = bare_loop().await;
            (bare, whole().await)
        } else {
            let whole = whole().await;
            (bare_loop().await, whole)
        };
        println!("round {round}: bare {bare:.0} rows/s, whole {whole:.0} rows/s");
        ratios.push(whole / bare);
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

fn ids(partition: u32, n: u64) -> (CounterId, UserId) {
    let post = PostId::new(&format!("post-{partition:08}")).expect("a valid id");
    (CounterId::likes(post), UserId::new(&format!("user-{n:010}")).expect("a valid id"))
}

/// The same transactions, one in flight a partition, by themselves.
async fn bare_loop() -> f64 {
    let (connection, host) = tables().await;
    let likes = Likes::new(&connection, ShardCount::DEFAULT);
    for index in 0..PARTITIONS {
        let likes = likes.clone();
        host.worker(Stage::Work, "bare", move |_: tally_service::Stop| async move {
            chain(&likes, index).await;
            Ok(())
        });
    }
    rate(&likes).await
}

async fn chain(likes: &Likes, index: u32) {
    let partition = Partition { topic: "likes".into(), index };
    let mut fence = Fence::new(Offset(0), 0, TopicId("t".into()));
    likes.create_fence(&partition, &fence).await.expect("the table takes a fence");
    while fence.offset.0 < EVENTS {
        let from = fence.offset.0;
        let to = from + BatchLimits::MAX_ROWS as u64;
        let rows: Vec<_> = (from..to).map(|n| ids(index, n)).collect();
        let change = |(post, user)| Change::like(post, user, Said::Like, UnixMillis(5));
        let changes: Vec<Change<'_>> = rows.iter().map(|(post, user)| change((post, user))).collect();
        let advance = Advance { from: fence.clone(), to: Offset(to) };
        assert_eq!(likes.commit(&partition, &advance, &changes).await, Commit::Done);
        fence = advance.reached();
    }
}

/// The consumer, with everything it is to read already there.
async fn whole() -> f64 {
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
        maps: Arc::new(Maps::new(&connection)),
        join: Box::new(move || Ok(Box::new(Source::new(&join, "bench", "likes")?))),
        producer: Arc::new(producer),
        reader: Box::new(move |topic| Ok(Arc::new(kafka::TopicReader::new(&settings, "bench-reader", topic)?))),
    };
    let app = App::with_ports(Mode::Consume, ReadSettings::default(), ports);
    let running = Running::start(app, Host::new("consumer"));
    let rate = rate(&likes).await;
    running.stop(Duration::from_secs(10)).await;
    rate
}

/// Rows a second, from the first that are seen to the last.
async fn rate(likes: &Likes) -> f64 {
    let (began, first) = until_fences(likes, |sum| sum > 0).await;
    let (ended, last) = until_fences(likes, |sum| sum == EVENTS * u64::from(PARTITIONS)).await;
    (last - first) as f64 / (ended - began).as_secs_f64()
}

async fn until_fences(likes: &Likes, holds: impl Fn(u64) -> bool) -> (Instant, u64) {
    loop {
        let fences = likes.fences("likes").await.expect("the table answers");
        let sum = least_of_each(&fences).values().map(|offset| offset.0).sum();
        if holds(sum) {
            return (now(), sum);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn fill(producer: &Producer) {
    for index in 0..PARTITIONS {
        let sent = futures_util::stream::iter(0..EVENTS).map(|n| async move {
            let (likes, user) = ids(index, n);
            let value = LikeEvent::new(&likes.post, &user, Said::Like, UnixMillis(5)).encode();
            let key = Some(likes.post.as_bytes());
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
