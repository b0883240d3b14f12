//! The ledger of changes: read with the reader's filter it is the stream, each record once. Streamers crash and stand still,
//! messages time out and land late; and where Kafka was away for too long the ledger says so.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::faulty::{Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_change_streamer::{ChangesPort, Rules};
use tally_core::fault::Fault;
use tally_core::ledger::{Change, Side};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_emulator::Config as EmulatorConfig;
use tally_service::{Chance, Running};

use crate::ledger::{all_fed, counted, equals_the_stream, streamed};
use crate::world::{BEGAN, World, Writer, brisk, eventually, post, shards, user};

const TOPIC: &str = "changes";
const PARTITIONS: u32 = 5;

/// A producer whose messages are lost, answered without being written yet, or written without being answered.
struct Unsteady {
    broker: Broker,
    chance: Chance,
}

#[async_trait]
impl Producer for Unsteady {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let unknown = || Err(Fault::Transient("no answer".to_owned()));
        match self.chance.token() % 12 {
            0 => unknown(),
            1 => {
                self.broker.send(record).await?;
                unknown()
            }
            2 => {
                let (broker, late) = (self.broker.clone(), self.chance.up_to(Duration::from_secs(20)));
                let (topic, partition) = (record.topic.to_owned(), record.partition);
                let (key, value) = (record.key.unwrap().to_vec(), record.value.unwrap().to_vec());
                #[expect(clippy::disallowed_methods, reason = "what its sender gave up on has no task")]
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    let (key, value) = (Some(&*key), Some(&*value));
                    let _ = broker.send(Outgoing { topic: &topic, partition, key, value, headers: &[] }).await;
                });
                unknown()
            }
            _ => {
                tokio::time::sleep(self.chance.up_to(Duration::from_millis(300))).await;
                self.broker.send(record).await
            }
        }
    }
}

fn broker() -> Broker {
    let broker = Broker::new();
    broker.create_topic(TOPIC, PARTITIONS);
    broker
}

fn port(broker: &Broker, producer: impl Producer + 'static) -> ChangesPort {
    let log = Arc::new(broker.reader("streamer", TOPIC));
    ChangesPort { producer: Arc::new(producer), topic: TOPIC.to_owned(), log }
}

/// A calm world with the ledger, and its broker.
fn calm(shards: u16) -> (World, Memory, Broker) {
    let (memory, broker) = (Memory::new(BEGAN, shards), broker());
    let mut world = World::twin(&memory);
    world.ports.changes = Some(port(&broker, broker.clone()));
    (world, memory, broker)
}

async fn stop(running: Running) {
    assert!(running.stop(Duration::from_secs(20)).await.exit().is_clean());
}

/// How a streamer ends that is started and not stopped.
async fn refusal(world: &World) -> String {
    let running = world.start("refused", brisk());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let ended = running.stop(Duration::from_secs(20)).await;
    assert_eq!(ended.exit().code(), 78);
    format!("{ended:?}")
}

async fn schedule(seed: u64, rules: Rules) -> usize {
    let (calm, memory, broker) = calm(3);
    let plan = Plan::seeded(seed, 12);
    let mut world = calm.clone();
    world.ports.stream = Arc::new(Faulty::new(memory.streams(), plan.clone()));
    world.ports.checkpoints = Arc::new(Faulty::new(memory.checkpoints(), plan.clone()));
    let unsteady = Unsteady { broker: broker.clone(), chance: Chance::seeded(seed) };
    world.ports.changes = Some(port(&broker, unsteady));
    calm.ports.checkpoints.config(Some(shards())).await.unwrap();
    let mut writer = Writer::new(&calm, seed).await;
    let mut running: Vec<Running> = vec![world.start("a", rules)];
    let mut started = 1;
    for _ in 0..30 {
        writer.churn(40, 12, 9).await;
        match writer.chance.token() % 8 {
            0 | 1 => {
                let open: Vec<_> = calm.states().await.into_iter().filter(|state| !state.checkpoint.closed).collect();
                if let Some(state) = open.get(usize::try_from(writer.chance.token() % 3).unwrap()) {
                    memory.streams().close(&state.checkpoint.id, u32::try_from(1 + writer.chance.token() % 2).unwrap());
                }
            }
            2 if running.len() > 1 => running.swap_remove(0).kill().await,
            3 if running.len() > 1 => _ = running.swap_remove(0).stop(Duration::from_secs(20)).await,
            2..=4 if running.len() < 3 => {
                started += 1;
                running.push(world.start(&format!("w{started}"), rules));
            }
            _ => tokio::time::sleep(writer.chance.up_to(Duration::from_secs(4))).await,
        }
    }
    plan.relent();
    // The last message that its sender gave up on may land this late.
    tokio::time::sleep(Duration::from_secs(21)).await;
    calm.exact((0..12).map(post)).await;
    let ledger = equals_the_stream(&calm, &broker.reader("test", TOPIC)).await;
    assert_eq!(calm.ports.checkpoints.lapses().await, Ok(vec![]), "nothing is missing");
    for running in running {
        running.stop(Duration::from_secs(20)).await;
    }
    ledger.copies
}

fn seeds() -> u64 {
    std::env::var("TALLY_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24)
}

#[tokio::test(start_paused = true)]
async fn the_ledger_equals_the_stream_after_any_schedule_of_faults_closings_and_workers() {
    let mut copies = 0;
    for seed in 0..seeds() {
        copies += schedule(seed, brisk()).await;
    }
    assert!(copies > 0, "no message was ever repeated");
}

#[tokio::test(start_paused = true)]
async fn the_ledger_equals_the_stream_when_every_worker_reads_every_shard() {
    for seed in 0..seeds() {
        schedule(1_000 + seed, Rules { lease: None, ..brisk() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_is_begun_later_has_everything_from_then_on_and_nothing_is_counted_twice() {
    let (world, memory, broker) = calm(2);
    let mut before = world.clone();
    before.ports.changes = None;
    let mut writer = Writer::new(&world, 1).await;
    let running = before.start("before", brisk());
    writer.churn(300, 10, 20).await;
    before.quiet().await;
    let closed = world.states().await[0].checkpoint.id.clone();
    memory.streams().close(&closed, 1);
    writer.churn(300, 10, 20).await;
    before.exact((0..10).map(post)).await;
    assert_eq!(world.ports.checkpoints.changes().await, Ok(None), "off it stores nothing");
    assert!(world.states().await.iter().all(|state| state.fed == tally_core::ledger::Fed::default()));
    stop(running).await;
    let old = streamed(&world).await;
    let running = world.start("after", brisk());
    eventually("it is begun", async || {
        world.ports.checkpoints.changes().await.unwrap().is_some_and(|terms| terms.since.is_some())
    })
    .await;
    writer.churn(300, 10, 20).await;
    world.exact((0..10).map(post)).await;
    all_fed(&world).await;
    let (mut new, ledger) = (streamed(&world).await, counted(&broker.reader("test", TOPIC)).await);
    new.retain(|at, _| !old.contains_key(at));
    assert!(!new.is_empty());
    assert_eq!(ledger.counted, new);
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn once_there_is_a_ledger_a_streamer_without_it_or_with_other_partitions_does_not_start() {
    let (world, _, broker) = calm(2);
    let running = world.start("first", brisk());
    eventually("it is begun", async || world.ports.checkpoints.changes().await.unwrap().is_some()).await;
    stop(running).await;
    let mut without = world.clone();
    without.ports.changes = None;
    let refused = refusal(&without).await;
    assert!(refused.contains("changes-topic"), "{refused}");
    broker.create_topic(TOPIC, PARTITIONS + 1);
    let refused = refusal(&world).await;
    assert!(refused.contains("6 partitions") && refused.contains("begun with 5"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_like_is_counted_in_its_region_and_taken_from_there_whatever_the_unlike_says() {
    let (twin, _, broker) = calm(1);
    let (emulated, _) = World::emulated(EmulatorConfig { shards: 1, ..EmulatorConfig::default() }).await;
    for mut world in [twin, emulated] {
        broker.create_topic(TOPIC, PARTITIONS);
        world.ports.changes = Some(port(&broker, broker.clone()));
        world.ports.checkpoints.config(Some(shards())).await.unwrap();
        let mut writer = Writer::new(&world, 1).await;
        let running = world.start("a", brisk());
        let (post, user) = (post(1), user(1));
        writer.like_from(&post, &user, "us").await;
        writer.like_from(&post, &user, "eu").await;
        writer.unlike(&post, &user).await;
        writer.like(&post, &user).await;
        let ledger = equals_the_stream(&world, &broker.reader("test", TOPIC)).await;
        let side = |side: &Side| (side.region.as_ref().map(ToString::to_string), side.weight);
        let told: Vec<_> = ledger.counted.values().map(|change| (side(&change.before), side(&change.after))).collect();
        let at = |region: &str, weight| (Some(region.to_owned()), weight);
        let nowhere = |weight| (None, weight);
        let expected = [
            (at("us", 0), at("us", 1)),
            (at("us", 1), at("eu", 1)),
            (at("eu", 1), at("eu", 0)),
            (nowhere(0), nowhere(1)),
        ];
        assert_eq!(told, expected);
        world.exact([post]).await;
        stop(running).await;
    }
}

#[tokio::test(start_paused = true)]
async fn counts_do_not_wait_for_kafka_and_what_it_was_away_for_too_long_for_is_a_lapse() {
    let (world, memory, broker) = calm(2);
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.churn(300, 10, 20).await;
    equals_the_stream(&world, &broker.reader("test", TOPIC)).await;
    broker.set_down(true);
    writer.churn(300, 10, 20).await;
    world.exact((0..10).map(post)).await;
    // One stream shard ends meanwhile: its children are counted, and it is fed later.
    let parent = world.states().await[0].checkpoint.id.clone();
    memory.streams().close(&parent, 2);
    writer.churn(300, 10, 20).await;
    world.exact((0..10).map(post)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.ports.checkpoints.lapses().await, Ok(vec![]));
    tokio::time::sleep(Duration::from_secs(330)).await;
    broker.set_down(false);
    let lapses = world.ports.checkpoints.lapses().await.unwrap();
    assert!(!lapses.is_empty());
    writer.churn(300, 10, 20).await;
    all_fed(&world).await;
    let (stream, ledger) = (streamed(&world).await, counted(&broker.reader("test", TOPIC)).await);
    let is_excused = |shard, change: &Change| {
        let covers = |lapse: &tally_core::ledger::Lapse| {
            lapse.shard == shard && (lapse.seconds.first..=lapse.seconds.last).contains(&change.second)
        };
        lapses.iter().any(covers)
    };
    let missing: Vec<_> = stream.iter().filter(|(at, _)| !ledger.counted.contains_key(at)).collect();
    assert!(!missing.is_empty());
    assert!(missing.iter().all(|((shard, _), change)| is_excused(*shard, change)), "{lapses:?}");
    assert!(ledger.counted.iter().all(|(at, change)| stream.get(at) == Some(change)));
    assert!(world.gaps().await.is_empty(), "the counts lost nothing");
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_trimmed_before_it_was_read_for_the_ledger_alone_is_a_lapse_and_no_gap() {
    let (world, memory, broker) = calm(1);
    let mut writer = Writer::new(&world, 1).await;
    let running = world.start("a", brisk());
    writer.churn(100, 10, 20).await;
    equals_the_stream(&world, &broker.reader("test", TOPIC)).await;
    broker.set_down(true);
    writer.churn(100, 10, 20).await;
    world.exact((0..10).map(post)).await;
    memory.streams().trim();
    writer.churn(100, 10, 20).await;
    world.exact((0..10).map(post)).await;
    running.kill().await;
    broker.set_down(false);
    let running = world.start("b", brisk());
    writer.churn(100, 10, 20).await;
    world.exact((0..10).map(post)).await;
    all_fed(&world).await;
    assert_eq!(world.ports.checkpoints.lapses().await.unwrap().len(), 1);
    let (last, ledger) = (streamed(&world).await, counted(&broker.reader("test", TOPIC)).await);
    assert!(ledger.counted.contains_key(last.last_key_value().unwrap().0), "it goes on where the counters are");
    assert!(world.gaps().await.is_empty(), "the counts lost nothing");
    stop(running).await;
}
