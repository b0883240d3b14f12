//! The attacks `losses` and `failovers`: changes disappear from the table's stream before they are counted, or Redis
//! loses its last commands as a replica takes over. Readers query the API all the time, and an answer that it calls
//! exact has to be right nevertheless.
//!
//! A part of the stream is trimmed before streamers have read it, or written while the stream is off. In every other
//! round the API is stopped meanwhile and its requests to DynamoDB take seconds, so that it answers with old knowledge
//! of losses.

use std::time::Duration;

use anyhow::{Context, ensure};
use tally_core::cached::Cache as _;
use tally_testkit::process::Signal;
use tally_testkit::until;
use tokio::time::Instant;

use crate::attack::campaign::Extent;
use crate::attack::fleet::Service;
use crate::attack::proxy::Mode;
use crate::attack::stage::Stage;
use crate::attack::{engines, laws};
use crate::simulation::Draws;
use crate::tables::{self, switch_stream};

/// The shortest and the longest time in milliseconds for which the API is stopped.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 30_000;

/// Delays a request of the API to the store, and its answer, in such rounds.
const SLOW: Mode = Mode::Slow { delay: Duration::from_millis(1_250), bytes_per_second: 1 << 30 };

/// The number of lost changes, so that a count without them is wrong.
const LOST: u64 = 40;

/// The number of exact answers before the next loss.
const EXACT: u64 = 200;

/// How long it may take to notice a loss: streamers look for a new stream from time to time.
const NOTICED: Duration = Duration::from_secs(120);

pub(super) async fn losses(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    let (mut stopped, mut longest) = (0, Duration::ZERO);
    for round in 0..extent.rounds {
        let trimmed = matches!(round % 4, 0 | 3);
        let nap = (round % 2 == 1).then(|| stage.chance.millis(SHORTEST, LONGEST));
        let kind = if trimmed { "trim" } else { "stream off and on" };
        let taken = loss(stage, trimmed, nap).await.with_context(|| format!("round {round}, {kind}, nap {nap:?}"))?;
        stage.report.recovered(format!("exact again after {kind}"), taken);
        stopped += usize::from(nap.is_some());
        longest = longest.max(nap.unwrap_or_default());
    }
    let (report, longest) = (&stage.report, longest.as_secs_f64());
    report.count("losses of stream", extent.rounds);
    report.note(format!("losses with the api stopped  {stopped:>5}, for {longest:.0} s at most, and its store slow"));
    Ok(())
}

/// Causes a loss, waits until a recount has repaired it and the API says exact again, and returns how long that took.
async fn loss(stage: &Stage, trimmed: bool, nap: Option<Duration>) -> anyhow::Result<Duration> {
    let api = stage.fleet.api();
    if nap.is_some() {
        stage.engines.api_tables.set(SLOW);
    }
    let napping = async {
        let Some(nap) = nap else { return Ok(()) };
        // The API is stopped before or after the loss is recorded.
        stage.clock.sleep(stage.chance.millis(0, 12_000)).await;
        api.nap(nap).await
    };
    let losing = async {
        match trimmed {
            true => trim(stage).await?,
            false => switch(stage).await?,
        }
        let noticed = async || stage.engines.open_losses().await.is_ok_and(|losses| losses > 0);
        until("the loss to be recorded", NOTICED, noticed).await?;
        stage.caught_up(Service::Streamer).await
    };
    tokio::try_join!(losing, napping)?;
    stage.engines.api_tables.calm();
    let began = Instant::now();
    laws::repair(&stage.fleet.launcher).await?;
    let losses = stage.engines.open_losses().await?;
    ensure!(losses == 0, "{losses} losses are open after a recount");
    stage.exact_again(EXACT).await?;
    stage.all_well()?;
    Ok(began.elapsed())
}

/// Trims the records that were written while the streamers were stopped.
async fn trim(stage: &Stage) -> anyhow::Result<()> {
    let streamers: Vec<_> = stage.fleet.of(Service::Streamer).map(|slot| slot.process()).collect();
    streamers.iter().try_for_each(|streamer| streamer.signal(Signal::STOP))?;
    stage.changed(LOST).await?;
    let trimmed = tables::trim(&stage.engines.tables(), &stage.engines.emulator).await?;
    ensure!(trimmed > 0, "no record was trimmed");
    streamers.iter().try_for_each(|streamer| streamer.signal(Signal::CONT))
}

/// Switches the stream off while rows change, and on again.
async fn switch(stage: &Stage) -> anyhow::Result<()> {
    switch_stream(&stage.engines.emulator, false).await?;
    stage.changed(LOST).await?;
    switch_stream(&stage.engines.emulator, true).await
}

/// The longest time in milliseconds for which a replica follows its primary, and for which the primary then runs alone.
const FOLLOWS: u64 = 1_500;
const ALONE: u64 = 1_000;

pub(super) async fn failovers(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    for round in 0..extent.rounds {
        let took = failover(stage, extent.recovery).await.with_context(|| format!("round {round}"))?;
        stage.report.recovered("cached again", took);
        stage.all_well()?;
    }
    stage.report.count("failovers of Redis", extent.rounds);
    Ok(())
}

/// Causes a failover, and returns how long it took until the cache was correct again in every partition.
async fn failover(stage: &Stage, patience: Duration) -> anyhow::Result<Duration> {
    let engines = &stage.engines;
    let primary = engines.redis().context("failovers need a redis-server: install it, or set TALLY_REDIS_SERVER")?;
    let replica = engines::replica(&primary).await?;
    stage.clock.sleep(stage.chance.millis(0, FOLLOWS)).await;
    // From here on, everything that the primary is told is lost with it.
    let answer = replica.ask("REPLICAOF NO ONE").await?;
    ensure!(answer.starts_with("+OK"), "Redis answered {answer:?}");
    stage.clock.sleep(stage.chance.millis(50, ALONE)).await;
    engines.fail_over(primary, replica).await?;
    let since = stage.clock.now();
    let cache = engines.cache()?.context("the replica took over")?;
    let partitions = engines.tables().changes.config().await?.context("there is no log of changes")?.partitions;
    until("the cache to say what is true now", patience, async || {
        for partition in 0..partitions {
            let Ok(got) = cache.get(partition, &[]).await else { return false };
            if got.stated.and_then(|stated| stated.standing.as_of) < Some(since) {
                return false;
            }
        }
        true
    })
    .await
}
