//! Schedules in which partitions have no owner for long.

use std::time::Duration;

use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::instance::Role;
use super::super::profile::Profile;
use super::{Deed, Driver};

/// How often something is done to an owner.
const EVERY: Duration = Duration::from_secs(1);

impl Profile {
    /// Owners come and go every second, and much else happens to consumers.
    pub(crate) fn unsettle(&mut self) {
        self.pace = self.pace.min(600);
        self.deeds.extend([(Deed::Freeze, 6), (Deed::Rebalance, 6), (Deed::Expire, 6)]);
    }
}

impl Driver {
    /// Once a second a claim is raised, a consumer ends, mostly as a crash does, and another takes its place, or the group is set
    /// back.
    pub(super) async fn stir(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        if self.stir.take_if(|stir| *stir <= now).is_none() {
            return Ok(());
        }
        self.stir = Some(now + EVERY);
        let (deed, done) = match self.other.below(10) {
            0 => (Deed::ResetGroup, self.reset_group().await?),
            1..4 => (Deed::Raise, self.raise().await?),
            _ => {
                self.replace_consumer().await?;
                return Ok(());
            }
        };
        if done {
            self.world.coverage.fired(deed.name());
        }
        self.tick();
        Ok(())
    }

    async fn replace_consumer(&mut self) -> anyhow::Result<()> {
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
