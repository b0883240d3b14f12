//! What is done to the stream of the rows' table: it loses what was not read, and is switched off and on.

use std::time::Duration;

use tally_core::ports::ChangeStream as _;
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::instance::Role;
use super::super::laws::{Quiet, exact, weights};
use super::super::world::World;
use super::{Deed, Driver, LIKES};
use crate::undisturbed::switch_stream;

/// How long a lapse lasts at most that is to make up for what was put into a counter by hand.
const HIDDEN: Duration = Duration::from_secs(30);

impl Driver {
    /// Trims what there is of the stream shards of which something is fed. The service trims nothing that is younger than a day,
    /// and a loss in a shard of that age of which nothing is fed would be noticed by its age alone.
    pub(super) async fn trim(&mut self) -> anyhow::Result<bool> {
        let World { calm, emulator, .. } = &self.world;
        let info = self.world.calmly(calm.stream.info()).await?;
        let shards = self.world.calmly(calm.changes.shards(&info.label)).await?;
        let mut trimmed = 0;
        for shard in shards.into_iter().filter(|shard| shard.fed.to.is_some()) {
            trimmed += emulator.trim(LIKES, Some(shard.shard.id().as_str()), None).unwrap_or(0);
        }
        Ok(trimmed > 0)
    }

    /// Freezes all streamers; a moment before they go on, what they have not read is trimmed.
    pub(super) fn begin_lapse(&mut self) {
        let lapse = Instant::now() + self.chance.millis(500, 6_000);
        let longest = if self.profile.hidden { HIDDEN } else { Duration::from_millis(self.profile.pace + 1_000) };
        let thaw = lapse + longest;
        self.slots.iter_mut().filter(|slot| slot.role == Role::Streamer).for_each(|slot| slot.freeze((thaw, thaw)));
        if self.profile.oversleep {
            let late = thaw + self.chance.millis(500, 8_000);
            self.slots.iter_mut().filter(|slot| slot.role == Role::Api).for_each(|slot| slot.freeze((late, late)));
        }
        self.lapse = Some(lapse);
    }

    /// Trims what streamers have not read, once that is due; they go on then.
    pub(super) async fn end_lapse(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let Some(lapse) = self.lapse.filter(|lapse| *lapse <= now) else { return Ok(()) };
        if self.profile.hidden && now < lapse + HIDDEN && !self.is_made_up_for().await? {
            return Ok(());
        }
        self.lapse = None;
        if self.trim().await? {
            self.world.coverage.fired(Deed::Lapse.name());
        }
        if self.profile.hidden {
            self.thaw(now);
        }
        Ok(())
    }

    /// Whether every counter has what its rows have, by whatever happened.
    async fn is_made_up_for(&self) -> anyhow::Result<bool> {
        let rows = weights(&self.world.calmly(self.world.rows()).await?);
        let counters = self.world.calmly(self.world.counters(self.profile.counters())).await?;
        Ok(exact(&Quiet { rows: &rows, counters: &counters }).is_ok())
    }

    /// Streamers that stand still go on.
    pub(super) fn thaw(&mut self, at: Instant) {
        for slot in self.slots.iter_mut().filter(|slot| slot.role == Role::Streamer) {
            if let Some(life) = &mut slot.life {
                life.thaws = life.thaws.map(|_| (at, at));
            }
        }
    }

    /// Switches the stream off and on.
    pub(super) async fn switch(&mut self) -> anyhow::Result<bool> {
        anyhow::ensure!(switch_stream(&self.world.emulator, false).await, "the stream could not be switched off");
        // A stream that comes within a second of its table counts as born with it; no store is switched that fast.
        tokio::time::sleep(self.chance.millis(1_100, 4_000)).await;
        anyhow::ensure!(switch_stream(&self.world.emulator, true).await, "the stream could not be switched on");
        Ok(true)
    }
}
