//! Tests of the streamer as a process of its own, over an emulator and a Kafka on the loopback: signals, roles, and
//! what idling costs. They end every process. Idling is measured for ten seconds, or for a minute with
//! `TALLY_TEST_IDLE=60`.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use tally_adapters::dynamodb::{self, Checkpoints};
use tally_core::ports::ChangeStream as _;
use tally_core::shards::Worker;
use tally_core::time::UnixMillis;
use tally_emulator::Config as EmulatorConfig;
use tally_testkit::{Engines, Process, eventually, is_fresh, sized};
use tokio::time::Instant;

use crate::tables::Tables;

const PARTITIONS: u32 = 4;
const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-change-streamer");

/// Tables and a Kafka on the loopback, and rows in the tables.
struct World {
    engines: Engines,
    tables: Tables,
}

impl World {
    async fn new() -> Self {
        let shards = EmulatorConfig { shards: 4, split_after: Some(900), ..EmulatorConfig::default() };
        let engines = Engines::start(EmulatorConfig { max_open_shards: 8, ..shards }, &[("changes", PARTITIONS)]).await;
        // Rows come after the configuration: nothing starts over rows without it.
        Checkpoints::new(&engines.store.connection).config(None).await.unwrap();
        Self { tables: Tables::new(engines.store.clone(), 1), engines }
    }

    /// The streamer with its defaults.
    fn plain(&self) -> Command {
        let mut command = self.engines.command(PROGRAM);
        command.args(["--redis", "off", "--admin-listen", "off", "--log", "warn"]);
        command
    }

    /// Starts a streamer that is not quiet for long.
    fn start(&self, args: &[&str]) -> Process {
        Process::start("streamer", self.plain().args(["--poll-idle", "200ms"]).args(args)).unwrap()
    }

    /// Likes and unlikes, and waits until every counter equals its rows.
    async fn count(&mut self) {
        self.tables.churn(300, 20, 40).await;
        eventually("every count equals its rows", async || self.tables.wrong(20).await.is_none()).await;
    }

    /// Returns which processes relay the stream shards that are open.
    async fn holders(&self) -> BTreeSet<Worker> {
        let label = dynamodb::Streams::new(&self.engines.store.repeating(5)).info().await.unwrap().label;
        let shards = self.tables.changes().shards(&label).await.unwrap();
        let open = shards.into_iter().filter(|shard| shard.closed.is_none());
        open.filter_map(|shard| Some(shard.lease?.holder)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamer_stops_cleanly_and_hands_its_leases_over() {
    let mut world = World::new().await;
    let process = world.start(&[]);
    world.count().await;
    assert_eq!(world.holders().await.len(), 1);
    process.stop().await.unwrap();
    assert!(world.holders().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_and_a_fold_apart_do_what_both_do_in_one_process() {
    let mut world = World::new().await;
    let start = |role| world.start(&["--role", role]);
    let (relay, fold) = (start("relay"), start("fold"));
    world.count().await;
    let (changes, now) = (world.tables.changes(), UnixMillis(world.engines.store.emulator.stats().now_ms));
    eventually("all partitions are fresh", async || is_fresh(&changes, PARTITIONS, now).await).await;
    relay.stop().await.unwrap();
    fold.stop().await.unwrap();
}

/// A streamer with its defaults makes few calls, over the four stream shards that the emulator has here.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_idle_streamer_uses_little_of_a_core_and_few_calls() {
    let mut world = World::new().await;
    let process = Process::start("streamer", &mut world.plain()).unwrap();
    world.count().await;
    // The test's own calls, made while it waited, are over, and an idle reader waits for as long as it may.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = || world.engines.store.emulator.stats().requests.values().sum::<u64>();
    let (used, made, began) = (process.processor_time().unwrap(), calls(), Instant::now());
    tokio::time::sleep(Duration::from_secs(sized("TALLY_TEST_IDLE", 10))).await;
    let (used, made, took) = (process.processor_time().unwrap() - used, calls() - made, began.elapsed().as_secs_f64());
    let share = 100.0 * used.as_secs_f64() / took;
    #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
    let a_second = made as f64 / took;
    println!("idle for {took:.0} s: {share:.2} % of a core, {a_second:.1} calls a second");
    assert!(share < if cfg!(debug_assertions) { 8.0 } else { 2.0 }, "{share:.2} % of a core");
    // A second: a read of each stream shard, leases, losses, stream shards, the format, a standing of each partition.
    assert!(a_second <= 30.0, "{a_second:.1} calls a second");
    process.stop().await.unwrap();
}
