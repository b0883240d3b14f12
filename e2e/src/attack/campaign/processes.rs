//! The attacks `kills`, `zombies` and `rolling`, which are about processes: kill -9 of all four services at independent
//! moments while requests fail; consumers and streamers that are stopped while others take over, and then resume; and a
//! rolling deployment.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tally_service::{Chance, Switch};

use crate::attack::campaign::Extent;
use crate::attack::fleet::{Service, Slot};
use crate::attack::laws;
use crate::attack::stage::Stage;
use crate::simulation::Draws;

/// The limits in milliseconds of the sleep of a consumer or streamer, which it cannot notice.
const SHORTEST: u64 = 5_000;
const LONGEST: u64 = 120_000;

/// Draws how long a process sleeps. Most sleeps are short, and a few are so long that the sleeper loses its partitions.
fn nap(chance: &Chance) -> Duration {
    match chance.below(100) {
        0..80 => chance.millis(SHORTEST, 12_000),
        80..96 => chance.millis(12_000, 30_000),
        _ => chance.millis(30_000, LONGEST),
    }
}

/// The longest time in milliseconds that a process runs before it is killed.
const LIFE: u64 = 1_500;

/// The number of killed recounts for each one that may finish.
const ALIVE: usize = 10;

pub(super) async fn kills(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    stage.engines.storm();
    tokio::try_join!(
        kill_members(stage, Service::Consumer, extent.rounds),
        kill_members(stage, Service::Streamer, extent.rounds),
        kill_members(stage, Service::Api, extent.rounds),
        kill_recounts(stage, extent.rounds),
    )?;
    Ok(())
}

/// Kills members of a service, one after the other. A recovery lasts from the start of the new process until the service has
/// processed everything produced before the kill.
async fn kill_members(stage: &Stage, service: Service, rounds: usize) -> anyhow::Result<()> {
    let slots: Vec<_> = stage.fleet.of(service).collect();
    for _ in 0..rounds {
        stage.clock.sleep(stage.chance.millis(0, LIFE)).await;
        stage.fleet.weigh();
        let slot = slots[stage.chance.place(slots.len())];
        slot.process().kill().await?;
        stage.fleet.refill(slot)?;
        stage.report.recovered(format!("killed {service}"), stage.caught_up(service).await?);
    }
    Ok(())
}

/// Kills audits, and now and then lets a recount of one post finish.
async fn kill_recounts(stage: &Stage, rounds: usize) -> anyhow::Result<()> {
    for round in 0..rounds {
        let audit = stage.fleet.launcher.start(Service::Recount, &[])?;
        stage.clock.sleep(Duration::from_millis(50) + stage.chance.millis(0, 2 * LIFE)).await;
        audit.kill().await?;
        stage.report.count("killed recounts", 1);
        if round.is_multiple_of(ALIVE) {
            recount(stage).await?;
        }
    }
    Ok(())
}

/// Recounts a randomly chosen post under attack.
async fn recount(stage: &Stage) -> anyhow::Result<()> {
    let post = format!("p-{}", stage.chance.below(stage.crowd.posts));
    let found = laws::attempt(&stage.fleet.launcher, &post).await?;
    stage.report.count("unfinished recounts", usize::from(found.is_none()));
    if let Some(found) = found {
        stage.report.recovered("recount under attack", found.took);
    }
    Ok(())
}

/// The longest time in milliseconds between two sleeps of a process.
const AWAKE: u64 = 2_000;

/// The sleeps that the members of a service take one after the other.
type Waiting = Mutex<VecDeque<Duration>>;

pub(super) async fn zombies(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    stage.engines.storm();
    let chance = Chance::seeded(stage.seed);
    let naps: Vec<Duration> = (0..extent.rounds).map(|_| nap(&chance)).collect();
    let longest = naps.iter().max().copied().unwrap_or_default();
    let every_other = |first| -> Waiting { Mutex::new(naps.iter().skip(first).step_by(2).copied().collect()) };
    let (consumers, streamers) = (every_other(0), every_other(1));
    let over = Switch::default();
    let attack = async {
        let asleep = tokio::try_join!(
            sleepers(stage, Service::Consumer, &consumers),
            sleepers(stage, Service::Streamer, &streamers),
        );
        over.request();
        asleep
    };
    let recounts = async {
        while !over.stop().is_requested() {
            recount(stage).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(attack, recounts)?;
    stage.report.note(format!("longest sleep                {:.0} s", longest.as_secs_f64()));
    Ok(())
}

/// All members of a service but one take the next sleep until none is left.
async fn sleepers(stage: &Stage, service: Service, waiting: &Waiting) -> anyhow::Result<()> {
    try_join_all(stage.fleet.of(service).skip(1).map(|slot| sleeper(stage, slot, waiting))).await.map(drop)
}

async fn sleeper(stage: &Stage, slot: &Slot, waiting: &Waiting) -> anyhow::Result<()> {
    let next = || waiting.lock().pop_front();
    while let Some(nap) = next() {
        stage.clock.sleep(stage.chance.millis(0, AWAKE)).await;
        slot.process().nap(nap).await?;
        stage.report.recovered(format!("sleeping {}", slot.service), stage.caught_up(slot.service).await?);
    }
    Ok(())
}

pub(super) async fn rolling(stage: &Stage, extent: Extent) -> anyhow::Result<()> {
    for _ in 0..extent.rounds {
        for slot in &stage.fleet.slots {
            stage.fleet.weigh();
            let (service, before) = (slot.service, stage.answers.busy().0);
            stage.report.recovered(format!("{service} drained"), slot.process().stop().await?);
            stage.report.recovered(format!("{service} ready again"), stage.fleet.refill(slot)?.ready().await?);
            stage.report.recovered(format!("{service} caught up"), stage.caught_up(service).await?);
            let (after, busy) = stage.answers.busy();
            ensure!(
                service == Service::Api || after == before,
                "replacing a {service} caused answers with 503: {before} before, {after} after, such as {busy:?}"
            );
            stage.all_well()?;
        }
    }
    recount(stage).await
}
