//! The streamer as processes of their own, over an emulator on the loopback: signals, crashes, zombies. Ends everything
//! it starts. `TALLY_TEST_KILLS=20 TALLY_TEST_STOPPED=60` is the whole of it.

mod changes;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::kafka;
use tally_core::event::partition_of;
use tally_core::ports::{DeploymentConfig as _, TopicReader as _};
use tally_emulator::{Config as EmulatorConfig, Emulator, Fault, Rule};
use tally_service::Host;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::world::{World, Writer, eventually, post, sdk};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
}

/// The streamer with its defaults.
fn plain(endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-change-streamer"));
    let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
    tally.for_each(|(name, _)| _ = command.env_remove(name));
    command
        .args(["--redis", "off", "--admin-listen", "off", "--log", "warn"])
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .stdin(Stdio::null());
    command
}

/// The streamer, one that is not quiet for long.
pub(crate) fn command(endpoint: &str) -> Command {
    let mut command = plain(endpoint);
    command.args(["--poll-idle", "200ms"]);
    command
}

/// A streamer, ended when dropped.
pub(crate) struct Process(Child);

impl Process {
    fn start(endpoint: &str) -> Self {
        Self::spawn(&mut command(endpoint))
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
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

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }

    /// Its exit code after SIGTERM.
    pub(crate) async fn stop(self) -> Option<i32> {
        self.signal("TERM");
        self.code().await
    }

    /// Its exit code once it has ended.
    pub(crate) async fn code(mut self) -> Option<i32> {
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
pub(crate) fn faults() -> Vec<Rule> {
    vec![
        Rule::new(Fault::DropReply).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Throttle).on("UpdateItem").chance(0.01),
        Rule::new(Fault::Ghost { max_delay_ms: 5_000, hang_ms: 0 }).on("UpdateItem").chance(0.01),
    ]
}

/// An emulator on the loopback, and its tables.
pub(crate) struct Served {
    pub(crate) emulator: Emulator,
    pub(crate) endpoint: String,
    pub(crate) world: World,
}

pub(crate) async fn served(faults: Vec<Rule>, with: impl AsyncFnOnce(&Served)) {
    let emulator = Emulator::new(EmulatorConfig {
        shards: 4,
        split_after: Some(900),
        max_open_shards: 8,
        ..EmulatorConfig::default()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let test = async {
        let settings = Settings { endpoint: Some(endpoint.clone()), ..Settings::local("") };
        let connection = Connection::open(&settings).await;
        dynamodb::ensure_tables(&connection).await.unwrap();
        // Rows come after the configuration: nothing starts over rows without it.
        dynamodb::Checkpoints::new(&connection).config(None).await.unwrap();
        emulator.set_faults(faults);
        let world = World::over(&connection, Host::new("world").clock());
        with(&Served { emulator: emulator.clone(), endpoint, world }).await;
    };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = test => {}
    }
}

async fn leases(world: &World) -> usize {
    world.states().await.iter().filter(|state| !state.checkpoint.closed && state.lease.is_some()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamer_stops_cleanly_and_hands_its_leases_over() {
    served(Vec::new(), async |Served { world, endpoint, .. }| {
        let process = Process::start(endpoint);
        let mut writer = Writer::new(world, 1).await;
        writer.churn(300, 20, 40).await;
        world.exact((0..20).map(post)).await;
        assert!(leases(world).await > 0);
        assert_eq!(process.stop().await, Some(0));
        assert_eq!(leases(world).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_that_is_bad_or_does_not_go_on_from_the_deployments_ends_the_process_with_78() {
    served(Vec::new(), async |Served { world, endpoint, .. }| {
        let ended = async |ladder: &str| {
            let mut process = Process::spawn(command(endpoint).args(["--milestones", ladder]));
            loop {
                if let Some(status) = process.0.try_wait().expect("the child is ours") {
                    return status.code();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        for bad in ["0", "1.5", "1000,100", "every:0"] {
            assert_eq!(tokio::time::timeout(PATIENCE, ended(bad)).await, Ok(Some(78)), "{bad}");
        }
        let process = Process::spawn(command(endpoint).args(["--milestones", "100,1000"]));
        let ladder = async || world.ports.checkpoints.ladder().await.unwrap().to_string();
        eventually("the ladder stands", async || ladder().await == "100,1000").await;
        for other in ["100", "100,2000", "every:100"] {
            assert_eq!(tokio::time::timeout(PATIENCE, ended(other)).await, Ok(Some(78)), "{other}");
        }
        assert_eq!(ladder().await, "100,1000");
        assert_eq!(process.stop().await, Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn streamers_killed_under_load_are_exact() {
    served(faults(), async |Served { world, endpoint, .. }| {
        let mut processes = vec![Process::start(endpoint), Process::start(endpoint)];
        let mut writer = Writer::new(world, 2).await;
        for _ in 0..size("TALLY_TEST_KILLS", 4) {
            writer.churn(400, 60, 80).await;
            tokio::time::sleep(writer.chance.up_to(Duration::from_secs(2))).await;
            processes.swap_remove(usize::try_from(writer.chance.token() % 2).unwrap()).kill();
            processes.push(Process::start(endpoint));
        }
        writer.churn(400, 60, 80).await;
        let quiet = Instant::now();
        world.exact((0..60).map(post)).await;
        println!("exact {:?} after the last change", quiet.elapsed());
        assert!(world.gaps().await.is_empty());
        for process in processes {
            assert_eq!(process.stop().await, Some(0));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_streamer_that_was_stopped_while_others_took_over_does_no_harm_when_it_wakes() {
    served(faults(), async |Served { world, endpoint, .. }| {
        let sleeper = Process::start(endpoint);
        let mut writer = Writer::new(world, 3).await;
        writer.churn(400, 30, 60).await;
        world.quiet().await;
        let other = Process::start(endpoint);
        writer.churn(400, 30, 60).await;
        sleeper.signal("STOP");
        let asleep = Instant::now();
        writer.churn(800, 30, 60).await;
        world.exact((0..30).map(post)).await;
        let rest = Duration::from_secs(size("TALLY_TEST_STOPPED", 5));
        while asleep.elapsed() < rest {
            writer.churn(99, 30, 60).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        sleeper.signal("CONT");
        writer.churn(400, 30, 60).await;
        eventually("both read again", async || {
            let states = world.states().await;
            let mut holders: Vec<_> = states
                .iter()
                .filter(|state| !state.checkpoint.closed)
                .filter_map(|state| state.lease.as_ref())
                .map(|lease| &lease.holder)
                .collect();
            holders.sort();
            holders.dedup();
            holders.len() == 2
        })
        .await;
        world.exact((0..30).map(post)).await;
        assert_eq!((sleeper.stop().await, other.stop().await), (Some(0), Some(0)));
    })
    .await;
}

/// Every message of `topic`: its partition, key and value, in the order of each partition.
async fn messages(brokers: &str, topic: &str) -> Vec<(u32, Vec<u8>, serde_json::Value)> {
    let reader = kafka::TopicReader::new(&kafka::Settings::plaintext(brokers), "reader", topic).unwrap();
    let mut messages = Vec::new();
    for (partition, log) in reader.logs().await.unwrap() {
        let mut from = log.start;
        loop {
            let records = reader.read(&partition, from, log.end).await.unwrap();
            let Some(last) = records.last_offset() else { break };
            messages.extend(records.iter().map(|record| {
                let (key, value) = (record.key.unwrap().to_vec(), record.value.unwrap());
                (partition.index, key, serde_json::from_slice(value).unwrap())
            }));
            from = last.next();
        }
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn every_new_count_is_published_under_its_post_and_the_highest_version_is_the_tables() {
    const PARTITIONS: u32 = 4;
    let cluster = kafka::Embedded::start(&[("counts", PARTITIONS)]).unwrap();
    served(Vec::new(), async |Served { world, endpoint, .. }| {
        let feed = ["--counts-topic", "counts", "--brokers", cluster.bootstrap()];
        let process = Process::spawn(command(endpoint).args(feed));
        let mut writer = Writer::new(world, 1).await;
        for _ in 0..5 {
            writer.churn(300, 20, 40).await;
            world.quiet().await;
        }
        world.exact((0..20).map(post)).await;
        // What waits for the feed is sent before the end.
        assert_eq!(process.stop().await, Some(0));
        let mut newest: BTreeMap<String, (u64, i64)> = BTreeMap::new();
        for (partition, key, message) in messages(cluster.bootstrap(), "counts").await {
            let post = message["post_id"].as_str().unwrap().to_owned();
            assert_eq!((key, partition), (post.clone().into_bytes(), partition_of(post.as_bytes(), PARTITIONS)));
            let (likes, version) = (message["likes"].as_i64().unwrap(), message["version"].as_u64().unwrap());
            assert!(message["as_of"].as_u64().unwrap() > 0);
            // Stream shards are read side by side: a follower keeps what has the highest version.
            let kept = newest.entry(post).or_default();
            *kept = (*kept).max((version, likes));
        }
        for post in (0..20).map(post) {
            let counter = world.counter(&post).await;
            assert_eq!(newest.get(post.post.as_str()), Some(&(counter.version, counter.likes)), "{post}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_feed_without_its_kafka_holds_up_neither_the_counts_nor_the_end() {
    served(Vec::new(), async |Served { world, endpoint, .. }| {
        let feed = ["--counts-topic", "counts", "--brokers", "127.0.0.1:1"];
        let process = Process::spawn(command(endpoint).args(feed));
        let mut writer = Writer::new(world, 1).await;
        writer.churn(300, 20, 40).await;
        world.exact((0..20).map(post)).await;
        let asked = Instant::now();
        assert_eq!(process.stop().await, Some(0));
        assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
        assert_eq!(leases(world).await, 0);
    })
    .await;
}

/// With its defaults and over the four shards that the emulator has here.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_idle_streamer_uses_less_than_a_hundredth_of_a_core_and_few_calls() {
    served(Vec::new(), async |Served { world, endpoint, emulator }| {
        let process = Process::spawn(&mut plain(endpoint));
        let mut writer = Writer::new(world, 1).await;
        writer.churn(300, 20, 40).await;
        world.exact((0..20).map(post)).await;
        // The caller's own calls, made while it waits, are over; the waits of an idle reader have grown to their end.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let calls = || emulator.stats().requests.values().sum::<u64>();
        let (used, made, began) = (process.used(), calls(), Instant::now());
        tokio::time::sleep(Duration::from_secs(size("TALLY_TEST_IDLE", 10))).await;
        let (used, made, took) = (process.used() - used, calls() - made, began.elapsed().as_secs_f64());
        let share = 100.0 * used.as_secs_f64() / took;
        #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
        let a_minute = made as f64 * 60.0 / took;
        println!("idle for {took:.0} s: {share:.2} % of a core, {a_minute:.0} calls a minute");
        assert!(share < if cfg!(debug_assertions) { 5.0 } else { 1.0 }, "{share:.2} % of a core");
        // Each second it looks at the format, and says how far counts are: two reads and a write.
        let each_second = 60.0 + 3.0 * 66.0;
        assert!(a_minute - each_second <= 550.0, "{a_minute:.0} calls a minute");
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
#[ignore = "night: real processes over the in-process Kafka"]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_process() {
    let named = "the deployment is written in format 7, this build knows 2-part1";
    served(Vec::new(), async |Served { world, endpoint, emulator }| {
        let start = || Process::spawn(command(endpoint).stderr(Stdio::piped()));
        let running = start();
        eventually("it follows the stream", async || leases(world).await > 0).await;
        write_in(emulator, "7").await;
        assert_eq!(ended(running, named).await, (Some(78), 1));
        assert_eq!(ended(start(), named).await, (Some(78), 1));
        write_in(emulator, "2-part1").await;
        let mut writer = Writer::new(world, 1).await;
        let again = Process::start(endpoint);
        writer.churn(300, 20, 40).await;
        world.exact((0..20).map(post)).await;
        assert_eq!(again.stop().await, Some(0));
    })
    .await;
}

/// Has the deployment state that it is written in `format`.
async fn write_in(emulator: &Emulator, format: &str) {
    let update = sdk(emulator).update_item().table_name("checkpoints");
    let update = update.key("id", AttributeValue::S("config".to_owned())).update_expression("SET #f=:f");
    let update = update.expression_attribute_names("#f", "format");
    update.expression_attribute_values(":f", AttributeValue::S(format.to_owned())).send().await.unwrap();
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
    assert!(stderr.contains("--redis (TALLY_REDIS): missing") && stderr.contains("--concurrency"), "{stderr}");
    let good = command("http://127.0.0.1:1").arg("--check").output().expect("the binary starts");
    assert_eq!(good.status.code(), Some(0));
}
