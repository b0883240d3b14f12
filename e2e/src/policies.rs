//! Measures the cost and the staleness of each policy for a busy sum: one post's views at a fixed rate, through the whole
//! pipeline under paused time, with requests as slow as those of the real store.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use tally_core::definitions::{Definitions, Entry};
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, Shard, ShardCount};
use tally_core::ports::TopicReader as _;
use tally_core::ports::log::Outgoing;
use tally_core::spread::{Spread, SumPolicy};
use tally_emulator::{Fault, Rule};
use tally_service::Chance;

use crate::pipeline::{Pipeline, TOPIC};

const PARTITIONS: u32 = 12;
const POST: &str = "viral";
/// The shortest pause between two steps.
const STEP: Duration = Duration::from_millis(1);
/// The pause between two polls of the count, and of the lag.
const LOOK: Duration = Duration::from_millis(10);
const LAGS: Duration = Duration::from_secs(1);
/// The time before the measurement, in which the width settles, and the length of the measurement.
const WARM: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(5);

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub policy: SumPolicy,
    /// Views per second.
    pub views: u64,
    /// Likes per second of the same post. They have the same Kafka key as the views, and each is a row of its own.
    pub likes: u64,
}

/// The measurements.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub scenario: Scenario,
    /// The number of partitions over which the views were spread.
    pub width: u32,
    /// Views per written cell.
    pub events_a_row: f64,
    /// Write units of all tables per view, including those of the likes.
    pub units_an_event: f64,
    /// The age of the oldest view that is not counted yet: the median and the 99th percentile.
    pub staleness: [Duration; 2],
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario: Scenario { policy, views, likes }, width, events_a_row, units_an_event, .. } = self;
        let [median, most] = self.staleness.map(|age| age.as_millis());
        let beside = if *likes == 0 { "nothing".to_owned() } else { format!("{likes} likes/s") };
        write!(
            f,
            "| {views}/s | {beside} | `{policy}` | {width} | {events_a_row:.0} | {units_an_event:.4} | {median} / {most} ms |"
        )
    }
}

/// The header of the table of [`Figures`].
pub const HEAD: &str = "| views | beside | policy | partitions | events a row | write units an event | staleness p50 / p99 |\n\
                        |---|---|---|---|---|---|---|";

/// Runs a scenario.
///
/// # Errors
/// The pipeline does not start.
pub async fn measure(scenario: Scenario) -> anyhow::Result<Figures> {
    let mut run = Run::new(scenario).await?;
    run.until(WARM).await?;
    run.pipeline.meters.iter().for_each(|meter| drop(meter.take()));
    run.ages.clear();
    let before = run.viewed;
    run.until(WARM + MEASURED).await?;
    let [consumer, streamer] = run.pipeline.meters.each_ref().map(crate::meter::Meter::take);
    let events = (run.viewed - before) as f64;
    let units: f64 = consumer.units.values().chain(streamer.units.values()).sum();
    run.ages.sort_unstable();
    let age = |hundredth: usize| run.ages[(run.ages.len() - 1) * hundredth / 100];
    let figures = Figures {
        scenario,
        width: run.spread.width(&run.views),
        events_a_row: events / consumer.rows[2] as f64,
        units_an_event: units / events,
        staleness: [age(50), age(99)],
    };
    run.pipeline.stop().await;
    Ok(figures)
}

struct Run {
    scenario: Scenario,
    pipeline: Pipeline,
    spread: Spread,
    chance: Chance,
    views: CounterId,
    /// The times of each partition's views, in order.
    said: Vec<Vec<Duration>>,
    /// The start of the run, on the pipeline's clock.
    began: Duration,
    /// Views and likes produced so far.
    viewed: u64,
    liked: u64,
    /// When to poll the count and the lag next.
    look: Duration,
    lags: Duration,
    ages: Vec<Duration>,
}

impl Run {
    async fn new(scenario: Scenario) -> anyhow::Result<Self> {
        let mut pipeline = Pipeline::new(PARTITIONS).await?;
        let views = Entry { name: "views".into(), kind: "sum".into(), add: "view".into(), ..Entry::default() };
        let defined = Definitions::new(&[views])?;
        pipeline.checkpoints.config(Some(ShardCount::DEFAULT)).await?;
        pipeline.checkpoints.define(&Definitions::likes_alone(), &defined).await?;
        let late = |operation: &str, min_ms, max_ms| Rule::new(Fault::Latency { min_ms, max_ms }).on(operation);
        let slow = [late("BatchExecuteStatement", 8, 25), late("UpdateItem", 3, 8), late("GetRecords", 3, 8)];
        pipeline.start(slow.to_vec());
        let mut spread = Spread::new(scenario.policy);
        spread.seen(&[0; PARTITIONS as usize]);
        let name = CounterName::new("views", CounterKind::Sum)?;
        let views = CounterId { post: PostId::new(POST)?, name };
        let said = vec![Vec::new(); PARTITIONS as usize];
        let (chance, began) = (Chance::seeded(7), pipeline.clock.reading().at);
        let (viewed, liked, look, lags, ages) = (0, 0, Duration::ZERO, Duration::ZERO, Vec::new());
        Ok(Self { scenario, pipeline, spread, chance, views, said, began, viewed, liked, look, lags, ages })
    }

    /// Produces what is due and polls, until this much time has passed.
    async fn until(&mut self, over: Duration) -> anyhow::Result<()> {
        while self.pipeline.clock.reading().at < self.began + over {
            self.pipeline.clock.sleep(STEP).await;
            self.step().await?;
        }
        Ok(())
    }

    async fn step(&mut self) -> anyhow::Result<()> {
        let Scenario { views, likes, .. } = self.scenario;
        let home = partition_of(POST.as_bytes(), PARTITIONS);
        let now = self.pipeline.clock.reading().at;
        let passed = u64::try_from((now - self.began).as_millis())?;
        while self.viewed < passed * views / 1_000 {
            self.viewed += 1;
            let chosen = self.spread.choose(&self.views, now, self.chance.token());
            let partition = chosen.unwrap_or(home);
            self.said[partition as usize].push(now);
            self.append(partition, br#"{"post_id":"viral","action":"view"}"#)?;
        }
        while self.liked < passed * likes / 1_000 {
            self.liked += 1;
            let like = format!(r#"{{"post_id":"viral","user_id":"u-{}","action":"like"}}"#, self.liked);
            self.append(home, like.as_bytes())?;
        }
        if now >= self.look {
            self.look = now + LOOK;
            let age = self.age().await?;
            self.ages.push(age);
        }
        if now >= self.lags && self.scenario.policy == SumPolicy::LeastLag {
            self.lags = now + LAGS;
            let lags = self.lags().await?;
            self.spread.seen(&lags);
        }
        Ok(())
    }

    fn append(&self, partition: u32, value: &[u8]) -> anyhow::Result<()> {
        let key = Some(POST.as_bytes());
        let record = Outgoing { topic: TOPIC, partition: Some(partition), key, value: Some(value), headers: &[] };
        self.pipeline.broker.append(record, self.pipeline.clock.now()).context("the in-memory log refuses a record")?;
        Ok(())
    }

    /// The age of the oldest view that is not counted. The views of a partition are in one shard, in order.
    async fn age(&self) -> anyhow::Result<Duration> {
        let now = self.pipeline.clock.reading().at;
        let counter = self.pipeline.counter(&self.views).await?;
        let mut oldest = Duration::ZERO;
        for (partition, said) in (0..).zip(&self.said) {
            let shard: Shard = ShardCount::DEFAULT.shard_of_cell(partition);
            let counted = counter.part(shard);
            let next = said.get(usize::try_from(counted).context("a count is negative")?);
            oldest = oldest.max(next.map_or(Duration::ZERO, |at| now.saturating_sub(*at)));
        }
        Ok(oldest)
    }

    /// The lag of each partition.
    async fn lags(&self) -> anyhow::Result<Vec<u64>> {
        let logs = self.pipeline.broker.reader("observer", TOPIC).logs().await?;
        let mut lags = Vec::with_capacity(logs.len());
        for (partition, log) in logs {
            let kept = self.pipeline.claims.read(&partition).await?.kept;
            lags.push(log.end.0.saturating_sub(kept.map_or(0, |kept| kept.safe.0)));
        }
        Ok(lags)
    }
}
