//! Tests of recounts as processes of their own, over an emulator and a Kafka on the loopback, beside a change-streamer:
//! `kill -9`, and the memory that a large table takes. `RECOUNT_KILLS=50` and `RECOUNT_MEMORY_ROWS=100000,2000000` make
//! them larger.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tally_adapters::dynamodb;
use tally_adapters::kafka;
use tally_change_streamer as streamer;
use tally_emulator::Config;
use tally_service::{Host, Running};
use tally_testkit::Store;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::liked::{Liked, size};
use crate::world::{key, post, shards, user};

const PARTITIONS: u32 = 2;
const DEADLINE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
const POSTS: u64 = 4;
const WRONG: i64 = 5;

/// Polls until `holds`.
async fn polled(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// A recount, which is ended when this is dropped.
struct Process(Child);

impl Process {
    fn start(served: &Served, line: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-batch-recount"));
        let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
        tally.for_each(|(name, _)| _ = command.env_remove(name));
        command
            .args(["--admin-listen", "off", "--log", "error", "--brokers", served.kafka.bootstrap()])
            .args(line)
            .env("AWS_ENDPOINT_URL", &served.endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self(command.spawn().expect("the binary starts"))
    }

    fn kill(mut self) {
        self.0.kill().expect("the child is ours");
        self.0.wait().expect("the child is ours");
    }

    /// Returns whether it has ended by itself.
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
        // It has ended already unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tables on the loopback, rows in them, and a Kafka.
struct Served {
    liked: Liked,
    endpoint: String,
    kafka: kafka::Embedded,
}

async fn served(seed: u64, with: impl AsyncFnOnce(&mut Served)) {
    let store = Store::in_real_time(Config { shards: 2, ..Config::default() }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let kafka = kafka::Embedded::start(&[("changes", PARTITIONS)]).unwrap();
    let emulator = store.emulator.clone();
    let mut served = Served { liked: Liked::new(store, PARTITIONS, seed), endpoint, kafka };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = with(&mut served) => {}
    }
}

impl Served {
    /// Starts a change-streamer in this process.
    async fn streamer(&self, name: &str) -> Running {
        let (connection, kafka) = (self.liked.store.repeating(5), kafka::Settings::plaintext(self.kafka.bootstrap()));
        let log = streamer::LogPorts::over(&kafka, "changes", "fold", &connection).unwrap();
        let settings = streamer::Settings { shards: Some(shards()), ..streamer::Settings::default() };
        let app = streamer::App::with_ports(settings, streamer::Ports::over(&connection, log));
        let running = Running::start(app, Host::new(name));
        running.ready().await.unwrap();
        running
    }

    fn recounts(&self) -> dynamodb::Recounts {
        dynamodb::Recounts::new(&self.liked.store.repeating(5))
    }

    async fn fill(&mut self, posts: u64, users: u64) {
        self.liked.fill(0..posts, users).await;
        self.exact(posts).await;
    }

    /// Waits until everything that is written is counted, and compares every count with its rows.
    async fn exact(&self, posts: u64) {
        self.liked.counted(Host::new("test").clock().now()).await;
        assert_eq!(self.liked.wrong(posts).await, []);
    }

    /// Returns how often the ledger says that the row key of a post was corrected.
    async fn corrections(&self, n: u64) -> usize {
        let ledger = self.recounts().ledger(&post(n), 10_000).await.unwrap();
        ledger.iter().filter(|line| line.shard == Some(key(&post(n), &user(0)).shard)).count()
    }

    /// Returns how many requests of recounts were answered so far.
    fn answered(&self) -> u64 {
        ["Scan", "Query", "BatchWriteItem"].iter().map(|operation| self.liked.store.requests(operation)).sum()
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

/// Kills `kills` recounts of one deployment, one after the other. Then lets one come to its end.
async fn killed(kills: u64, seed: u64) {
    served(seed, async |served| {
        let _streamer = served.streamer("s").await;
        served.fill(POSTS, 12).await;
        let before = served.answered();
        let mut drifted: Vec<usize> = (0..POSTS).map(|_| 0).collect();
        // The number of requests of a whole recount.
        let mut length = None;
        for _ in 0..=kills {
            for (n, drifted) in (0..).zip(&mut drifted) {
                if served.corrections(n).await >= *drifted {
                    served.liked.drift(n, true, WRONG).await;
                    *drifted += 1;
                }
            }
            let mut process = Process::start(served, &[]);
            let Some(length) = length else {
                assert_eq!(process.ended().await.0, Some(0));
                served.exact(POSTS).await;
                length = Some(served.answered() - before);
                continue;
            };
            let end = served.answered() + served.liked.draw(length);
            polled("the recount comes to its point", async || {
                let (n, u) = (served.liked.draw(1), served.liked.draw(20));
                served.liked.write(n, u).await;
                served.answered() >= end || process.has_ended()
            })
            .await;
            process.kill();
        }
        assert_eq!(Process::start(served, &[]).ended().await.0, Some(0));
        served.exact(POSTS).await;
        for (n, drifted) in (0..).zip(drifted) {
            assert!(served.corrections(n).await >= drifted, "{} was corrected without a line on the ledger", post(n));
        }
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

/// Returns the most memory in KiB that a dry run held, over posts with so many rows in all.
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
