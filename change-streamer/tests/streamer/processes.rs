//! The streamer as processes of their own, over an emulator and a Kafka on the loopback: signals, crashes, zombies. Ends
//! everything it starts. `TALLY_TEST_KILLS=20 TALLY_TEST_STOPPED=60` is the whole of it.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Checkpoints, Consistency};
use tally_adapters::kafka;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::ChangeStream as _;
use tally_core::shards::Worker;
use tally_core::time::UnixMillis;
use tally_emulator::{Config as EmulatorConfig, Fault, Rule};
use tally_service::Chance;
use tally_testkit::Store;
use tokio::net::TcpListener;
use tokio::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);
const PARTITIONS: u32 = 4;

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
}

/// The streamer with its defaults.
fn plain(Addresses { store, brokers }: &Addresses) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-change-streamer"));
    let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
    tally.for_each(|(name, _)| _ = command.env_remove(name));
    command
        .args(["--redis", "off", "--admin-listen", "off", "--log", "warn", "--brokers", brokers])
        .env("AWS_ENDPOINT_URL", store)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .stdin(Stdio::null());
    command
}

/// The streamer, one that is not quiet for long.
fn command(at: &Addresses) -> Command {
    let mut command = plain(at);
    command.args(["--poll-idle", "200ms"]);
    command
}

/// A streamer, ended when dropped.
struct Process(Child);

impl Process {
    fn start(at: &Addresses) -> Self {
        Self::spawn(&mut command(at))
    }

    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the binary starts"))
    }

    /// What it has used of the processors so far, by itself and for it.
    #[cfg(target_os = "linux")]
    fn used(&self) -> Duration {
        /// The kernel's unit of time in this file.
        const TICK: Duration = Duration::from_millis(10);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("the child is alive");
        let after_name = stat.rsplit_once(')').expect("the name is in parentheses").1;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |field: usize| fields[field].parse::<u32>().expect("a number of ticks");
        TICK * (ticks(11) + ticks(12))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    fn kill(mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }

    /// Its exit code after SIGTERM.
    async fn stop(self) -> Option<i32> {
        self.signal("TERM");
        self.code().await
    }

    /// Its exit code once it has ended.
    async fn code(mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("the child is ours") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What goes wrong now and then. (The ghost of a lease may land after it was given back; it goes stale, then.)
fn faults() -> Vec<Rule> {
    vec![
        Rule::new(Fault::DropReply).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Throttle).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Ghost { max_delay_ms: 5_000, hang_ms: 0 }).on("UpdateItem").chance(0.01),
    ]
}

/// Where a process finds its store and its Kafka.
struct Addresses {
    store: String,
    brokers: String,
}

/// Tables on the loopback, rows in them, and a Kafka.
struct World {
    store: Store,
    at: Addresses,
    rows: BTreeSet<(u64, u64)>,
    chance: Chance,
    _kafka: kafka::Embedded,
}

fn post(n: u64) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{n}")).unwrap())
}

/// Polls until `holds`.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn served(faults: Vec<Rule>, with: impl AsyncFnOnce(&mut World)) {
    let config = EmulatorConfig { shards: 4, split_after: Some(900), max_open_shards: 8, ..EmulatorConfig::default() };
    let store = Store::in_real_time(config).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let cluster = kafka::Embedded::start(&[("changes", PARTITIONS)]).unwrap();
    let at = Addresses { store: url, brokers: cluster.bootstrap().to_owned() };
    // Rows come after the configuration: nothing starts over rows without it.
    Checkpoints::new(&store.connection).config(None).await.unwrap();
    store.faults(faults);
    let (rows, chance, emulator) = (BTreeSet::new(), Chance::seeded(1), store.emulator.clone());
    let mut world = World { store, at, rows, chance, _kafka: cluster };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = with(&mut world) => {}
    }
}

impl World {
    /// Likes and unlikes, each of a random user and post.
    async fn churn(&mut self, changes: usize, posts: u64, users: u64) {
        for _ in 0..changes {
            let (p, u) = (self.chance.token() % posts, self.chance.token() % users);
            let mut item = json!({"pk": {"S": format!("p-{p}#{}", u % 4)}, "user_id": {"S": format!("u-{u}")}});
            if self.rows.remove(&(p, u)) {
                self.store.call("DeleteItem", json!({"TableName": "likes", "Key": item})).await;
            } else {
                self.rows.insert((p, u));
                item["post_id"] = json!({"S": format!("p-{p}")});
                item["liked_at"] = json!({"N": "1"});
                self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
            }
        }
    }

    fn changes(&self) -> Changes {
        Changes::new(&self.store.repeating(5))
    }

    /// Waits until every counter equals its rows.
    async fn exact(&self, posts: u64) {
        let ids: Vec<CounterId> = (0..posts).map(post).collect();
        eventually("every count equals its rows", async || {
            let read = Counters::new(&self.store.repeating(5)).read(&ids, Consistency::Strong).await.unwrap();
            (0..posts).all(|p| {
                let counter = read.counters.get(&post(p)).map(|counter| counter.clone().unwrap());
                let counter: Counter = counter.unwrap_or_default();
                let rows = self.rows.iter().filter(|(of, _)| *of == p).count();
                counter.likes == i64::try_from(rows).unwrap() && counter.adds_up()
            })
        })
        .await;
    }

    /// Waits until what may be said of every partition is of this moment or later.
    async fn fresh(&self) {
        let now = UnixMillis(self.store.emulator.stats().now_ms);
        eventually("all partitions are of this moment", async || {
            let standings = self.changes().standings(PARTITIONS).await.unwrap();
            standings.values().filter(|stated| stated.standing.as_of >= Some(now)).count() == PARTITIONS as usize
        })
        .await;
    }

    async fn losses(&self) -> Vec<String> {
        self.changes().losses().await.unwrap().open().map(|(_, loss)| loss.kind.clone()).collect()
    }

    /// Who relays the stream shards that are open.
    async fn holders(&self) -> BTreeSet<Worker> {
        let label = dynamodb::Streams::new(&self.store.repeating(5)).info().await.unwrap().label;
        let shards = self.changes().shards(&label).await.unwrap();
        let open = shards.into_iter().filter(|shard| shard.closed.is_none());
        open.filter_map(|shard| Some(shard.lease?.holder)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamer_stops_cleanly_and_hands_its_leases_over() {
    served(Vec::new(), async |world| {
        let process = Process::start(&world.at);
        world.churn(300, 20, 40).await;
        world.exact(20).await;
        assert_eq!(world.holders().await.len(), 1);
        assert_eq!(process.stop().await, Some(0));
        assert!(world.holders().await.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_and_a_fold_apart_do_what_both_do_in_one_process() {
    served(Vec::new(), async |world| {
        let start = |role| Process::spawn(command(&world.at).args(["--role", role]));
        let (relay, fold) = (start("relay"), start("fold"));
        world.churn(300, 20, 40).await;
        world.exact(20).await;
        world.fresh().await;
        assert_eq!((relay.stop().await, fold.stop().await), (Some(0), Some(0)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_that_is_bad_or_does_not_go_on_from_the_deployments_ends_the_process_with_78() {
    served(Vec::new(), async |world| {
        let ladder_of = |ladder: &str| Process::spawn(command(&world.at).args(["--milestones", ladder]));
        for bad in ["0", "1.5", "1000,100", "every:0"] {
            assert_eq!(ladder_of(bad).code().await, Some(78), "{bad}");
        }
        let process = ladder_of("100,1000");
        let deployment = Checkpoints::new(&world.store.connection);
        let ladder = async || deployment.ladder().await.unwrap().to_string();
        eventually("the ladder stands", async || ladder().await == "100,1000").await;
        for other in ["100", "100,2000", "every:100"] {
            assert_eq!(ladder_of(other).code().await, Some(78), "{other}");
        }
        assert_eq!(ladder().await, "100,1000");
        assert_eq!(process.stop().await, Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn streamers_killed_under_load_are_exact() {
    served(faults(), async |world| {
        let mut processes = vec![Process::start(&world.at), Process::start(&world.at)];
        for _ in 0..size("TALLY_TEST_KILLS", 4) {
            world.churn(400, 60, 80).await;
            tokio::time::sleep(world.chance.up_to(Duration::from_secs(2))).await;
            processes.swap_remove(usize::try_from(world.chance.token() % 2).unwrap()).kill();
            processes.push(Process::start(&world.at));
        }
        world.churn(400, 60, 80).await;
        let quiet = Instant::now();
        world.exact(60).await;
        println!("exact {:?} after the last change", quiet.elapsed());
        assert_eq!(world.losses().await, [""; 0]);
        for process in processes {
            assert_eq!(process.stop().await, Some(0));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_streamer_that_was_stopped_while_others_took_over_does_no_harm_when_it_wakes() {
    served(faults(), async |world| {
        let sleeper = Process::start(&world.at);
        world.churn(400, 30, 60).await;
        world.exact(30).await;
        let other = Process::start(&world.at);
        world.churn(400, 30, 60).await;
        sleeper.signal("STOP");
        let asleep = Instant::now();
        world.churn(800, 30, 60).await;
        world.exact(30).await;
        let rest = Duration::from_secs(size("TALLY_TEST_STOPPED", 5));
        while asleep.elapsed() < rest {
            world.churn(99, 30, 60).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        sleeper.signal("CONT");
        world.churn(400, 30, 60).await;
        eventually("both relay again", async || world.holders().await.len() == 2).await;
        world.exact(30).await;
        assert_eq!((sleeper.stop().await, other.stop().await), (Some(0), Some(0)));
    })
    .await;
}

/// With its defaults and over the four stream shards that the emulator has here.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_idle_streamer_uses_little_of_a_core_and_few_calls() {
    served(Vec::new(), async |world| {
        let process = Process::spawn(&mut plain(&world.at));
        world.churn(300, 20, 40).await;
        world.exact(20).await;
        // The caller's own calls, made while it waits, are over; the waits of an idle reader have grown to their end.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let calls = || world.store.emulator.stats().requests.values().sum::<u64>();
        let (used, made, began) = (process.used(), calls(), Instant::now());
        tokio::time::sleep(Duration::from_secs(size("TALLY_TEST_IDLE", 10))).await;
        let (used, made, took) = (process.used() - used, calls() - made, began.elapsed().as_secs_f64());
        let share = 100.0 * used.as_secs_f64() / took;
        #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
        let a_second = made as f64 / took;
        println!("idle for {took:.0} s: {share:.2} % of a core, {a_second:.1} calls a second");
        assert!(share < if cfg!(debug_assertions) { 8.0 } else { 2.0 }, "{share:.2} % of a core");
        // A second: a read of each stream shard, leases, losses, stream shards, the format, a standing of each partition.
        assert!(a_second <= 30.0, "{a_second:.1} calls a second");
        assert_eq!(process.stop().await, Some(0));
    })
    .await;
}

/// How a streamer ended by itself, and how often it named `text`.
async fn ended(mut process: Process, text: &str) -> (Option<i32>, usize) {
    let mut said = process.0.stderr.take().expect("stderr is piped");
    eventually("it ends", async || process.0.try_wait().expect("the child is ours").is_some()).await;
    let mut log = String::new();
    said.read_to_string(&mut log).expect("a log is text");
    (process.0.wait().expect("the child is ours").code(), log.matches(text).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_another_number_of_partitions_ends_the_process_by_name() {
    served(Vec::new(), async |world| {
        let process = Process::start(&world.at);
        world.churn(30, 3, 20).await;
        world.exact(3).await;
        assert_eq!(process.stop().await, Some(0));
        let other = kafka::Embedded::start(&[("changes", PARTITIONS + 2)]).unwrap();
        let at = Addresses { store: world.at.store.clone(), brokers: other.bootstrap().to_owned() };
        let mut command = command(&at);
        command.stderr(Stdio::piped());
        let named = "the topic has 6 partitions, and the log of this deployment 4";
        let (code, times) = ended(Process::spawn(&mut command), named).await;
        assert!(code == Some(78) && times >= 1, "{code:?}, named {times} times");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_process() {
    let named = "the deployment is written in format 7, this build knows 2: see docs/upgrading.md";
    served(Vec::new(), async |world| {
        let state =
            async |format| world.store.edit("checkpoints", json!({"id": {"S": "config"}}), "format", format).await;
        let start = || Process::spawn(command(&world.at).stderr(Stdio::piped()));
        let running = start();
        eventually("it relays", async || !world.holders().await.is_empty()).await;
        state(json!({"N": "7"})).await;
        assert_eq!(ended(running, named).await, (Some(78), 1));
        assert_eq!(ended(start(), named).await, (Some(78), 1));
        state(json!({"S": "2"})).await;
        let again = Process::start(&world.at);
        world.churn(300, 20, 40).await;
        world.exact(20).await;
        assert_eq!(again.stop().await, Some(0));
    })
    .await;
}

#[test]
fn a_bad_configuration_is_refused_at_once_and_by_name() {
    let output = Command::new(env!("CARGO_BIN_EXE_tally-change-streamer"))
        .args(["--check", "--concurrency", "0"])
        .env_remove("TALLY_REDIS")
        .output()
        .expect("the binary starts");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{stderr}");
    for named in ["--redis (TALLY_REDIS): missing", "--brokers (TALLY_BROKERS): missing", "--concurrency"] {
        assert!(stderr.contains(named), "{stderr}");
    }
    let at = Addresses { store: "http://127.0.0.1:1".to_owned(), brokers: "127.0.0.1:1".to_owned() };
    let good = command(&at).arg("--check").output().expect("the binary starts");
    assert_eq!(good.status.code(), Some(0));
}
