//! A dependency that is away for long: no process dies or grows, readiness names what is missing, and soon after its return
//! all is well.

use std::time::Duration;

use anyhow::{Context, ensure};
use tally_testkit::until;

use super::super::engines::Dependency;
use super::super::proxy::Mode;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    let kinds = [("reset", Mode::Reset), ("blackhole", Mode::Blackhole)];
    for (dependency, proxy) in &stage.engines.proxies {
        for (kind, mode) in kinds {
            let before = proxy.bites();
            proxy.set(mode);
            named(stage, *dependency).await.with_context(|| format!("{} {kind}", dependency.name()))?;
            stage.clock.sleep(extent.span).await;
            let bites = proxy.bites().since(before);
            ensure!(bites.felt(mode), "{} never felt {kind}: {bites:?}", dependency.name());
            proxy.calm();
            stage.all_well()?;
            let (rows, counts) =
                tokio::try_join!(stage.caught_up(Service::Consumer), stage.caught_up(Service::Streamer))?;
            let recovery = rows.max(counts);
            deeds.recovered(format!("{} {kind}", dependency.name()), recovery);
            ensure!(recovery < extent.recovery, "{} {kind}: recovery took {recovery:?}", dependency.name());
        }
    }
    Ok(deeds)
}

/// A process that cannot work without it is not ready, and says why. Every process can work without the cache.
async fn named(stage: &Stage, dependency: Dependency) -> anyhow::Result<()> {
    let (service, name) = match dependency {
        Dependency::Redis => return Ok(()),
        Dependency::DynamoDb => (Service::Api, "table"),
        Dependency::Kafka => (Service::Consumer, "kafka"),
    };
    // A member that has its partitions goes on with them when the broker comes back; one that is new has none.
    let new = (dependency == Dependency::Kafka).then(|| stage.fleet.launcher.start(service, &[])).transpose()?;
    let says = async || {
        let answer = match &new {
            Some(new) => new.get("/readyz").await,
            None => stage.fleet.api().get("/readyz").await,
        };
        answer.is_some_and(|answer| answer.status == 503 && answer.body.contains(name))
    };
    until("readiness to name what is away", Duration::from_secs(60), says).await?;
    if let Some(new) = new {
        new.stop().await?;
    }
    Ok(())
}
