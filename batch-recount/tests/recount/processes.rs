//! Tests of recounts as processes of their own, over an emulator and a Kafka on the loopback, beside a change-streamer:
//! `kill -9`, and the memory that a large table takes. `RECOUNT_KILLS=50` and `RECOUNT_MEMORY_ROWS=100000,2000000` make
//! them larger.

use tally_adapters::dynamodb;
use tally_change_streamer as streamer;
use tally_emulator::Config;
use tally_service::{Host, Running};
use tally_testkit::{Engines, Process, eventually, post, sized, user};

use crate::liked::Liked;
use crate::world::{key, shards};

const PARTITIONS: u32 = 2;
const POSTS: u64 = 4;
const WRONG: i64 = 5;

/// Returns the exit code of a recount that ends by itself, and its peak memory in bytes where the system reports it.
async fn ended(process: &Process) -> (Option<i32>, u64) {
    let mut peak = 0;
    eventually("the recount ends", async || {
        peak = process.peak_memory().unwrap_or(peak);
        !process.is_running()
    })
    .await;
    (process.code().await, peak)
}

/// Tables on the loopback, rows in them, and a Kafka.
struct Served {
    liked: Liked,
    engines: Engines,
}

impl Served {
    async fn start(seed: u64) -> Self {
        let engines = Engines::start(Config { shards: 2, ..Config::default() }, &[("changes", PARTITIONS)]).await;
        Self { liked: Liked::new(engines.store.clone(), PARTITIONS, seed), engines }
    }

    fn recount(&self, line: &[&str]) -> Process {
        let mut command = self.engines.command(env!("CARGO_BIN_EXE_tally-batch-recount"));
        command.args(["--admin-listen", "off", "--log", "error"]).args(line);
        Process::start("recount", &mut command).unwrap()
    }

    /// Starts a change-streamer in this process.
    async fn streamer(&self, name: &str) -> Running {
        let connection = self.liked.store.repeating(5);
        let log = streamer::LogPorts::over(&self.engines.kafka(), "changes", "fold", &connection).unwrap();
        let ports = streamer::Ports::over(&connection, log);
        let app = streamer::App::with_ports(Some(shards()), streamer::Settings::default(), ports);
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
    let kills = sized("RECOUNT_KILLS", 3);
    tokio::join!(killed(kills.div_ceil(2), 1), killed(kills / 2, 2));
}

/// Kills `kills` recounts of one deployment, one after the other. Then lets one come to its end.
async fn killed(kills: u64, seed: u64) {
    let mut served = Served::start(seed).await;
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
        let process = served.recount(&[]);
        let Some(length) = length else {
            assert_eq!(ended(&process).await.0, Some(0));
            served.exact(POSTS).await;
            length = Some(served.answered() - before);
            continue;
        };
        let end = served.answered() + served.liked.draw(length);
        eventually("the recount comes to its point", async || {
            let (n, u) = (served.liked.draw(1), served.liked.draw(20));
            served.liked.write(n, u).await;
            served.answered() >= end || !process.is_running()
        })
        .await;
        // This kills it.
        drop(process);
    }
    assert_eq!(ended(&served.recount(&[])).await.0, Some(0));
    served.exact(POSTS).await;
    for (n, drifted) in (0..).zip(drifted) {
        assert!(served.corrections(n).await >= drifted, "{} was corrected without a line on the ledger", post(n));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn what_a_recount_holds_does_not_grow_with_the_table() {
    let sizes = std::env::var("RECOUNT_MEMORY_ROWS").unwrap_or_else(|_| "4000,40000".to_owned());
    let mut held = Vec::new();
    for rows in sizes.split(',').map(|rows| rows.trim().parse::<u64>().unwrap()) {
        held.push(only_looking(rows).await);
    }
    assert!(held[1] <= held[0] * 3 / 2 + (16 << 20), "{held:?} bytes");
}

/// Returns the peak memory of a dry run over posts with so many rows in all.
async fn only_looking(rows: u64) -> u64 {
    const USERS: u64 = 200;
    let mut served = Served::start(1).await;
    let _streamer = served.streamer("s").await;
    served.fill(rows / USERS, USERS).await;
    let (code, peak) = ended(&served.recount(&["--dry-run"])).await;
    assert_eq!(code, Some(0));
    println!("{rows} rows: {peak} bytes held at most");
    peak
}
