//! Rows of sets are put under other homes, as any process may have them.

use std::time::Duration;

use anyhow::ensure;
use tally_adapters::dynamodb::{Connection, Maps};
use tally_core::homes::CounterMap;
use tally_core::ids::{CounterId, CounterKind, ShardCount};
use tally_core::ports::{CounterMaps as _, Outcome};
use tokio::time::timeout;

use super::super::chance::Draws;
use super::super::wire::Wire;
use super::super::world::settings;
use super::Driver;

/// The most shards that a set is given here.
const MOST: u64 = 32;

/// How long a process waits for an answer before it gives a change up.
const PATIENCE: Duration = Duration::from_secs(5);

impl Driver {
    /// Changes the map of a set, with requests that fail, are lost, and come late, and whose sender may stop in between.
    pub(super) async fn spread(&mut self) -> anyhow::Result<bool> {
        if !self.is_deployed().await? {
            return Ok(false);
        }
        let deployment = self.profile.shards;
        let sets: Vec<CounterId> =
            self.profile.counters().filter(|counter| counter.name.kind() == CounterKind::Set).collect();
        let counter = &sets[self.other.place(sets.len())];
        let mut to = self.profile.shards;
        while u64::from(to.get()) < MOST && self.other.happens(60) {
            to = ShardCount::new(u64::from(to.get()) * 2)?;
        }
        let steps = if self.other.happens(20) { self.other.between(0, 2) } else { 3 };
        let wire = Wire::new("spreader", &self.world.emulator, &self.world.trace, &self.world.coverage);
        let maps = Maps::new(&Connection::in_process(&settings(), wire, self.world.clock.now()));
        let before = self.world.calmly(self.world.calm.maps.map(counter)).await?;
        let change = changed(&maps, counter, deployment, to, steps, self.world.clock.now());
        let _ = timeout(PATIENCE, change).await;
        let after = self.world.calmly(self.world.calm.maps.map(counter)).await?;
        if let (Some(before), Some(after)) = (before, after) {
            let kept = before.homes().iter().all(|home| after.homes().contains(home));
            ensure!(kept, "the map of {counter} lost a home: {before:?}, and then {after:?}");
        }
        Ok(before != after)
    }
}

/// The first `steps` of a change: announced, put, announced.
async fn changed(
    maps: &Maps,
    counter: &CounterId,
    deployment: ShardCount,
    to: ShardCount,
    steps: u64,
    now: tally_core::time::UnixMillis,
) -> Outcome<()> {
    let standing = maps.map(counter).await?;
    let map = CounterMap::spread(standing.as_ref(), deployment, to, now);
    if steps > 0 {
        maps.announce().await?;
    }
    if steps > 1 {
        maps.put_map(counter, standing.as_ref(), &map).await?;
    }
    if steps > 2 {
        maps.announce().await?;
    }
    Ok(())
}
