//! Recounts as processes of their own, over an emulator and a Kafka on the loopback and a change-streamer beside it: kill -9,
//! two at once, and the memory that one needs for a large table. `RECOUNT_KILLS=50` and `RECOUNT_MEMORY_ROWS=100000,2000000`
//! make these tests larger.

mod relay;

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Consistency};
use tally_adapters::kafka;
use tally_change_streamer as streamer;
use tally_core::ids::RowKey;
use tally_core::time::UnixMillis;
use tally_emulator::Config;
use tally_service::{Chance, Exit, Host, Running};
use tally_testkit::Store;
use tokio::net::TcpListener;
use tokio::time::Instant;

use self::relay::Relay;
use crate::world::{key, post, shards, user};

const PARTITIONS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
const POSTS: u64 = 4;
const WRONG: i64 = 5;

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
}

fn now() -> UnixMillis {
    Host::new("test").clock().now()
}

/// Polls until `holds`.
async fn polled(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A recount, ended when dropped.
struct Process(Child);

impl Process {
    fn start(served: &Served, line: &[&str]) -> Self {
        Self::spawn(&mut Self::command(served, line))
    }

    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the binary starts"))
    }

    fn command(served: &Served, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-batch-recount"));
        let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
        tally.for_each(|(name, _)| _ = command.env_remove(name));
        command
            .args(["--admin-listen", "off", "--log", "error", "--brokers", served.kafka.bootstrap()])
            .args(line)
            .env("AWS_ENDPOINT_URL", served.relay.endpoint())
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn kill(mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }

    /// Whether it has ended by itself.
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("the child is ours").is_some()
    }

    /// Waits for its end. Returns its exit code and the most memory it was seen to hold, in KiB; 0 where the system
    /// does not say.
    async fn ended(mut self) -> (Option<i32>, u64) {
        let mut most = 0;
        polled("the recount ends", async || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let held = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
            most = most.max(held);
            self.has_ended()
        })
        .await;
        (self.0.wait().expect("the child is ours").code(), most)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tables on the loopback, rows in them, a Kafka, and the way recounts take to the tables.
struct Served {
    store: Store,
    kafka: kafka::Embedded,
    relay: Relay,
    rows: BTreeSet<(u64, u64)>,
    chance: Chance,
}

async fn served(seed: u64, with: impl AsyncFnOnce(&mut Served)) {
    let store = Store::in_real_time(Config { shards: 2, ..Config::default() }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relay = Relay::to(listener.local_addr().unwrap()).await;
    let kafka = kafka::Embedded::start(&[("changes", PARTITIONS)]).unwrap();
    let (emulator, rows, chance) = (store.emulator.clone(), BTreeSet::new(), Chance::seeded(seed));
    let mut served = Served { store, kafka, relay, rows, chance };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = with(&mut served) => {}
    }
}

impl Served {
    /// Starts a change-streamer in this process.
    async fn streamer(&self, name: &str) -> Running {
        let (connection, kafka) = (self.store.repeating(5), kafka::Settings::plaintext(self.kafka.bootstrap()));
        let log = streamer::LogPorts::over(&kafka, "changes", "fold", &connection).unwrap();
        let config = streamer::Config::plain("", Some(shards()), streamer::Rules::default());
        let app = streamer::App::with_ports(config, streamer::Ports::over(&connection, log));
        let running = Running::start(app, Host::new(name));
        running.ready().await.unwrap();
        running
    }

    fn recounts(&self) -> dynamodb::Recounts {
        dynamodb::Recounts::new(&self.store.repeating(5))
    }

    /// Has the user like the post, or takes that back.
    async fn write(&mut self, n: u64, u: u64) {
        let mut item = json!({
            "pk": {"S": key(&post(n), &user(u)).to_string()},
            "user_id": {"S": user(u).to_string()},
        });
        if self.rows.remove(&(n, u)) {
            self.store.call("DeleteItem", json!({"TableName": "likes", "Key": item})).await;
        } else {
            self.rows.insert((n, u));
            item["liked_at"] = json!({"N": "1"});
            self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
        }
    }

    async fn fill(&mut self, posts: u64, users: u64) {
        for n in 0..posts {
            for u in 0..users {
                self.write(n, u).await;
            }
        }
        self.exact(posts).await;
    }

    async fn churn(&mut self, posts: u64, users: u64) {
        let (n, u) = (self.chance.token() % posts, self.chance.token() % users);
        self.write(n, u).await;
    }

    /// Adds to the count of a row key, and to the total.
    async fn drift(&self, key: &RowKey, by: i64) {
        let update = json!({
            "TableName": "like_counts",
            "Key": {"post_id": {"S": key.counter.stored()}},
            "UpdateExpression": "ADD #l :by, #s :by",
            "ExpressionAttributeNames": {"#l": "likes", "#s": format!("s{}", key.shard)},
            "ExpressionAttributeValues": {":by": {"N": by.to_string()}},
        });
        self.store.call("UpdateItem", update).await;
    }

    /// Waits until everything that is written is counted, and holds every count against its rows.
    async fn exact(&self, posts: u64) {
        let (began, changes) = (now(), Changes::new(&self.store.repeating(5)));
        polled("everything is counted", async || {
            let standings = changes.standings(PARTITIONS).await.unwrap();
            standings.values().filter(|stated| stated.standing.as_of >= Some(began)).count() == PARTITIONS as usize
        })
        .await;
        for n in 0..posts {
            let counters = Counters::new(&self.store.repeating(5));
            let read = counters.read(&[post(n)], Consistency::Strong).await.unwrap();
            let counter = read.counters.get(&post(n)).cloned().transpose().unwrap().unwrap_or_default();
            let rows = self.rows.range((n, 0)..(n + 1, 0)).count();
            assert_eq!((counter.likes, counter.adds_up()), (i64::try_from(rows).unwrap(), true), "{}", post(n));
        }
    }

    /// Fills the tables. Returns a row key of each post, each with a wrong count.
    async fn wrong(&mut self) -> Vec<RowKey> {
        self.fill(POSTS, 12).await;
        let keys: Vec<RowKey> = (0..POSTS).map(|n| key(&post(n), &user(0))).collect();
        for key in &keys {
            self.drift(key, WRONG).await;
        }
        keys
    }

    /// How often `key` was corrected, as the ledger has it.
    async fn corrections(&self, key: &RowKey) -> usize {
        let ledger = self.recounts().ledger(&key.counter, 10_000).await.unwrap();
        ledger.iter().filter(|line| line.shard == Some(key.shard)).count()
    }

    /// Has the deployment state a format; the one that it stated.
    async fn state_format(&self, format: serde_json::Value) -> serde_json::Value {
        let key = json!({"id": {"S": "config"}});
        let stated = self.store.item("checkpoints", key.clone()).await["format"].take();
        self.store.edit("checkpoints", key, "format", format).await;
        stated
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recount_that_only_looks_exits_with_0() {
    only_looking(400).await;
}

/// A recount mostly waits: two deployments share the kills and run side by side.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn a_recount_killed_at_any_point_corrects_what_is_wrong_or_nothing() {
    let kills = size("RECOUNT_KILLS", 3);
    tokio::join!(killed(kills.div_ceil(2), 1), killed(kills / 2, 2));
}

/// Kills `kills` recounts, one after the other, in a deployment of its own. Then lets one come to its end.
async fn killed(kills: u64, seed: u64) {
    served(seed, async |served| {
        let _streamer = served.streamer("s").await;
        let keys = served.wrong().await;
        assert_eq!(Process::start(served, &[]).ended().await.0, Some(0));
        served.exact(POSTS).await;
        let length = served.relay.carried();
        let mut drifted = vec![1; keys.len()];
        for _ in 0..kills {
            for (nth, key) in keys.iter().enumerate() {
                if served.corrections(key).await >= drifted[nth] {
                    served.drift(key, WRONG).await;
                    drifted[nth] += 1;
                }
            }
            let mut process = Process::start(served, &[]);
            let end = served.relay.carried() + served.chance.token() % length;
            polled("the recount comes to its point", async || {
                served.churn(1, 20).await;
                served.relay.carried() >= end || process.has_ended()
            })
            .await;
            process.kill();
        }
        assert_eq!(Process::start(served, &[]).ended().await.0, Some(0));
        served.exact(POSTS).await;
        for (key, drifted) in keys.iter().zip(drifted) {
            assert!(served.corrections(key).await >= drifted, "{key} was corrected without a line on the ledger");
        }
    })
    .await;
}

/// How a recount ended by itself, and whether it named a format.
async fn said(mut process: Process) -> (Option<i32>, bool) {
    let mut log = process.0.stderr.take().expect("stderr is piped");
    polled("it ends", async || process.has_ended()).await;
    let mut text = String::new();
    log.read_to_string(&mut text).expect("a log is text");
    let named = text.contains("the deployment is written in format 7");
    (process.0.wait().expect("the child is ours").code(), named)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_watcher() {
    let refused = (Some(i32::from(Exit::FORMAT.code())), true);
    served(1, async |served| {
        let streamer = served.streamer("s").await;
        let keys = served.wrong().await;
        let watching = Process::spawn(Process::command(served, &["--watch"]).stderr(Stdio::piped()));
        served.recounts().enqueue_audit(now()).await.unwrap();
        polled("it corrects", async || served.corrections(&keys[0]).await > 0).await;
        streamer.kill().await;
        let known = served.state_format(json!({"N": "7"})).await;
        assert_eq!(said(watching).await, refused);
        let late = Process::spawn(Process::command(served, &[]).stderr(Stdio::piped()));
        assert_eq!(said(late).await, refused);
        served.state_format(known).await;
        let _streamer = served.streamer("t").await;
        assert_eq!(Process::start(served, &[]).ended().await.0, Some(0));
        served.exact(POSTS).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn two_recounts_at_once_leave_every_count_right() {
    served(1, async |served| {
        let _streamer = served.streamer("s").await;
        served.wrong().await;
        let start = || Process::start(served, &[]);
        let (one, two) = tokio::join!(start().ended(), start().ended());
        assert_eq!((one.0, two.0), (Some(0), Some(0)));
        served.exact(POSTS).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn what_a_recount_holds_does_not_grow_with_the_table() {
    let sizes = std::env::var("RECOUNT_MEMORY_ROWS").unwrap_or_else(|_| "4000,40000".to_owned());
    let mut held = Vec::new();
    for rows in sizes.split(',').map(|rows| rows.trim().parse::<u64>().unwrap()) {
        held.push(only_looking(rows).await);
    }
    assert!(held[1] <= held[0] * 3 / 2 + 16_384, "{held:?} KiB");
}

/// The most memory in KiB that a recount held which changed nothing, over posts of so many rows in all.
async fn only_looking(rows: u64) -> u64 {
    const USERS: u64 = 200;
    let mut held = 0;
    served(1, async |served| {
        let _streamer = served.streamer("s").await;
        served.fill(rows / USERS, USERS).await;
        let (code, most) = Process::start(served, &["--dry-run"]).ended().await;
        assert_eq!(code, Some(0));
        println!("{rows} rows: {most} KiB held at most");
        held = most;
    })
    .await;
    held
}
