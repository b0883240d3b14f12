//! How stale a hot post's count is while it is written, with and without a recount of it beside: pairs of runs in turn,
//! the recount a process of its own, over an emulator on the loopback and a change-streamer in this process.
//! `cargo bench -p tally-batch-recount --bench staleness`, with `RECOUNT_WRITES=1000` likes a second,
//! `RECOUNT_SECONDS=20` a run and `RECOUNT_PAIRS=5` for other sizes.

use std::collections::VecDeque;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::{join, try_join_all};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_change_streamer as streamer;
use tally_core::batch::Change;
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, PostId, ShardCount, UserId};
use tally_core::ports::{Counts, FencedRows};
use tally_emulator::Emulator;
use tally_service::{Clock, Host, Running};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Partitions written by, each its own chain of transactions.
const WRITERS: u64 = 10;
/// How often the count is read.
const READS: Duration = Duration::from_millis(10);

fn size(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|size| size.parse().ok()).unwrap_or(default)
}

fn main() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let emulator = Emulator::new(tally_emulator::Config::default());
        tokio::select! {
            ended = emulator.serve(listener, std::future::pending()) => ended.context("the emulator stopped"),
            measured = pairs(&endpoint) => measured,
        }
    })
}

async fn pairs(endpoint: &str) -> Result<()> {
    let settings = Settings { endpoint: Some(endpoint.to_owned()), ..Settings::local("") };
    let connection = Connection::open(&settings).await;
    dynamodb::ensure_tables(&connection).await?;
    let _streamer = follow(&connection);
    let mut bench = Bench::new(connection);
    bench.run().await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..size("RECOUNT_PAIRS", 5) {
        alone.push(bench.run().await?);
        let recounts = Recounts::start(endpoint)?;
        beside.push(bench.run().await?);
        ensure!(recounts.stop().await? > 0, "no recount came to its end meanwhile");
    }
    let pairs: Vec<String> = alone.iter().zip(&beside).map(|(one, two)| format!("{one:.0?}/{two:.0?}")).collect();
    let (alone, beside) = (median(alone), median(beside));
    let pairs = pairs.join(" ");
    writeln!(std::io::stdout(), "staleness p99, median: alone {alone:.1?}, beside recounts {beside:.1?} ({pairs})")?;
    Ok(())
}

fn median(mut of: Vec<Duration>) -> Duration {
    of.sort_unstable();
    of[of.len() / 2]
}

fn follow(connection: &Connection) -> Running {
    let shards = Some(ShardCount::DEFAULT);
    let config = streamer::Config {
        table_prefix: String::new(),
        shards,
        cache: None,
        feed: None,
        changes: None,
        rules: streamer::Rules::default(),
    };
    let ports = streamer::Ports::over(connection);
    Running::start(streamer::App::with_ports(config, ports), Host::new("streamer"))
}

/// Likes that were acknowledged and are not in the count yet: when, and the count that has them.
type Waiting = Arc<Mutex<VecDeque<(Instant, u64)>>>;

struct Bench {
    connection: Connection,
    clock: Clock,
    post: CounterId,
    waiting: Waiting,
    /// Likes written.
    likes: Arc<Mutex<u64>>,
    rounds: u64,
}

impl Bench {
    fn new(connection: Connection) -> Self {
        let post = PostId::new("hot").expect("a valid id");
        Self {
            connection,
            clock: Host::new("bench").clock(),
            post: CounterId::likes(post),
            waiting: Waiting::default(),
            likes: Arc::default(),
            rounds: 0,
        }
    }

    /// Writes for a while; the 99th percentile of how long the oldest like not counted had been waiting.
    async fn run(&mut self) -> Result<Duration> {
        self.rounds += 1;
        let until = Instant::now() + Duration::from_secs(size("RECOUNT_SECONDS", 20));
        let writers = (0..WRITERS).map(|writer| self.write(writer, until));
        let (written, read) = join(try_join_all(writers), self.read(until)).await;
        written?;
        let mut stale = read?;
        stale.sort_unstable();
        Ok(stale[stale.len() * 99 / 100])
    }

    /// Likes by users of its own, in ten transactions a second.
    async fn write(&self, writer: u64, until: Instant) -> Result<()> {
        let rows = dynamodb::Likes::new(&self.connection, ShardCount::DEFAULT);
        let partition = Partition { topic: format!("t{}", self.rounds).into(), index: u32::try_from(writer)? };
        let mut fence = Fence::new(Offset(0), 0, TopicId("t".into()));
        rows.create_fence(&partition, &fence).await?;
        let mut ticks = interval(Duration::from_millis(100));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let each = size("RECOUNT_WRITES", 1_000) / WRITERS / 10;
        while Instant::now() < until {
            ticks.tick().await;
            let first = fence.offset.0;
            let name = |n: u64| UserId::new(&format!("u-{}-{writer}-{n}", self.rounds));
            let users = (first..first + each).map(name).collect::<Result<Vec<_>, _>>()?;
            let (action, at) = (Action::Like, self.clock.now());
            let changes: Vec<Change<'_>> =
                users.iter().map(|user| Change::like(&self.post, user, action, at)).collect();
            let advance = Advance { from: fence.clone(), to: Offset(first + each) };
            let committed = rows.commit(&partition, &advance, &changes).await;
            ensure!(committed == Commit::Done, "{committed:?}");
            fence.offset = advance.to;
            let mut likes = self.likes.lock().unwrap_or_else(PoisonError::into_inner);
            *likes += each;
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back((Instant::now(), *likes));
        }
        Ok(())
    }

    async fn read(&self, until: Instant) -> Result<Vec<Duration>> {
        let counts = dynamodb::Counts::new(&self.connection);
        let (mut stale, mut ticks) = (Vec::new(), interval(READS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (asked, counter) = (Instant::now(), counts.counter(&self.post).await?);
            let likes = counter.map_or(0, |counter| u64::try_from(counter.likes).unwrap_or(0));
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            while waiting.front().is_some_and(|(_, behind)| *behind <= likes) {
                waiting.pop_front();
            }
            let oldest = waiting.front().map(|(acknowledged, _)| asked.saturating_duration_since(*acknowledged));
            if asked < until {
                stale.push(oldest.unwrap_or_default());
            } else if oldest.is_none() {
                return Ok(stale);
            }
        }
    }
}

/// Recounts of the hot post by windows, one after the other.
struct Recounts {
    ended: Arc<Mutex<u64>>,
    stop: Arc<Mutex<bool>>,
    thread: std::thread::JoinHandle<Result<()>>,
}

impl Recounts {
    fn start(endpoint: &str) -> Result<Self> {
        let (ended, stop) = (Arc::<Mutex<u64>>::default(), Arc::<Mutex<bool>>::default());
        let (count, over, endpoint) = (Arc::clone(&ended), Arc::clone(&stop), endpoint.to_owned());
        let thread = std::thread::Builder::new().name("recounts".to_owned()).spawn(move || {
            while !*over.lock().unwrap_or_else(PoisonError::into_inner) {
                let code = recount(&endpoint)?.wait()?.code();
                ensure!(code == Some(0), "a recount ended with {code:?}");
                *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            }
            Ok(())
        })?;
        Ok(Self { ended, stop, thread })
    }

    /// How many came to their end.
    async fn stop(self) -> Result<u64> {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // Here the emulator is served, too: waiting for a thread must not hold it up.
        let joined = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        joined.map_err(|_| anyhow::anyhow!("the thread of recounts panicked"))??;
        Ok(*self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn recount(endpoint: &str) -> Result<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tally-batch-recount"));
    let log = std::env::var("RECOUNT_LOG").unwrap_or_else(|_| "error".to_owned());
    command.args(["--post", "hot", "--admin-listen", "off", "--log", &log]);
    let access = [("AWS_REGION", "us-east-1"), ("AWS_ACCESS_KEY_ID", "local"), ("AWS_SECRET_ACCESS_KEY", "local")];
    command.env("AWS_ENDPOINT_URL", endpoint).envs(access).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("the recount does not start")
}
