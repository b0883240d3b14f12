//! A deployment at the worst time: all processes are stopped at once while a dependency is silent. What cannot be finished
//! is dropped in time, and the processes that follow go on from there.

use anyhow::ensure;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::super::proxy::Mode;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    for _ in 0..extent.rounds {
        for (dependency, proxy) in &stage.engines.proxies {
            let recount = stage.fleet.launcher.start(Service::Recount, &["--watch"])?;
            recount.ready().await?;
            stage.fleet.launcher.operator().change(&["audit", "start"]).await?;
            let before = proxy.bites();
            proxy.set(Mode::Blackhole);
            // For as long as it takes that every service has asked and not been answered.
            stage.clock.sleep(extent.span).await;
            stage.all_well()?;
            stage.fleet.weigh();
            let all = stage.fleet.slots().iter().map(async |slot| anyhow::Ok((slot, slot.process().stop().await?)));
            let (drained, _) = tokio::try_join!(try_join_all(all), recount.stop())?;
            for (slot, took) in drained {
                deeds.recovered(format!("{}, silent {}", slot.service, dependency.name()), took);
                stage.fleet.refill(slot)?;
            }
            let bites = proxy.bites().since(before);
            ensure!(bites.felt(Mode::Blackhole), "no process felt the silence of {}: {bites:?}", dependency.name());
            proxy.calm();
            let began = Instant::now();
            stage.fleet.ready().await?;
            tokio::try_join!(stage.caught_up(Service::Consumer), stage.caught_up(Service::Streamer))?;
            deeds.recovered(format!("all again, silent {}", dependency.name()), began.elapsed());
        }
    }
    Ok(deeds)
}
