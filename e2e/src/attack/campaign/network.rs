//! The attacks `network`, `outages` and `departures`: connections to Kafka, DynamoDB or Redis are reset, slow, cut or
//! silent; one of the three is away for long; or it is silent while all processes are stopped gracefully. Afterwards
//! the pipeline has to catch up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use tally_testkit::until;
use tokio::time::Instant;

use crate::attack::campaign::Extent;
use crate::attack::engines::Dependency;
use crate::attack::fleet::Service;
use crate::attack::proxy::{Mode, Proxy};
use crate::attack::stage::Stage;
use crate::simulation::Draws;

/// How often the length of connections is changed.
const MOVED: Duration = Duration::from_millis(500);

/// The greatest number of bytes after which a connection is cut: a few requests of each protocol.
const CUT: u64 = 20_000;

pub(super) async fn network(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    for _ in 0..extent.rounds {
        for (dependency, proxy) in &stage.engines.proxies {
            for kind in ["reset", "blackhole", "slow", "cut"] {
                let cause = format!("{} {kind}", dependency.name());
                fault(stage, proxy, kind, extent.span).await.with_context(|| cause.clone())?;
                stage.all_well()?;
                stage.report.recovered(cause, caught_up(stage).await?);
            }
        }
    }
    Ok(())
}

pub(super) async fn outages(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    for (dependency, proxy) in &stage.engines.proxies {
        for kind in ["reset", "blackhole"] {
            let cause = format!("{} {kind}", dependency.name());
            proxy.set(drawn(stage, kind));
            named(stage, *dependency).await.with_context(|| cause.clone())?;
            fault(stage, proxy, kind, extent.span).await.with_context(|| cause.clone())?;
            stage.all_well()?;
            let recovery = caught_up(stage).await?;
            ensure!(recovery < extent.recovery, "{cause}: recovery took {recovery:?}");
            stage.report.recovered(cause, recovery);
        }
    }
    Ok(())
}

/// Waits until both logs have caught up, side by side.
async fn caught_up(stage: &Stage) -> anyhow::Result<Duration> {
    let (rows, counts) = tokio::try_join!(stage.caught_up(Service::Consumer), stage.caught_up(Service::Streamer))?;
    Ok(rows.max(counts))
}

/// Applies one network fault for a while.
async fn fault(stage: &Stage, proxy: &Proxy, kind: &str, span: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + span;
    while Instant::now() < end {
        let mode = drawn(stage, kind);
        proxy.set(mode);
        let pause = if matches!(mode, Mode::Cut { .. }) { MOVED } else { span };
        stage.clock.sleep(pause.min(end.duration_since(Instant::now()))).await;
    }
    // Idle connections notice nothing, so there may have to be a request first. Kafka is never idle, since every member of a
    // group sends heartbeats: a black hole of the Kafka in this process does not exceed its longest outage here.
    until("the fault to have an effect", Duration::from_secs(20), async || proxy.is_felt()).await?;
    proxy.calm();
    Ok(())
}

fn drawn(stage: &Stage, kind: &str) -> Mode {
    match kind {
        "reset" => Mode::Reset,
        "blackhole" => Mode::Blackhole,
        "slow" => {
            Mode::Slow { delay: stage.chance.millis(5, 50), bytes_per_second: stage.chance.between(20_000, 60_000) }
        }
        _ => Mode::Cut { after: stage.chance.below(CUT) },
    }
}

/// A process that cannot work without the dependency is not ready and names it. Every process can work without the cache.
async fn named(stage: &Stage, dependency: Dependency) -> anyhow::Result<()> {
    let (service, name) = match dependency {
        Dependency::Redis => return Ok(()),
        Dependency::DynamoDb => (Service::Api, "table"),
        Dependency::Kafka => (Service::Consumer, "kafka"),
    };
    // A member keeps its partitions until the broker comes back; a new member has none.
    let is_new = service == Service::Consumer;
    let process = if is_new { Arc::new(stage.fleet.launcher.start(service, &[])?) } else { stage.fleet.api() };
    let says = async || {
        let answer = process.get("/readyz").await;
        answer.is_some_and(|answer| answer.status == 503 && answer.body.contains(name))
    };
    until("readiness to name what is away", Duration::from_secs(60), says).await?;
    if is_new {
        process.stop().await?;
    }
    Ok(())
}

pub(super) async fn departures(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    for _ in 0..extent.rounds {
        for (dependency, proxy) in &stage.engines.proxies {
            let recount = stage.fleet.launcher.start(Service::Recount, &["--watch"])?;
            recount.ready().await?;
            stage.fleet.launcher.change(&["audit", "start"]).await?;
            let cause = format!("silent {}", dependency.name());
            proxy.set(Mode::Blackhole);
            // This is long enough for every service to have sent a request without an answer.
            stage.clock.sleep(extent.span).await;
            stage.all_well()?;
            stage.fleet.weigh();
            let all = stage.fleet.slots.iter().map(async |slot| anyhow::Ok((slot, slot.process().stop().await?)));
            let (drained, _) = tokio::try_join!(try_join_all(all), recount.stop())?;
            for (slot, took) in drained {
                stage.report.recovered(format!("{}, {cause}", slot.service), took);
                stage.fleet.refill(slot)?;
            }
            ensure!(proxy.is_felt(), "{cause}: it had no effect");
            proxy.calm();
            let began = Instant::now();
            stage.fleet.ready().await?;
            caught_up(stage).await?;
            stage.report.recovered(format!("all again, {cause}"), began.elapsed());
        }
    }
    Ok(())
}
