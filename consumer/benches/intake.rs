//! The intake (librdkafka, decode, collapse, no store) beside a bare loop of librdkafka, serde_json and a hash map over
//! the same topic in the same run.
//!
//! `cargo bench -p tally-consumer --bench intake`: both loops in turn, paired round by round so that a noisy machine's
//! drift cancels; the last lines are the rate and the ratio.

#![expect(clippy::print_stdout, reason = "a bench says what it measured")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use futures_util::StreamExt;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::{ClientConfig, Message, Offset as At, TopicPartitionList};
use serde::Deserialize;
use tally_adapters::kafka::{Producer, Settings, Source};
use tally_core::batch::{Batch, BatchLimits, Taken};
use tally_core::definitions::Definitions;
use tally_core::event::decode_value;
use tally_core::fence::Offset;
use tally_core::ports::log::{Outgoing, Rebalance};
use tally_core::ports::{Intake, OwnedPartition, Producer as _};
// The allocator that every binary has.
use tally_service as _;

const TOPIC: &str = "likes";
/// Below the five mebibytes the in-process cluster keeps of a partition.
const EVENTS: u64 = 24_000;
const PARTITIONS: u32 = 4;
const ROUNDS: usize = 15;
const FLOOR: f64 = 0.7;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let cluster = MockCluster::new(1).expect("the in-process cluster starts");
    cluster.create_topic(TOPIC, 4, 1).expect("the topic is new");
    let brokers = cluster.bootstrap_servers();
    let settings = Settings::plaintext(&brokers);
    fill(&settings).await;
    let mut reader = Reader::join(&settings).await;
    let bare = bare_consumer(&brokers);
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (kept_bare, bare_time) = tokio::task::block_in_place(|| bare_loop(&bare));
        let (kept, time) = reader.read_all().await;
        assert_eq!(kept, kept_bare, "both loops keep the same rows");
        if round > 0 {
            ratios.push(bare_time.as_secs_f64() / time.as_secs_f64());
            rates.push((EVENTS * u64::from(PARTITIONS)) as f64 / time.as_secs_f64());
        }
    }
    let (ratio, rate) = (median(&mut ratios), median(&mut rates));
    println!("intake:           {:.2} million events/s", rate / 1e6);
    println!("of the bare loop: {ratio:.2} (at least {FLOOR})");
    reader.leave().await;
    if ratio < FLOOR && !cfg!(debug_assertions) {
        std::process::exit(1);
    }
}

async fn fill(settings: &Settings) {
    let producer = Producer::new(settings).expect("the settings are good");
    for index in 0..PARTITIONS {
        let producer = &producer;
        let sent = futures_util::stream::iter(0..EVENTS).map(|n| async move {
            let (who, action) = (n.saturating_sub(n % 4 * (n % 3)), if n % 10 < 3 { "unlike" } else { "like" });
            let value = format!(
                r#"{{"post_id":"post-{index:08}","user_id":"user-{who:010}","action":"{action}","ts":{},"event_id":"e-{n:012}"}}"#,
                1_700_000_000_000 + n
            );
            let key = Some(&b"post"[..]);
            let value = Some(value.as_bytes());
            let record = Outgoing { topic: TOPIC, partition: Some(index), key, value, headers: &[] };
            producer.send(record).await.expect("the cluster takes events");
        });
        sent.buffered(1000).collect::<Vec<()>>().await;
    }
}

fn bare_consumer(brokers: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("group.id", "bare").set("enable.auto.commit", "false");
    // The cluster inside this process answers a fetch that finds nothing only after this wait: the same for both, or the
    // waits would be what is measured.
    config.set("fetch.wait.max.ms", "50").set("fetch.queue.backoff.ms", "10");
    config.create().expect("the settings are good")
}

/// The last action and its time, by post and user.
type Rows = HashMap<(String, String), (bool, u64), RandomState>;

/// What a first version would do: parse into borrowed fields, keep the last action per (post, user), 99 at a time.
fn bare_loop(consumer: &BaseConsumer) -> (usize, Duration) {
    #[derive(Deserialize)]
    struct Bare<'a> {
        post_id: &'a str,
        user_id: &'a str,
        action: &'a str,
        ts: u64,
    }
    let mut list = TopicPartitionList::new();
    for index in 0..4 {
        list.add_partition_offset(TOPIC, index, At::Beginning).expect("a partition and an offset");
    }
    let mut kept = 0;
    let mut rows: Vec<Rows> = vec![HashMap::default(); 4];
    let start = now();
    consumer.assign(&list).expect("the partitions are there");
    for _ in 0..EVENTS * u64::from(PARTITIONS) {
        let message = consumer.poll(None).expect("a blocking poll yields").expect("a message");
        let event: Bare<'_> = serde_json::from_slice(message.payload().expect("a value")).expect("an event");
        let rows = &mut rows[usize::try_from(message.partition()).expect("a partition")];
        rows.insert((event.post_id.to_owned(), event.user_id.to_owned()), (event.action == "like", event.ts));
        if rows.len() == BatchLimits::MAX_ROWS {
            kept += black_box(&rows).len();
            rows.clear();
        }
    }
    kept += rows.iter().map(HashMap::len).sum::<usize>();
    let took = start.elapsed();
    consumer.unassign().expect("something was assigned");
    (kept, took)
}

/// Our own intake: the adapter's source, and decode and collapse in a task of its own for each partition, as in the consumer.
struct Reader {
    source: Box<dyn Intake>,
    owned: Vec<Arc<dyn OwnedPartition>>,
}

impl Reader {
    async fn join(settings: &Settings) -> Self {
        let mut source: Box<dyn Intake> =
            Box::new(Source::new(settings, "ours", TOPIC).expect("the settings are good"));
        loop {
            if let Ok(Rebalance::Assigned(owned)) = source.next().await
                && owned.len() == 4
            {
                return Self { source, owned };
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a bench has no supervisor")]
    async fn read_all(&mut self) -> (usize, Duration) {
        let start = now();
        let readers = self.owned.iter().map(|owned| {
            let owned = Arc::clone(owned);
            tokio::spawn(async move { collapse(&*owned).await })
        });
        let read = futures_util::future::try_join_all(readers);
        tokio::pin!(read);
        loop {
            tokio::select! {
                kept = &mut read => return (kept.expect("nothing panics").into_iter().sum(), start.elapsed()),
                rebalance = self.source.next() => drop(rebalance),
            }
        }
    }

    async fn leave(self) {
        drop(self.owned);
        self.source.leave().await;
    }
}

async fn collapse(owned: &dyn OwnedPartition) -> usize {
    let limits = BatchLimits { rows: BatchLimits::MAX_ROWS, bytes: usize::MAX, age: Duration::MAX };
    let mut batch = Batch::new(limits, Offset(0));
    let likes = Definitions::likes_alone();
    let mut kept = 0;
    owned.start_at(Offset(0)).await.expect("the partition is ours");
    while batch.to() < Offset(EVENTS) {
        for record in owned.records().await.expect("the offset is there").iter() {
            let event = decode_value(record.value, record.at, &likes).expect("an event");
            let taken = batch.accept(record.offset, &event, record.weight(), Duration::ZERO);
            assert_eq!(taken, Taken::Taken);
            if batch.due(Duration::ZERO).is_some() {
                kept += black_box(batch.seal().expect("nothing was rejected").changes()).len();
            }
        }
    }
    kept + batch.seal().expect("nothing was rejected").changes().len()
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
