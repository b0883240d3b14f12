//! Processes that are killed, stopped and replaced: kill -9 of all four services at independent moments while requests fail;
//! consumers and streamers that sleep while others take over; and a rolling deployment.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tally_service::{Chance, Stop, Switch};

use crate::attack::campaign::{Actions, Extent, Recoveries};
use crate::attack::fleet::{Service, Slot};
use crate::attack::laws;
use crate::attack::stage::Stage;
use crate::simulation::Draws;

/// Stops a process for a while, which it cannot notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nap {
    pub(crate) service: Service,
    pub(crate) span: Duration,
}

/// The limits in milliseconds of the sleep of a consumer or streamer.
const SHORTEST: u64 = 5_000;
const LONGEST: u64 = 120_000;

/// Draws sleeps of consumers and streamers in turn. Most are short, and a few are so long that the sleeper loses its
/// partitions.
pub(crate) fn naps(chance: &Chance, count: usize) -> Vec<Nap> {
    let span = || match chance.below(100) {
        0..80 => chance.millis(SHORTEST, 12_000),
        80..96 => chance.millis(12_000, 30_000),
        _ => chance.millis(30_000, LONGEST),
    };
    let services = [Service::Consumer, Service::Streamer].into_iter().cycle();
    services.take(count).map(|service| Nap { service, span: span() }).collect()
}

/// The longest time in milliseconds that a process runs before it is killed.
const LIFE: u64 = 1_500;

/// The number of killed recounts for each one that may finish.
const ALIVE: usize = 10;

pub(super) async fn kills(stage: &Stage, extent: Extent) -> anyhow::Result<Actions> {
    stage.engines.storm();
    let (consumers, streamers, api, recounts) = tokio::try_join!(
        members(stage, Service::Consumer, extent.rounds),
        members(stage, Service::Streamer, extent.rounds),
        members(stage, Service::Api, extent.rounds),
        killed_recounts(stage, extent.rounds),
    )?;
    let mut actions = Actions::default();
    actions.all("killed consumer", consumers);
    actions.all("killed streamer", streamers);
    actions.all("killed api", api);
    actions.notes.push(format!("killed recounts              {:>5}", extent.rounds));
    actions.attempts(recounts);
    Ok(actions)
}

/// Kills members of a service, one after the other. A recovery lasts from the start of the new process until the service has
/// processed everything produced before the kill.
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

/// Kills audits, and now and then lets a recount of one post finish.
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

/// The longest time in milliseconds between two sleeps of a process.
const AWAKE: u64 = 2_000;

type Waiting = Mutex<VecDeque<Nap>>;

pub(super) async fn zombies(stage: &Stage, extent: Extent) -> anyhow::Result<Actions> {
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
    let mut actions = Actions::default();
    actions.all("sleeping consumer", consumers);
    actions.all("sleeping streamer", streamers);
    actions.attempts(attempts);
    actions.notes.push(format!("longest sleep                {:.0} s", longest.as_secs_f64()));
    Ok(actions)
}

/// All members of a service but one take the next sleep until none is left.
async fn sleepers(stage: &Stage, service: Service, waiting: &Waiting) -> anyhow::Result<Recoveries> {
    let members: Vec<_> = stage.fleet.of(service).skip(1).collect();
    let slept = try_join_all(members.into_iter().map(|slot| sleeper(stage, slot, waiting))).await?;
    let mut all = Recoveries::default();
    slept.into_iter().for_each(|one| all.merge(one));
    Ok(all)
}

async fn sleeper(stage: &Stage, slot: &Slot, waiting: &Waiting) -> anyhow::Result<Recoveries> {
    let mut recoveries = Recoveries::default();
    let next = || waiting.lock().pop_front();
    while let Some(nap) = next() {
        stage.clock.sleep(stage.chance.millis(0, AWAKE)).await;
        slot.process().nap(nap.span).await?;
        recoveries.add(stage.caught_up(slot.service).await?);
    }
    Ok(recoveries)
}

/// Recounts under attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) done: Recoveries,
    pub(crate) unfinished: usize,
}

impl Attempts {
    /// Runs another one, of a randomly chosen post.
    pub(crate) async fn make(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let post = format!("p-{}", stage.chance.below(stage.crowd.posts));
        match laws::attempt(&stage.fleet.launcher, &post).await? {
            Some(found) => self.done.add(found.took),
            None => self.unfinished += 1,
        }
        Ok(())
    }
}

/// Runs recounts, one after the other, as long as the attack lasts.
async fn recounts(stage: &Stage, over: Stop) -> anyhow::Result<Attempts> {
    let mut attempts = Attempts::default();
    while !over.is_requested() {
        attempts.make(stage).await?;
    }
    Ok(attempts)
}

pub(super) async fn rolling(stage: &Stage, extent: Extent) -> anyhow::Result<Actions> {
    let mut actions = Actions::default();
    for _ in 0..extent.rounds {
        for slot in &stage.fleet.slots {
            stage.fleet.weigh();
            let before = stage.answers.with(503);
            actions.recovered(format!("{} drained", slot.service), slot.process().stop().await?);
            actions.recovered(format!("{} ready again", slot.service), stage.fleet.refill(slot)?.ready().await?);
            actions.recovered(format!("{} caught up", slot.service), stage.caught_up(slot.service).await?);
            let after = stage.answers.with(503);
            let unnoticed = slot.service == Service::Api || after == before;
            let (service, busy) = (slot.service, stage.answers.busy());
            ensure!(
                unnoticed,
                "replacing a {service} caused answers with 503: {before} before, {after} after, such as {busy:?}"
            );
            stage.all_well()?;
        }
    }
    let mut attempts = Attempts::default();
    attempts.make(stage).await?;
    actions.attempts(attempts);
    Ok(actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_follow_from_the_seed_and_include_short_and_long_ones_of_both_services() {
        let naps = |seed| crate::attack::campaign::processes::naps(&Chance::seeded(seed), 200);
        assert_eq!(naps(7), naps(7));
        assert_ne!(naps(7), naps(8));
        let spans = || naps(7).into_iter().map(|nap| nap.span.as_secs());
        assert!(spans().all(|span| (5..=120).contains(&span)));
        assert!(spans().any(|span| span > 60) && spans().filter(|span| *span < 12).count() > 120);
        assert_eq!(naps(7).iter().filter(|nap| nap.service == Service::Consumer).count(), 100);
    }
}
