//! Tests of the streamer as processes of its own, over an emulator and a Kafka on the loopback: signals, crashes,
//! zombies. They end every process. `TALLY_TEST_KILLS=20 TALLY_TEST_STOPPED=60` makes them as large as they are meant
//! to be.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Checkpoints, Consistency};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::ChangeStream as _;
use tally_core::shards::Worker;
use tally_core::time::UnixMillis;
use tally_emulator::{Config as EmulatorConfig, Fault, Rule};
use tally_service::Chance;
use tally_testkit::{Engines, Process, eventually, process, sized};
use tokio::time::Instant;

const PARTITIONS: u32 = 4;
const PROGRAM: &str = env!("CARGO_BIN_EXE_tally-change-streamer");

/// Faults that happen now and then. (A late request may take a lease after it was given back; that lease goes stale.)
fn faults() -> Vec<Rule> {
    vec![
        Rule::new(Fault::DropReply).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Throttle).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Ghost { max_delay_ms: 5_000, hang_ms: 0 }).on("UpdateItem").chance(0.01),
    ]
}

/// Tables and a Kafka on the loopback, and rows in the tables.
struct World {
    engines: Engines,
    rows: BTreeSet<(u64, u64)>,
    chance: Chance,
}

fn post(n: u64) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{n}")).unwrap())
}

impl World {
    async fn new(faults: Vec<Rule>) -> Self {
        let shards = EmulatorConfig { shards: 4, split_after: Some(900), ..EmulatorConfig::default() };
        let engines = Engines::start(EmulatorConfig { max_open_shards: 8, ..shards }, &[("changes", PARTITIONS)]).await;
        // Rows come after the configuration: nothing starts over rows without it.
        Checkpoints::new(&engines.store.connection).config(None).await.unwrap();
        engines.store.faults(faults);
        Self { engines, rows: BTreeSet::new(), chance: Chance::seeded(1) }
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

    /// Likes and unlikes at random, each of some user and some post.
    async fn churn(&mut self, changes: usize, posts: u64, users: u64) {
        for _ in 0..changes {
            let (p, u) = (self.chance.token() % posts, self.chance.token() % users);
            let mut item = json!({"pk": {"S": format!("p-{p}#{}", u % 4)}, "user_id": {"S": format!("u-{u}")}});
            if self.rows.remove(&(p, u)) {
                self.engines.store.call("DeleteItem", json!({"TableName": "likes", "Key": item})).await;
            } else {
                self.rows.insert((p, u));
                item["post_id"] = json!({"S": format!("p-{p}")});
                item["liked_at"] = json!({"N": "1"});
                self.engines.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
            }
        }
    }

    fn changes(&self) -> Changes {
        Changes::new(&self.engines.store.repeating(5))
    }

    /// Waits until every counter equals its rows.
    async fn exact(&self, posts: u64) {
        let ids: Vec<CounterId> = (0..posts).map(post).collect();
        eventually("every count equals its rows", async || {
            let read = Counters::new(&self.engines.store.repeating(5)).read(&ids, Consistency::Strong).await.unwrap();
            (0..posts).all(|p| {
                let counter = read.counters.get(&post(p)).map(|counter| counter.clone().unwrap());
                let counter: Counter = counter.unwrap_or_default();
                let rows = self.rows.iter().filter(|(of, _)| *of == p).count();
                counter.likes == i64::try_from(rows).unwrap() && counter.adds_up()
            })
        })
        .await;
    }

    /// Waits until every partition has a standing of this moment or later.
    async fn fresh(&self) {
        let now = UnixMillis(self.engines.store.emulator.stats().now_ms);
        eventually("all partitions are of this moment", async || {
            let standings = self.changes().standings(PARTITIONS).await.unwrap();
            standings.values().filter(|stated| stated.standing.as_of >= Some(now)).count() == PARTITIONS as usize
        })
        .await;
    }

    async fn losses(&self) -> Vec<String> {
        self.changes().losses().await.unwrap().open().map(|(_, loss)| loss.kind.clone()).collect()
    }

    /// Returns which processes relay the stream shards that are open.
    async fn holders(&self) -> BTreeSet<Worker> {
        let label = dynamodb::Streams::new(&self.engines.store.repeating(5)).info().await.unwrap().label;
        let shards = self.changes().shards(&label).await.unwrap();
        let open = shards.into_iter().filter(|shard| shard.closed.is_none());
        open.filter_map(|shard| Some(shard.lease?.holder)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamer_stops_cleanly_and_hands_its_leases_over() {
    let mut world = World::new(Vec::new()).await;
    let process = world.start(&[]);
    world.churn(300, 20, 40).await;
    world.exact(20).await;
    assert_eq!(world.holders().await.len(), 1);
    process.stop().await.unwrap();
    assert!(world.holders().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_and_a_fold_apart_do_what_both_do_in_one_process() {
    let mut world = World::new(Vec::new()).await;
    let start = |role| world.start(&["--role", role]);
    let (relay, fold) = (start("relay"), start("fold"));
    world.churn(300, 20, 40).await;
    world.exact(20).await;
    world.fresh().await;
    relay.stop().await.unwrap();
    fold.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn streamers_killed_under_load_are_exact() {
    let mut world = World::new(faults()).await;
    let mut processes = vec![world.start(&[]), world.start(&[])];
    for _ in 0..sized("TALLY_TEST_KILLS", 4) {
        world.churn(400, 60, 80).await;
        tokio::time::sleep(world.chance.up_to(Duration::from_secs(2))).await;
        processes.swap_remove(usize::try_from(world.chance.token() % 2).unwrap()).kill().await.unwrap();
        processes.push(world.start(&[]));
    }
    world.churn(400, 60, 80).await;
    let quiet = Instant::now();
    world.exact(60).await;
    println!("exact {:?} after the last change", quiet.elapsed());
    assert_eq!(world.losses().await, [""; 0]);
    for process in processes {
        process.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_streamer_that_was_stopped_while_others_took_over_does_no_harm_when_it_wakes() {
    let mut world = World::new(faults()).await;
    let sleeper = world.start(&[]);
    world.churn(400, 30, 60).await;
    world.exact(30).await;
    let other = world.start(&[]);
    world.churn(400, 30, 60).await;
    sleeper.signal(process::Signal::STOP).unwrap();
    let asleep = Instant::now();
    world.churn(800, 30, 60).await;
    world.exact(30).await;
    let rest = Duration::from_secs(sized("TALLY_TEST_STOPPED", 5));
    while asleep.elapsed() < rest {
        world.churn(99, 30, 60).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    sleeper.signal(process::Signal::CONT).unwrap();
    world.churn(400, 30, 60).await;
    eventually("both relay again", async || world.holders().await.len() == 2).await;
    world.exact(30).await;
    sleeper.stop().await.unwrap();
    other.stop().await.unwrap();
}

/// A streamer with its defaults makes few calls, over the four stream shards that the emulator has here.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_idle_streamer_uses_little_of_a_core_and_few_calls() {
    let mut world = World::new(Vec::new()).await;
    let process = Process::start("streamer", &mut world.plain()).unwrap();
    world.churn(300, 20, 40).await;
    world.exact(20).await;
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

/// Waits until a streamer has ended by itself. Returns its exit code, and how often it named `text`.
async fn ended(process: Process, text: &str) -> (Option<i32>, usize) {
    (process.code().await, process.log().matches(text).count())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_process() {
    let named = "the deployment is written in format 7, this build knows 2: see docs/operate.md";
    let mut world = World::new(Vec::new()).await;
    let state =
        async |format| world.engines.store.edit("checkpoints", json!({"id": {"S": "config"}}), "format", format).await;
    let running = world.start(&[]);
    eventually("it relays", async || !world.holders().await.is_empty()).await;
    state(json!({"N": "7"})).await;
    assert_eq!(ended(running, named).await, (Some(78), 1));
    assert_eq!(ended(world.start(&[]), named).await, (Some(78), 1));
    state(json!({"S": "2"})).await;
    let again = world.start(&[]);
    world.churn(300, 20, 40).await;
    world.exact(20).await;
    again.stop().await.unwrap();
}

#[tokio::test]
async fn a_bad_configuration_is_refused_at_once_and_by_name() {
    let check = async |args: &[&str]| process::run(process::command(PROGRAM).arg("--check").args(args)).await;
    let refused = check(&["--concurrency", "0"]).await;
    assert_eq!(refused.code, Some(78), "{refused:?}");
    for named in ["--redis (TALLY_REDIS): missing", "--brokers (TALLY_BROKERS): missing", "--concurrency"] {
        assert!(refused.err.contains(named), "{refused:?}");
    }
    let good = check(&["--redis", "off", "--brokers", "127.0.0.1:1"]).await;
    assert_eq!(good.code, Some(0), "{good:?}");
}
