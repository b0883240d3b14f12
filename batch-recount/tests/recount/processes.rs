//! Recounts as processes of their own, over an emulator on the loopback and a change-streamer beside it: kill -9, two at
//! once, and the memory that one needs for a large table. `RECOUNT_KILLS=50` and `RECOUNT_MEMORY_ROWS=100000,2000000`
//! make these tests larger.

mod relay;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_core::ids::{RowKey, ShardCount};
use tally_emulator::{Config, Emulator};
use tally_service::Host;
use tokio::net::TcpListener;
use tokio::time::Instant;

use self::relay::Relay;
use crate::world::{World, Writer, client, drift, key, post, shards, user};

const DEADLINE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(20);
const POSTS: u64 = 4;
const WRONG: i64 = 5;

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
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
    fn start(relay: &Relay, line: &[&str]) -> Self {
        Self::spawn(&mut Self::command(relay, line))
    }

    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().expect("the binary starts"))
    }

    fn command(relay: &Relay, line: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tally-batch-recount"));
        let tally = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TALLY_"));
        tally.for_each(|(name, _)| _ = command.env_remove(name));
        command
            .args(["--admin-listen", "off", "--log", "error"])
            .args(line)
            .env("AWS_ENDPOINT_URL", relay.endpoint())
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

/// An emulator on the loopback, its tables, and the way recounts take to it.
struct Served {
    emulator: Emulator,
    relay: Relay,
    world: World,
}

async fn served(with: impl AsyncFnOnce(&Served)) {
    let emulator = Emulator::new(Config { shards: 2, ..Config::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let test = async {
        let settings = Settings { endpoint: Some(format!("http://{address}")), ..Settings::local("") };
        let connection = Connection::open(&settings).await;
        dynamodb::ensure_tables(&connection).await.unwrap();
        let world = World::over(&connection, Host::new("world").clock());
        let relay = Relay::to(address).await;
        with(&Served { emulator: emulator.clone(), relay, world }).await;
    };
    tokio::select! {
        ended = emulator.serve(listener, std::future::pending()) => panic!("the emulator stopped: {ended:?}"),
        () = test => {}
    }
}

/// Fills the tables. Returns a row key of each post, each with a wrong count.
async fn wrong(served: &Served, writer: &mut Writer) -> Vec<RowKey> {
    writer.fill(0..POSTS, 12).await;
    served.world.quiet().await;
    let keys: Vec<RowKey> = (0..POSTS).map(|n| key(&post(n), &user(0))).collect();
    for key in &keys {
        drift(&client(&served.emulator), key, WRONG).await;
    }
    keys
}

/// How often `key` was corrected. Panics if a correction was not by what was wrong.
async fn corrections(world: &World, key: &RowKey) -> usize {
    let ledger = world.ports.recounts.ledger(&key.counter, 10_000).await.unwrap();
    let corrections: Vec<i64> = ledger.iter().map(|line| line.after - line.before).filter(|by| *by != 0).collect();
    assert!(corrections.iter().all(|by| *by == -WRONG), "{key}: {corrections:?}");
    corrections.len()
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
    served(async |served| {
        let world = &served.world;
        let _streamer = world.streamer("s");
        let mut writer = Writer::new(world, seed).await;
        let keys = wrong(served, &mut writer).await;
        assert_eq!(Process::start(&served.relay, &[]).ended().await.0, Some(0));
        let length = served.relay.carried();
        let mut injected = vec![1; keys.len()];
        for _ in 0..kills {
            for (key, injected) in keys.iter().zip(&mut injected) {
                if corrections(world, key).await == *injected {
                    drift(&client(&served.emulator), key, WRONG).await;
                    *injected += 1;
                }
            }
            let mut process = Process::start(&served.relay, &[]);
            let end = served.relay.carried() + writer.chance.token() % length;
            polled("the recount comes to its point", async || {
                writer.churn(&post(0), 1, 20).await;
                served.relay.carried() >= end || process.has_ended()
            })
            .await;
            process.kill();
        }
        assert_eq!(Process::start(&served.relay, &[]).ended().await.0, Some(0));
        for (key, injected) in keys.iter().zip(injected) {
            assert_eq!(corrections(world, key).await, injected);
        }
        world.exact(POSTS).await;
    })
    .await;
}

/// How a recount ended by itself, and how often it named a format.
async fn said(mut process: Process) -> (Option<i32>, usize) {
    let mut log = process.0.stderr.take().expect("stderr is piped");
    polled("it ends", async || process.has_ended()).await;
    let mut text = String::new();
    log.read_to_string(&mut text).expect("a log is text");
    let named = text.matches("the deployment is written in format 7, this build knows 2-part1").count();
    (process.0.wait().expect("the child is ours").code(), named)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn a_format_that_is_not_known_ends_the_start_and_one_that_comes_later_ends_the_watcher() {
    served(async |served| {
        let world = &served.world;
        let streamer = world.streamer("s");
        let mut writer = Writer::new(world, 1).await;
        let keys = wrong(served, &mut writer).await;
        let watching = Process::spawn(Process::command(&served.relay, &["--watch"]).stderr(Stdio::piped()));
        world.ports.recounts.enqueue_audit(world.clock.now()).await.unwrap();
        polled("it corrects", async || corrections(world, &keys[0]).await > 0).await;
        drop(streamer);
        write_in(served, "7").await;
        assert_eq!(said(watching).await, (Some(78), 1));
        let refused = Process::spawn(Process::command(&served.relay, &[]).stderr(Stdio::piped()));
        assert_eq!(said(refused).await, (Some(78), 1));
        write_in(served, "2-part1").await;
        let _streamer = world.streamer("t");
        assert_eq!(Process::start(&served.relay, &[]).ended().await.0, Some(0));
        world.exact(POSTS).await;
    })
    .await;
}

/// Has the deployment state that it is written in `format`.
async fn write_in(served: &Served, format: &str) {
    let update = client(&served.emulator).update_item().table_name("checkpoints");
    let update = update.key("id", text("config".to_owned())).update_expression("SET #f=:f");
    let update = update.expression_attribute_names("#f", "format");
    update.expression_attribute_values(":f", text(format.to_owned())).send().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: real processes that wait for guard times"]
async fn two_recounts_at_once_correct_each_row_key_once() {
    served(async |served| {
        let world = &served.world;
        let _streamer = world.streamer("s");
        let mut writer = Writer::new(world, 1).await;
        let keys = wrong(served, &mut writer).await;
        let start = || Process::start(&served.relay, &[]);
        let (one, two) = tokio::join!(start().ended(), start().ended());
        assert_eq!((one.0, two.0), (Some(0), Some(0)));
        for key in &keys {
            assert_eq!(corrections(world, key).await, 1);
        }
        world.exact(POSTS).await;
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

/// The most memory in KiB that a recount held which changed nothing, over a post of so many rows.
async fn only_looking(rows: u64) -> u64 {
    let mut held = 0;
    served(async |served| {
        let world = &served.world;
        fill(&client(&served.emulator), rows).await;
        world.ports.checkpoints.config(Some(shards())).await.unwrap();
        let process = Process::start(&served.relay, &["--dry-run"]);
        let (code, most) = tokio::select! {
            ended = process.ended() => ended,
            () = nothing_to_do(world, &served.relay) => unreachable!("it goes on"),
        };
        assert_eq!(code, Some(0));
        println!("{rows} rows: {most} KiB held at most");
        held = most;
    })
    .await;
    held
}

/// Does what a streamer does whose stream holds nothing new, as often as recounts ask for something.
async fn nothing_to_do(world: &World, relay: &Relay) {
    let (stream, checkpoints) = (&world.ports.stream, &world.ports.checkpoints);
    let label = stream.info().await.unwrap().label;
    let mut carried = relay.watch();
    loop {
        for shard in stream.shards(&label).await.unwrap() {
            let now = world.clock.now();
            checkpoints.number(&label, &shard.id, shard.parent.as_ref(), now).await.unwrap();
            checkpoints.refresh(&label, &shard.id, now).await.unwrap();
        }
        carried.changed().await.unwrap();
    }
}

/// Posts of a thousand users each, and counters that agree.
async fn fill(client: &Client, rows: u64) {
    const USERS: u64 = 1_000;
    let of: ShardCount = shards();
    for n in 0..rows / USERS {
        let users = (0..USERS).map(user).collect::<Vec<_>>();
        for users in users.chunks(25) {
            let likes = users.iter().map(|user| {
                let pk = RowKey::of(&post(n), user, of).to_string();
                let put = PutRequest::builder().item("pk", text(pk)).item("user_id", text(user.to_string()));
                let put = put.item("post_id", text(post(n).to_string())).item("liked_at", number(0));
                WriteRequest::builder().put_request(put.build().unwrap()).build()
            });
            client.batch_write_item().request_items("likes", likes.collect()).send().await.unwrap();
        }
        let counter = client.put_item().table_name("like_counts").item("post_id", text(post(n).to_string()));
        let counter = counter.item("likes", number(USERS)).item("version", number(1)).item("updated_at", number(0));
        let counter = of.all().fold(counter, |counter, shard| {
            let rows = users.iter().filter(|user| of.shard_of(user.as_str()) == shard).count() as u64;
            counter.item(format!("s{shard}"), number(rows))
        });
        counter.send().await.unwrap();
    }
}

fn text(text: String) -> AttributeValue {
    AttributeValue::S(text)
}

fn number(n: u64) -> AttributeValue {
    AttributeValue::N(n.to_string())
}
