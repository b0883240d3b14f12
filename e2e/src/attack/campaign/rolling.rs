//! A deployment: each process is stopped in order and replaced, one after the other, under load. Only the API's own clients
//! may notice, and only while the one API is away.

use anyhow::ensure;

use super::super::recounts::Attempts;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    for _ in 0..extent.rounds {
        for slot in stage.fleet.slots() {
            stage.fleet.weigh();
            let before = stage.answers.with(503);
            deeds.recovered(format!("{} drained", slot.service), slot.process().stop().await?);
            deeds.recovered(format!("{} ready again", slot.service), stage.fleet.refill(slot)?.ready().await?);
            deeds.recovered(format!("{} caught up", slot.service), stage.caught_up(slot.service).await?);
            let after = stage.answers.with(503);
            let unnoticed = slot.service == Service::Api || after == before;
            let (service, busy) = (slot.service, stage.answers.busy());
            ensure!(unnoticed, "replacing a {service} cost answers: {before} to {after} of 503, such as {busy:?}");
            stage.all_well()?;
        }
    }
    let mut attempts = Attempts::default();
    attempts.make(stage).await?;
    deeds.attempts(attempts);
    Ok(deeds)
}
