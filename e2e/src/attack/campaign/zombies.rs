//! Consumers and streamers that stand still in the middle of their work while others take over, and then go on as if
//! nothing had happened. Several at once, but never all of a service.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use anyhow::ensure;
use futures_util::future::try_join_all;
use tally_service::{Chance, Stop, Switch};
use tally_testkit::process::Signal;

use super::super::figures::Recoveries;
use super::super::fleet::Slot;
use super::super::recounts::Attempts;
use super::super::schedule::{Nap, naps};
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// The longest that a process is awake between two sleeps.
const AWAKE: u64 = 2_000;

type Waiting = Mutex<VecDeque<Nap>>;

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    stage.engines.storm();
    let naps = naps(&Chance::seeded(stage.seed), extent.rounds);
    let longest = naps.iter().map(|nap| nap.span).max().unwrap_or_default();
    let of = |service| -> Waiting { Mutex::new(naps.iter().copied().filter(|nap| nap.service == service).collect()) };
    let (consumers, streamers) = (of(Service::Consumer), of(Service::Streamer));
    let switch = Switch::default();
    let attack = async {
        let both = tokio::try_join!(
            sleepers(stage, Service::Consumer, &consumers),
            sleepers(stage, Service::Streamer, &streamers),
        );
        switch.request();
        both
    };
    let ((consumers, streamers), attempts) = tokio::try_join!(attack, recounts(stage, switch.stop()))?;
    let mut deeds = Deeds::default();
    deeds.all("sleeping consumer", consumers);
    deeds.all("sleeping streamer", streamers);
    deeds.attempts(attempts);
    deeds.notes.push(format!("longest sleep                {:.0} s", longest.as_secs_f64()));
    Ok(deeds)
}

/// All members of a service but one take what sleeps there are.
async fn sleepers(stage: &Stage, service: Service, waiting: &Waiting) -> anyhow::Result<Recoveries> {
    let members: Vec<_> = stage.fleet.of(service).skip(1).collect();
    let slept = try_join_all(members.into_iter().map(|slot| sleeper(stage, slot, waiting))).await?;
    Ok(slept.into_iter().fold(Recoveries::default(), |mut all, one| {
        all.merge(one);
        all
    }))
}

async fn sleeper(stage: &Stage, slot: &Slot, waiting: &Waiting) -> anyhow::Result<Recoveries> {
    let mut recoveries = Recoveries::default();
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some(nap) = next() {
        stage.clock.sleep(stage.chance.millis(0, AWAKE)).await;
        let process = slot.process();
        process.signal(Signal::STOP)?;
        stage.clock.sleep(nap.span).await;
        ensure!(process.is_stopped() != Some(false), "the {} did not stand still", slot.service);
        process.signal(Signal::CONT)?;
        recoveries.add(stage.caught_up(slot.service).await?);
    }
    Ok(recoveries)
}

/// Recounts, one after the other, for as long as the attack goes on.
async fn recounts(stage: &Stage, over: Stop) -> anyhow::Result<Attempts> {
    let mut attempts = Attempts::default();
    while !over.is_requested() {
        attempts.make(stage).await?;
    }
    Ok(attempts)
}
