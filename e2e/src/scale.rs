//! The benchmark `tally-e2e scale`: runs the pipeline at a given rate of likes under virtual time, and prints how late
//! likes become rows and are counted. It shows what the protocols allow at these latencies and throttles if processors
//! are unlimited; the throughput per processor is measured elsewhere.

mod load;

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
    rate: u64,
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Number of posts; the first gets a fifth of the likes, and the others the rest by Zipf
    #[arg(long, default_value_t = 100_000)]
    posts: u32,
    /// Kafka partitions
    #[arg(long, default_value_t = 24)]
    partitions: u32,
    /// Partitions of the log of changes
    #[arg(long, default_value_t = 24)]
    changes: u32,
    /// Consumers
    #[arg(long, default_value_t = 4)]
    consumers: u64,
    /// Change-streamers
    #[arg(long, default_value_t = 8)]
    streamers: u64,
    /// Initial number of stream shards
    #[arg(long, default_value_t = 100)]
    stream_shards: u32,
    /// Records after which a stream shard splits
    #[arg(long, default_value_t = 50_000)]
    split_after: u64,
    /// Write units per second of one partition key
    #[arg(long, default_value_t = 1_000)]
    key_write_units: u32,
    /// How long a transaction takes
    #[arg(long, default_value = "20ms..40ms", value_parser = str::parse::<Latency>)]
    transaction: Latency,
    /// How long a batch of statements takes
    #[arg(long, default_value = "8ms..25ms", value_parser = str::parse::<Latency>)]
    batch: Latency,
    /// How long any other call takes
    #[arg(long, default_value = "3ms..8ms", value_parser = str::parse::<Latency>)]
    call: Latency,
    /// Seconds between two lines of output
    #[arg(long, default_value_t = 5)]
    every: u64,
}

impl Scale {
    /// Runs it in its own thread and prints the result.
    ///
    /// # Errors
    /// A count or a row is wrong, or the pipeline does not finish.
    pub fn run(self) -> anyhow::Result<()> {
        crate::simulation::seed_randomness(1);
        let thread = std::thread::Builder::new().name("scale".to_owned()).stack_size(16 << 20);
        let running = thread.spawn(move || -> anyhow::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
            runtime.block_on(self.course())
        })?;
        running.join().map_err(|_| anyhow::anyhow!("a panic"))?
    }

    async fn course(self) -> anyhow::Result<()> {
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
        let (behind, staleness, asked) = (0, Vec::new(), Counted::default());
        Run { scale: self, pipeline, load, behind, staleness, asked }.whole().await
    }
}

/// A run, with what it has measured so far.
struct Run {
    scale: Scale,
    pipeline: Pipeline,
    load: Load,
    /// The greatest number of likes that were not in the rows yet.
    behind: u64,
    /// The staleness of the sampled counts during the load.
    staleness: Vec<Duration>,
    /// The requests of the consumers when the last line was printed.
    asked: Counted,
}

impl Run {
    /// Produces the load, waits until it is counted, and prints the result.
    async fn whole(mut self) -> anyhow::Result<()> {
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
        let Self { pipeline, load, behind, staleness, .. } = self;
        let [consumers, streamers] = pipeline.meters.each_ref().map(Meter::counted);
        pipeline.stop().await;
        line(&format!("likes        {}, all counted {drained:?} after the last one", load.said()))?;
        line(&format!("lag          at most {behind} likes"))?;
        let [p50, p99] = [50, 99].map(|percent| percentile(&staleness, percent));
        line(&format!("staleness    p50 {p50:?}, p99 {p99:?}"))?;
        let (written, throttled) = (consumers.written(), consumers.throttled);
        let of = share(throttled, written + throttled);
        line(&format!("consumers    {written} rows written, {throttled} statements throttled besides ({of:.1} %)"))?;
        let (writes, held) = (streamers.calls("BatchExecuteStatement"), streamers.throttled);
        line(&format!("streamers    {writes} requests of up to 25 updates, {held} statements throttled besides"))?;
        for table in ["likes", "like_counts", "checkpoints"] {
            line(&format!("write units  {:.0} of {table}", consumers.units(table) + streamers.units(table)))?;
        }
        let [wrong_counts, wrong_rows] = load.wrong();
        line(&format!("differences  {wrong_counts} counts, {wrong_rows} rows"))?;
        ensure!(wrong_counts == 0 && wrong_rows == 0, "counts or rows are wrong");
        Ok(())
    }

    /// Produces one second of load, and samples the counts.
    async fn second(&mut self) -> anyhow::Result<()> {
        let Self { pipeline, load, behind, staleness, .. } = self;
        let ticks = 1_000 / u64::try_from(TICK.as_millis()).unwrap_or(1);
        for tick in 0..ticks {
            load.produce(&pipeline.broker, pipeline.clock.now(), tick, ticks)?;
            pipeline.clock.sleep(TICK).await;
            if tick % 10 == 9 {
                staleness.extend(load.ages(pipeline.clock.now()));
            }
            *behind = load.behind().max(*behind);
        }
        Ok(())
    }

    fn row(&mut self, second: u64) -> anyhow::Result<()> {
        let Self { scale, pipeline, load, staleness, .. } = self;
        let looks = staleness.len() / usize::try_from(second / scale.every).unwrap_or(1);
        let latest = &staleness[staleness.len() - looks..];
        let asked = pipeline.meters[0].counted();
        let before = std::mem::replace(&mut self.asked, asked.clone());
        let (written, throttled) = (asked.written() - before.written(), asked.throttled - before.throttled);
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

/// A percentage.
fn share(of: u64, all: u64) -> f64 {
    let number = |n: u64| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    100.0 * number(of) / number(all.max(1))
}
