//! `scale`: the pipeline at its target rate under virtual time. It shows what the protocols allow at these latencies and
//! throttles if processors are unlimited; the throughput per processor is measured elsewhere.

mod load;

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use tally_emulator::{Config, Latency};

use crate::attack::report::percentile;
use crate::meter::{Counted, Meter};
use crate::pipeline::Pipeline;
use crate::scale::load::Load;
use crate::simulation::command::line;

/// The period of the load.
const TICK: Duration = Duration::from_millis(10);

/// How long after the load everything must be counted.
const PATIENCE: Duration = Duration::from_secs(600);

/// Run the pipeline at a fixed rate under virtual time, with a fifth of the likes for one post
#[derive(Args, Clone, Debug)]
pub struct Scale {
    /// Likes per second
    #[arg(long, default_value_t = 100_000)]
    pub rate: u64,
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Number of posts; the first gets a fifth of the likes, and the others the rest by Zipf
    #[arg(long, default_value_t = 100_000)]
    pub posts: u32,
    /// Kafka partitions
    #[arg(long, default_value_t = 24)]
    pub partitions: u32,
    /// Partitions of the log of changes
    #[arg(long, default_value_t = 24)]
    pub changes: u32,
    /// Consumers
    #[arg(long, default_value_t = 4)]
    pub consumers: u64,
    /// Change-streamers
    #[arg(long, default_value_t = 8)]
    pub streamers: u64,
    /// Initial number of stream shards
    #[arg(long, default_value_t = 100)]
    pub stream_shards: u32,
    /// Records after which a stream shard splits
    #[arg(long, default_value_t = 50_000)]
    pub split_after: u64,
    /// Write units per second of one partition key
    #[arg(long, default_value_t = 1_000)]
    pub key_write_units: u32,
    /// How long a transaction takes
    #[arg(long, default_value = "20ms..40ms", value_parser = str::parse::<Latency>)]
    pub transaction: Latency,
    /// How long a batch of statements takes
    #[arg(long, default_value = "8ms..25ms", value_parser = str::parse::<Latency>)]
    pub batch: Latency,
    /// How long any other call takes
    #[arg(long, default_value = "3ms..8ms", value_parser = str::parse::<Latency>)]
    pub call: Latency,
    /// Seconds between two lines of output
    #[arg(long, default_value_t = 5)]
    pub every: u64,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The number of likes, and how long after the last of them all were counted.
    pub said: u64,
    pub drained: Duration,
    /// The greatest number of likes that were not in the rows yet.
    pub behind: u64,
    /// The staleness of the sampled counts during the load.
    pub staleness: Vec<Duration>,
    /// The requests of the consumers and of the streamers to the store.
    pub asked: [Counted; 2],
    /// The number of posts with a wrong count.
    pub wrong_counts: u64,
    /// The number of rows that no event has written.
    pub wrong_rows: u64,
}

impl Scale {
    /// Runs it in its own thread and prints the result.
    ///
    /// # Errors
    /// A count or a row is wrong, or the pipeline does not finish.
    pub fn run(self) -> anyhow::Result<()> {
        crate::simulation::seed_randomness(1);
        let thread = std::thread::Builder::new().name("scale".to_owned()).stack_size(16 << 20);
        let running = thread.spawn(move || -> anyhow::Result<Outcome> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
            runtime.block_on(self.course())
        })?;
        let outcome = running.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        line(outcome.to_string().trim_end())?;
        ensure!(outcome.wrong_counts == 0 && outcome.wrong_rows == 0, "counts or rows are wrong");
        Ok(())
    }

    /// Produces the load, and waits until it is counted.
    ///
    /// # Errors
    /// The pipeline does not finish.
    pub async fn course(self) -> anyhow::Result<Outcome> {
        let emulator = Config {
            shards: self.stream_shards,
            split_after: Some(self.split_after),
            max_open_shards: usize::MAX,
            key_write_units: Some(self.key_write_units),
            transaction_latency: Some(self.transaction),
            batch_latency: Some(self.batch),
            latency: Some(self.call),
            ..Config::default()
        };
        let pipeline = Pipeline::new(self.partitions, self.changes, emulator).await;
        let load = Load::new(self.posts, self.rate, self.partitions, &pipeline.emulator)?;
        Run { scale: self, pipeline, load, outcome: Outcome::default() }.whole().await
    }
}

/// A run, with its result so far.
struct Run {
    scale: Scale,
    pipeline: Pipeline,
    load: Load,
    outcome: Outcome,
}

impl Run {
    async fn whole(mut self) -> anyhow::Result<Outcome> {
        self.pipeline.start([self.scale.consumers, self.scale.streamers], Vec::new());
        line("| second | likes/s | behind | staleness p50 | p99 | throttled | stream shards |")?;
        line("|---|---|---|---|---|---|---|")?;
        for second in 1..=self.scale.seconds {
            self.second().await?;
            if second % self.scale.every == 0 {
                self.row(second)?;
            }
        }
        let drained = self.rest().await?;
        let Self { pipeline, load, outcome, .. } = self;
        let (said, [wrong_counts, wrong_rows]) = (load.said(), load.wrong());
        let asked = pipeline.meters.each_ref().map(Meter::counted);
        pipeline.stop().await;
        Ok(Outcome { said, drained, asked, wrong_counts, wrong_rows, ..outcome })
    }

    /// Produces one second of load, and samples the counts.
    async fn second(&mut self) -> anyhow::Result<()> {
        let Self { pipeline, load, outcome, .. } = self;
        let ticks = 1_000 / u64::try_from(TICK.as_millis()).unwrap_or(1);
        for tick in 0..ticks {
            load.produce(&pipeline.broker, pipeline.clock.now(), tick, ticks)?;
            pipeline.clock.sleep(TICK).await;
            if tick % 10 == 9 {
                outcome.staleness.extend(load.ages(pipeline.clock.now()));
            }
            outcome.behind = outcome.behind.max(load.behind());
        }
        Ok(())
    }

    fn row(&mut self, second: u64) -> anyhow::Result<()> {
        let Self { scale, pipeline, load, outcome } = self;
        let looks = outcome.staleness.len() / usize::try_from(second / scale.every).unwrap_or(1);
        let latest = &outcome.staleness[outcome.staleness.len() - looks..];
        let asked = pipeline.meters.each_ref().map(Meter::counted);
        let before = std::mem::replace(&mut outcome.asked, asked);
        let [consumers, before] = [&outcome.asked[0], &before[0]];
        let (written, throttled) = (consumers.written() - before.written(), consumers.throttled - before.throttled);
        let stream = pipeline.emulator.stats().tables["likes"].stream.as_ref().map_or(0, |it| it.open_shards.len());
        line(&format!(
            "| {second} | {} | {} | {:?} | {:?} | {:.1} % | {stream} |",
            scale.rate,
            load.behind(),
            percentile(latest, 50),
            percentile(latest, 99),
            share(throttled, written + throttled),
        ))
    }

    /// Waits until every like is a row and counted, and returns how long that took.
    async fn rest(&self) -> anyhow::Result<Duration> {
        let Self { pipeline: Pipeline { clock, .. }, load, .. } = self;
        let ended = clock.now();
        loop {
            let (behind, uncounted, waited) = (load.behind(), load.uncounted(), clock.now().since(ended));
            if behind == 0 && uncounted == 0 {
                return Ok(waited);
            }
            ensure!(waited < PATIENCE, "after {waited:?}, {behind} likes are no rows, and {uncounted} are not counted");
            clock.sleep(Duration::from_millis(100)).await;
        }
    }
}

fn share(of: u64, all: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a share to one digit")]
    let share = 100.0 * of as f64 / all.max(1) as f64;
    share
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { said, drained, behind, staleness, asked, wrong_counts, wrong_rows } = self;
        let [consumers, streamers] = asked;
        writeln!(f, "likes        {said}, all counted {drained:?} after the last one")?;
        writeln!(f, "lag          at most {behind} likes")?;
        writeln!(f, "staleness    p50 {:?}, p99 {:?}", percentile(staleness, 50), percentile(staleness, 99))?;
        let (written, throttled) = (consumers.written(), consumers.throttled);
        let of = share(throttled, written + throttled);
        writeln!(f, "consumers    {written} rows written, {throttled} statements throttled besides ({of:.1} %)")?;
        let (writes, held) = (streamers.calls("BatchExecuteStatement"), streamers.throttled);
        writeln!(f, "streamers    {writes} requests of up to 25 updates, {held} statements throttled besides")?;
        for table in ["likes", "like_counts", "checkpoints"] {
            let units = consumers.units(table) + streamers.units(table);
            writeln!(f, "write units  {units:.0} of {table}")?;
        }
        writeln!(f, "differences  {wrong_counts} counts, {wrong_rows} rows")
    }
}
