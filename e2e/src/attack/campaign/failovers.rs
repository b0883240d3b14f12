//! Redis fails over: its primary is killed under load, and a replica takes its place that lacks the last commands. What the
//! cache says of a count may be older then, and never newer than the standing beside it says.

use std::time::Duration;

use anyhow::Context;
use tally_core::cached::Cache as _;
use tally_testkit::until;
use tokio::time::Instant;

use super::super::redis;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// The longest that a replica follows its primary, and that the primary goes on without it before it is killed.
const FOLLOWS: u64 = 1_500;
const ALONE: u64 = 1_000;

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    for round in 0..extent.rounds {
        let took = failover(stage, extent.recovery).await.with_context(|| format!("round {round}"))?;
        deeds.recovered("cached again", took);
        stage.all_well()?;
    }
    deeds.notes.push(format!("failovers of Redis           {:>5}", extent.rounds));
    Ok(deeds)
}

/// One failover; how long it took until the cache said again of every partition what is true now.
async fn failover(stage: &Stage, patience: Duration) -> anyhow::Result<Duration> {
    let engines = &stage.engines;
    let primary =
        engines.redis().context("failovers need a redis-server: install one, or name it by TALLY_REDIS_SERVER")?;
    let replica = redis::replica(&primary).await?;
    stage.clock.sleep(stage.chance.millis(0, FOLLOWS)).await;
    // From here on what the primary is told is lost with it.
    redis::detach(&replica).await?;
    stage.clock.sleep(stage.chance.millis(50, ALONE)).await;
    engines.fail_over(primary, replica).await?;
    let (began, since) = (Instant::now(), stage.clock.now());
    let taken_over = engines.redis().context("the replica took over")?;
    let cache = redis::cache(&taken_over, &engines.ports().prefix)?;
    let partitions = engines.ports().log.config().await?.context("there is no log of changes")?.partitions;
    until("the cache to say what is true now", patience, async || {
        for partition in 0..partitions {
            let Ok(got) = cache.get(partition, &[]).await else { return false };
            if got.stated.and_then(|stated| stated.standing.as_of) < Some(since) {
                return false;
            }
        }
        true
    })
    .await?;
    Ok(began.elapsed())
}
