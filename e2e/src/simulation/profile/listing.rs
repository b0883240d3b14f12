//! What is trending in a schedule: how the log and its readers are set up, and what else goes wrong with them.

use std::time::Duration;

use tally_core::ids::ShardCount;
use tally_service::Chance;

use super::super::chance::Draws;
use super::super::driver::Deed;
use super::super::instance::Role;
use super::super::lists::REGIONS;
use super::super::mutant::Mutant;
use super::Profile;
use crate::crowd::Crowd;

/// What tells the draws about lists from the rest of a seed's.
const LISTS: u64 = 0x006c_6973_7473;

/// How the log and its readers are set up.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// What draws all that is about lists.
    pub(crate) chance: Chance,
    /// Partitions of the topic of boards.
    pub(crate) boards: u32,
    pub(crate) members: u64,
    /// How many keys a process may hold, and how many regions have lists.
    pub(crate) keys: usize,
    pub(crate) regions: usize,
    /// How many of a hundred processes that are frozen lose their partitions.
    pub(crate) expiring: u64,
}

impl Listing {
    fn draw(seed: u64) -> Self {
        let chance = Chance::seeded(seed ^ LISTS);
        let count = |most| u32::try_from(chance.between(1, most)).unwrap_or(1);
        Self {
            boards: count(2),
            members: chance.between(1, 2),
            keys: chance.pick(&[usize::MAX, usize::MAX, usize::MAX, 12]),
            regions: if chance.happens(80) { REGIONS.len() } else { 2 },
            expiring: 70,
            chance,
        }
    }

    /// Whether so much may be forgotten that no list is exact.
    pub(crate) fn is_limited(&self) -> bool {
        self.keys < usize::MAX || self.regions < REGIONS.len()
    }

    /// The region that an event comes from.
    pub(crate) fn region(&self) -> Option<&'static str> {
        let nth = self.chance.place(REGIONS.len() + 1);
        REGIONS.get(nth).copied()
    }
}

impl Profile {
    /// What is trending is listed.
    pub(crate) fn list(&mut self, seed: u64, mutant: Option<Mutant>) {
        let mut listing = Listing::draw(seed);
        if let Some(mutant) = mutant {
            (listing.keys, listing.regions) = (usize::MAX, REGIONS.len());
            self.failing = 6;
            match mutant {
                Mutant::Unfiltered | Mutant::FilteredByMessage | Mutant::OlderTaken => self.failing = 15,
                Mutant::NoRefill => self.changes = 1,
                Mutant::MomentsMixed => self.changes = 3,
                _ => {}
            }
        } else {
            self.deeds.push((Deed::ListersChange, 3));
            if self.lossy {
                self.deeds.push((Deed::ChangesAway, 1));
            }
        }
        self.listing = Some(listing);
    }

    /// Gives a mutant of the log and its readers what it needs to go wrong: little else happens.
    pub(super) fn target_lists(&mut self, mutant: Mutant) {
        self.crowd = Crowd { posts: 10, users: 40, hot: 30, unlikes: 40 };
        self.shards = ShardCount::new(1).expect("a power of two");
        (self.streamers, self.leases, self.recounters) = (1, false, 0);
        (self.pace, self.steps) = (600, 200);
        self.rules.truncate(1);
        self.deeds = vec![(Deed::Nothing, 60), (Deed::Crash, 2), (Deed::Roll, 1)];
        let mut weigh = |deed: Deed, weight: u64| self.deeds.push((deed, weight));
        match mutant {
            Mutant::FilteredByMessage => {
                weigh(Deed::Crash, 15);
                self.victims = Some(Role::Streamer);
            }
            Mutant::OlderTaken => {
                weigh(Deed::Freeze, 10);
                (self.sleepers, self.longest_nap) = (Some(Role::Trends), 25_000);
            }
            Mutant::ExpiredTwice => {
                weigh(Deed::Crash, 6);
                (self.victims, self.pace, self.steps) = (Some(Role::Trends), 2_000, 300);
            }
            Mutant::LossForgotten => {
                weigh(Deed::Lapse, 4);
                (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
            }
            _ => {}
        }
    }
}
