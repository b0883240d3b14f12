//! Schedules in which lanes and homes change every second.

use std::time::Duration;

use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::instance::Role;
use super::super::profile::Profile;
use super::{Deed, Driver};

/// How often they change.
const EVERY: Duration = Duration::from_secs(1);

impl Profile {
    /// Consumers come and go every second, each with a number of lanes of its own, and so do homes; much else happens to consumers.
    pub(crate) fn unsettle(&mut self) {
        self.lanes = true;
        self.pace = self.pace.min(600);
        self.deeds.extend([(Deed::Freeze, 6), (Deed::Rebalance, 6), (Deed::Expire, 6)]);
    }
}

impl Driver {
    /// Once a second a consumer ends, mostly as a crash does, and another takes its place, with a number of lanes of its own;
    /// and the rows of a set are put under other homes.
    pub(super) async fn stir(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if self.stir.take_if(|stir| *stir <= now).is_none() {
            return Ok(());
        }
        self.stir = Some(now + EVERY);
        if self.spread().await? {
            self.world.coverage.fired(Deed::Spread.name());
        }
        let Some(slot) = self.alive(Some(Role::Consumer)) else { return Ok(()) };
        let slot = &mut self.slots[slot];
        if self.other.happens(80) {
            slot.kill().await;
        } else {
            anyhow::ensure!(slot.stop().await, "{} did not stop well", slot.name);
        }
        slot.due = Some(Instant::now());
        self.tick();
        Ok(())
    }
}
