//! Tests of a member of a Kafka consumer group, over librdkafka's in-process cluster: its memory stays bounded while
//! its workers take nothing, it can leave while one holds a partition, and it refuses a group that another deployment
//! uses.

use std::cell::Cell;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tally_core::ports::Producer as _;
use tally_core::ports::log::{self, Outgoing};
use tally_core::topic::Offset;

use super::super::Producer;
use super::super::owned::QUEUE_WEIGHT;
use super::*;

/// Rebalances of the in-process cluster take up to fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster(partitions: i32) -> (MockCluster<'static, DefaultProducerContext>, Settings) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("likes", partitions, 1).unwrap();
    let settings = Settings::plaintext(&cluster.bootstrap_servers());
    (cluster, settings)
}

async fn fill(settings: &Settings, count: u64, value: impl Fn(u64) -> Vec<u8>) {
    let producer = Producer::new(settings).unwrap();
    let sent = futures_util::stream::iter((0..count).map(value)).map(|value| {
        let producer = &producer;
        async move {
            let value = Some(&value[..]);
            producer
                .send(Outgoing { topic: "likes", partition: Some(0), key: None, value, headers: &[] })
                .await
                .unwrap();
        }
    });
    sent.buffered(200).collect::<Vec<()>>().await;
}

/// Returns the next rebalance. Errors before it have to be retryable.
async fn rebalance(source: &mut Source) -> Rebalance {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            match source.next().await {
                Ok(rebalance) => return rebalance,
                Err(fault) => assert!(fault.is_retryable(), "{fault}"),
            }
        }
    });
    waited.await.expect("a rebalance in time")
}

async fn assigned(source: &mut Source) -> Vec<Arc<dyn OwnedPartition>> {
    match rebalance(source).await {
        Rebalance::Assigned(partitions) => partitions,
        ended @ (Rebalance::Revoked(..) | Rebalance::Foreign(_)) => panic!("{ended:?}"),
    }
}

/// Returns the weight of all queues.
fn weight(source: &mut Source) -> usize {
    source.holdings.all_reading().map(|held| held.assignment.queue().weight).sum()
}

/// Polls the membership for `span`. Nothing may be taken from it meanwhile.
async fn polled(source: &mut Source, span: Duration) {
    let deadline = Instant::now() + span;
    while let Ok(rebalance) = tokio::time::timeout_at(deadline, source.next()).await {
        assert!(!matches!(rebalance, Ok(Rebalance::Revoked(..))), "{rebalance:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: waits for a group of the in-process Kafka"]
async fn a_member_whose_workers_take_nothing_stays_in_the_group_and_its_memory_stays_bounded() {
    let (_cluster, settings) = cluster(1);
    // Four times what a queue holds; digits that compress to half and no further.
    let digits = |n: u64| {
        let mut seed = n + 1;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        (0..500).flat_map(|_| format!("{:08x}", next()).into_bytes()).collect()
    };
    let count = 2_000;
    fill(&settings, count, digits).await;
    let mut config = config(&settings, "readers");
    // As short as the client takes it beside its session timeout: the test waits twice as long.
    config.set("max.poll.interval.ms", "6000");
    let mut source = Source::configured(&settings, &config, "likes").unwrap();
    let owned = assigned(&mut source).await;
    tokio::select! {
        started = owned[0].start_at(Offset(0)) => started.unwrap(),
        rebalance = source.next() => panic!("{rebalance:?}"),
    }
    let deadline = Instant::now() + PATIENCE;
    while weight(&mut source) < QUEUE_WEIGHT {
        assert!(Instant::now() < deadline, "never filled: {}", weight(&mut source));
        polled(&mut source, Duration::from_millis(100)).await;
    }
    polled(&mut source, Duration::from_secs(12)).await;
    let weight = weight(&mut source);
    let bound = QUEUE_WEIGHT + RUN_WEIGHT + 8_000;
    assert!(weight < bound, "{weight} of {} bytes", count * 4_000);
    drop(owned);
    Box::new(source).leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: waits for a group of the in-process Kafka"]
async fn leaving_ends_although_a_worker_still_holds_a_revoked_partition() {
    let (_cluster, settings) = cluster(2);
    let mut one = Source::new(&settings, "readers", "likes").unwrap();
    let owned = assigned(&mut one).await;
    let mut two = Source::new(&settings, "readers", "likes").unwrap();
    let waits = async {
        // Its first assignments may be empty.
        while assigned(&mut two).await.is_empty() {}
    };
    let revoked = tokio::select! {
        rebalance = rebalance(&mut one) => rebalance,
        () = waits => panic!("nothing is free yet"),
    };
    assert!(matches!(revoked, Rebalance::Revoked(Revocation::Revoked, _)), "{revoked:?}");
    let left = tokio::time::timeout(Duration::from_secs(20), Box::new(one).leave());
    left.await.expect("leaving does not wait for a worker");
    drop(owned);
    Box::new(two).leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: waits for a group of the in-process Kafka"]
async fn a_deployment_does_not_join_the_group_of_another() {
    let (_cluster, settings) = cluster(1);
    let member = |deployment: &str| Source::new(&settings, "readers", "likes").unwrap().of_deployment(Some(deployment));
    let mut first = member("blue");
    let owned = assigned(&mut first).await;
    owned[0].finished(Offset(0));
    let reader = super::super::TopicReader::new(&settings, "readers", "likes").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while log::TopicReader::bookmark(&reader, owned[0].partition()).await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "nothing was committed");
        polled(&mut first, Duration::from_millis(100)).await;
    }
    drop(owned);
    Box::new(first).leave().await;

    let mut other = member("green");
    let fault = other.next().await.unwrap_err();
    let Fault::Fatal(said) = &fault else { panic!("{fault}") };
    assert!(said.contains("blue") && said.contains("green") && said.contains("`readers`"), "{said}");
    Box::new(other).leave().await;

    let mut again = member("blue");
    assert_eq!(assigned(&mut again).await.len(), 1);
    Box::new(again).leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: waits for a group of the in-process Kafka"]
async fn of_two_deployments_that_join_one_group_at_once_each_is_told_and_ends() {
    let (_cluster, settings) = cluster(2);
    let member = |deployment: &str| Source::new(&settings, "readers", "likes").unwrap().of_deployment(Some(deployment));
    // Both have joined before either has signed.
    let (mut blue, mut green) = (member("blue"), member("green"));
    let (mut blues, mut greens) = (Vec::new(), Vec::new());
    let are_told = [Cell::new(false), Cell::new(false)];
    let told = async |source: &mut Source, held: &mut Vec<Arc<dyn OwnedPartition>>, nth: usize| {
        let why = loop {
            match rebalance(source).await {
                Rebalance::Assigned(partitions) => {
                    // A commit signs the offset.
                    partitions.iter().for_each(|partition| partition.finished(Offset(0)));
                    held.extend(partitions);
                }
                Rebalance::Revoked(..) => held.clear(),
                Rebalance::Foreign(why) => break why,
            }
        };
        are_told[nth].set(true);
        // A silent member holds up the group, and so the other member does not learn why it has to leave.
        while !are_told.iter().all(Cell::get) {
            let _ = tokio::time::timeout(Duration::from_millis(100), source.next()).await;
        }
        why
    };
    let both = async { tokio::join!(told(&mut blue, &mut blues, 0), told(&mut green, &mut greens, 1)) };
    let (one, two) = tokio::time::timeout(3 * PATIENCE, both).await.expect("each is told");
    for why in [one, two] {
        assert!(why.contains("blue") && why.contains("green") && why.contains("`readers`"), "{why}");
    }
    drop((blues, greens));
    tokio::join!(Box::new(blue).leave(), Box::new(green).leave());
}

#[test]
fn a_dead_member_leaves_the_group_after_six_seconds() {
    let config = config(&Settings::plaintext("127.0.0.1:1"), "readers");
    assert_eq!(config.get("session.timeout.ms"), Some("6000"));
}
