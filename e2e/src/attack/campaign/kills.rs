//! Processes that are killed with SIGKILL at moments that have nothing to do with each other: all four services, while
//! requests go wrong now and then, each consumer begins with another number of lanes, and the rows of some set get another
//! home every second.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use tally_core::homes::CounterMap;
use tally_core::ids::{CounterId, CounterKind, ShardCount};
use tally_core::ports::CounterMaps as _;

use super::super::figures::Recoveries;
use super::super::ledger::{all_counters, definitions};
use super::super::recounts::Attempts;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// The longest that a process works between its start and its end.
const LIFE: u64 = 1_500;

/// Killed recounts for each that may run to its end.
const ALIVE: usize = 10;

/// How often homes change, and the shards that a set is given.
const MOVES: Duration = Duration::from_secs(1);
const HOMES: [u64; 4] = [8, 16, 32, 64];

/// The lanes that a consumer may begin with.
const LANES: [&str; 4] = ["1", "2", "4", "8"];

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    stage.engines.storm();
    let moved = Cell::new(0);
    let killed = async {
        tokio::try_join!(
            members(stage, Service::Consumer, extent.rounds),
            members(stage, Service::Streamer, extent.rounds),
            members(stage, Service::Api, extent.rounds),
            killed_recounts(stage, extent.rounds),
        )
    };
    let (consumers, streamers, api, recounts) = tokio::select! {
        killed = killed => killed?,
        Err(error) = homes(stage, &moved) => return Err(error),
    };
    let mut deeds = Deeds::default();
    deeds.all("killed consumer", consumers);
    deeds.all("killed streamer", streamers);
    deeds.all("killed api", api);
    deeds.notes.push(format!("killed recounts              {:>5}", extent.rounds));
    deeds.notes.push(format!("changes of a set's homes     {:>5}", moved.get()));
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
        stage.fleet.launcher.tell("TALLY_LANES", LANES[stage.chance.place(LANES.len())]);
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

/// Puts the rows of one set after the other under other homes. Requests for it go wrong like all others.
async fn homes(stage: &Stage, moved: &Cell<usize>) -> anyhow::Result<Infallible> {
    let maps = &stage.engines.ports().maps;
    let sets: Vec<CounterId> =
        all_counters(stage.crowd, &definitions()).filter(|id| id.name.kind() == CounterKind::Set).collect();
    loop {
        stage.clock.sleep(MOVES).await;
        let set = &sets[stage.chance.place(sets.len())];
        let shards = ShardCount::new(HOMES[stage.chance.place(HOMES.len())])?;
        let change = async {
            let standing = maps.map(set).await?;
            let map = CounterMap::spread(standing.as_ref(), ShardCount::DEFAULT, shards, stage.clock.now());
            maps.announce().await?;
            let put = maps.put_map(set, standing.as_ref(), &map).await?;
            maps.announce().await?;
            Ok::<_, tally_core::fault::Fault>(put)
        };
        match change.await {
            Ok(put) => moved.set(moved.get() + usize::from(put)),
            Err(fault) => tracing::info!(%set, error = %fault, "a change of homes was not answered"),
        }
    }
}
