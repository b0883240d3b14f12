//! Processes that are killed with SIGKILL at moments that have nothing to do with each other: all four services, while
//! requests go wrong now and then.

use std::time::Duration;

use super::super::figures::Recoveries;
use super::super::recounts::Attempts;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// The longest that a process works between its start and its end.
const LIFE: u64 = 1_500;

/// Killed recounts for each that may run to its end.
const ALIVE: usize = 10;

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    stage.engines.storm();
    let (consumers, streamers, api, recounts) = tokio::try_join!(
        members(stage, Service::Consumer, extent.rounds),
        members(stage, Service::Streamer, extent.rounds),
        members(stage, Service::Api, extent.rounds),
        killed_recounts(stage, extent.rounds),
    )?;
    let mut deeds = Deeds::default();
    deeds.all("killed consumer", consumers);
    deeds.all("killed streamer", streamers);
    deeds.all("killed api", api);
    deeds.notes.push(format!("killed recounts              {:>5}", extent.rounds));
    deeds.attempts(recounts);
    Ok(deeds)
}

/// Kills members of a service, one after the other. A recovery is over when the service has caught up with what was said
/// before the kill, counted from the start of the new process.
async fn members(stage: &Stage, service: Service, rounds: usize) -> anyhow::Result<Recoveries> {
    let slots: Vec<_> = stage.fleet.of(service).collect();
    let mut recoveries = Recoveries::default();
    for _ in 0..rounds {
        stage.clock.sleep(stage.chance.millis(0, LIFE)).await;
        stage.fleet.weigh();
        let slot = slots[stage.chance.place(slots.len())];
        slot.process().kill().await?;
        stage.fleet.refill(slot)?;
        recoveries.add(stage.caught_up(service).await?);
    }
    Ok(recoveries)
}

/// Kills audits, and lets recounts of one post run to their end now and then.
async fn killed_recounts(stage: &Stage, rounds: usize) -> anyhow::Result<Attempts> {
    let mut attempts = Attempts::default();
    for round in 0..rounds {
        let audit = stage.fleet.launcher.start(Service::Recount, &[])?;
        stage.clock.sleep(Duration::from_millis(50) + stage.chance.millis(0, 2 * LIFE)).await;
        audit.kill().await?;
        if round.is_multiple_of(ALIVE) {
            attempts.make(stage).await?;
        }
    }
    Ok(attempts)
}
