//! Disturbs what lies between rows and counts in the simulation: trims the table's stream or switches it off, loses
//! messages of the topic `changes` or makes it unavailable, fails the cache over to an old replica, and starts or kills
//! the processes that list what is trending.

use std::collections::BTreeMap;
use std::time::Duration;

use tally_change_streamer as streamer;
use tally_core::cached::Slot as CacheSlot;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::TopicReader as _;
use tally_core::topic::{Log, Offset, Partition};
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::driver::Driver;
use crate::simulation::faults::Action;
use crate::simulation::instance::{Role, Slot};
use crate::simulation::journal::CHANGES;
use crate::simulation::laws::{Quiet, exact, weights};
use crate::simulation::lists::GROUP;
use crate::simulation::world::World;
use crate::tables::{switch_stream, trim};

/// How long the log is unavailable.
const AWAY: Duration = Duration::from_secs(10 * 60 + 30);

/// The maximum number of processes that make lists.
const MOST: usize = 3;

/// The most messages that are lost at the end of a partition.
const LOST: u64 = 12;

/// How long stopped folds go on reading.
const READING: Duration = Duration::from_millis(1_500);

/// How long folds are stopped at most.
const STILL: Duration = Duration::from_secs(30);

/// The longest loss that is meant to cancel an edit by hand.
const HIDDEN: Duration = Duration::from_secs(30);

/// Folds that are stopped until the log has lost messages that they have not read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    /// When the next step is due.
    due: Instant,
    /// The positions of the folds once they have stopped reading.
    read: Option<BTreeMap<u32, Offset>>,
}

/// Earlier contents of the cache, by partition.
pub(crate) type Replica = Vec<CacheSlot<CounterId>>;

impl Driver {
    pub(super) async fn change_listers(&mut self) -> bool {
        let Some(chance) = self.profile.listing.as_ref().map(|listing| listing.chance.clone()) else { return false };
        let listers = self.places(Role::Trends);
        let slot = listers[chance.place(listers.len())];
        match chance.below(3) {
            0 if listers.len() < MOST => self.slots.push(Slot::new(Role::Trends, listers.len() as u64 + 1)),
            1 if self.slots[slot].life.is_some() => {
                self.slots[slot].kill().await;
                self.slots[slot].due = Some(Instant::now() + chance.millis(0, self.profile.pace * 5));
            }
            _ => self.world.broker.expire(GROUP),
        }
        true
    }

    /// Partitions lose messages: the last acknowledged ones that a new leader lacks after an unclean election, or all of their
    /// beginning.
    pub(super) async fn lose_changes(&mut self, at_end: bool) -> anyhow::Result<bool> {
        self.keep().await?;
        let mut lost = false;
        for (partition, log) in self.logs().await {
            if log.end <= log.start || !self.other.happens(60) {
                continue;
            }
            if at_end {
                let end = log.end.0.saturating_sub(self.other.between(1, LOST)).max(log.start.0);
                self.world.broker.lose_tail(CHANGES, partition.index, end);
            } else {
                self.world.broker.trim(CHANGES, partition.index, self.other.between(log.start.0 + 1, log.end.0));
            }
            self.world.journal.tear(partition.index);
            lost = true;
        }
        Ok(lost)
    }

    async fn logs(&self) -> Vec<(Partition, Log)> {
        self.world.broker.reader("observer", CHANGES).logs().await.unwrap_or_default()
    }

    /// Stops the folds, if relays are separate processes.
    pub(super) fn begin_unread(&mut self) {
        if !self.profile.apart || self.unread.is_some() {
            return;
        }
        let (now, profile) = (Instant::now(), &self.profile);
        let folds = self.slots.iter_mut().filter(|slot| slot.part(profile) == streamer::Role::Fold);
        folds.filter(|slot| slot.role == Role::Streamer).for_each(|slot| slot.freeze((now + STILL, now + STILL)));
        self.unread = Some(Unread { due: now + READING, read: None });
    }

    /// Loses messages at the end of the log that no fold has read, in half of the cases while another relay takes over. Then
    /// the folds resume.
    pub(super) async fn lose_unread(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let Some(Unread { read, .. }) = self.unread.take_if(|unread| unread.due <= now) else { return Ok(()) };
        self.keep().await?;
        let Some(read) = read else {
            let read = self.logs().await.into_iter().map(|(partition, log)| (partition.index, log.end)).collect();
            self.unread = Some(Unread { due: now + self.other.millis(500, 4_000), read: Some(read) });
            return Ok(());
        };
        if self.other.happens(50) {
            let profile = &self.profile;
            let relays = self.slots.iter_mut().filter(|slot| slot.part(profile) == streamer::Role::Relay);
            for slot in relays.filter(|slot| slot.role == Role::Streamer && slot.life.is_some()) {
                slot.stop(now).await?;
            }
            self.keep().await?;
        }
        for (partition, log) in self.logs().await {
            let read = read.get(&partition.index).copied().unwrap_or(log.end);
            if log.end > read {
                self.world.broker.lose_tail(CHANGES, partition.index, self.other.between(read.0, log.end.0 - 1));
                self.world.journal.tear(partition.index);
                self.world.coverage.fired(&Action::ChangesLostUnread.name());
            }
        }
        self.thaw(now);
        self.tick();
        Ok(())
    }

    /// Copies the cache to a replica, which may take over later.
    pub(crate) fn replicate(&mut self) {
        if self.replica.is_empty() || self.other.happens(30) {
            let partitions = 0..self.world.journal.partitions;
            self.replica = partitions.map(|partition| self.world.cache.snapshot(partition)).collect();
        }
    }

    /// A replica of the cache takes over. It lacks the last writes, or everything.
    pub(super) fn fail_over(&mut self) {
        let forgets_all = self.other.happens(30);
        let replica = std::mem::take(&mut self.replica);
        for (partition, slot) in (0..).zip(replica) {
            let slot = if forgets_all { CacheSlot::default() } else { slot };
            self.world.cache.restore(partition, slot);
        }
    }

    /// Makes the log unavailable for many minutes.
    pub(super) async fn take_changes_away(&mut self) -> anyhow::Result<bool> {
        let refused = Fault::Transient("refused".to_owned());
        self.world.broker.refuse_writes(CHANGES, Some(refused));
        let back = Instant::now() + AWAY;
        while Instant::now() < back {
            tokio::time::sleep(Duration::from_secs(20)).await;
            self.tick();
        }
        self.keep().await?;
        self.world.broker.refuse_writes(CHANGES, None);
        Ok(true)
    }

    /// Trims the stream, and returns whether that removed records.
    pub(super) async fn trim(&mut self) -> anyhow::Result<bool> {
        let World { calm, emulator, .. } = &*self.world;
        Ok(self.world.calmly(trim(calm, emulator)).await? > 0)
    }

    /// Freezes all streamers. Shortly before they resume, the records that they have not read are trimmed. A mutant has to see a
    /// loss that repairs an edit before it is caused.
    pub(super) fn begin_lapse(&mut self) {
        let is_seen = self.mutant.is_none() || self.world.corrections.is_any();
        if self.profile.hidden && (self.lapse.is_some() || !is_seen) {
            return;
        }
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

    /// Trims the records that streamers have not read once that is due; then they resume.
    pub(super) async fn end_lapse(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let Some(lapse) = self.lapse.filter(|lapse| *lapse <= now) else { return Ok(()) };
        if self.profile.hidden && now < lapse + HIDDEN && !self.is_made_up_for().await? {
            return Ok(());
        }
        self.lapse = None;
        if self.trim().await? {
            self.world.coverage.fired(&Action::TrimUnread.name());
        }
        if self.profile.hidden {
            self.thaw(now);
        }
        Ok(())
    }

    /// Whether every counter equals its rows, for whatever reason.
    async fn is_made_up_for(&self) -> anyhow::Result<bool> {
        let rows = weights(&self.world.rows().await?);
        let counters = self.world.counters(self.profile.counters()).await?;
        Ok(exact(&Quiet { rows: &rows, counters: &counters }).is_ok())
    }

    /// Resumes frozen streamers.
    pub(super) fn thaw(&mut self, at: Instant) {
        self.slots.iter_mut().filter(|slot| slot.role == Role::Streamer).for_each(|slot| slot.resume(at));
    }

    /// Switches the stream off and on again.
    pub(super) async fn switch(&mut self) -> anyhow::Result<bool> {
        switch_stream(&self.world.emulator, false).await?;
        // A stream enabled within a second of its table counts as being as old as it; no real table is switched that fast.
        tokio::time::sleep(self.chance.millis(1_100, 4_000)).await;
        switch_stream(&self.world.emulator, true).await?;
        Ok(true)
    }
}
