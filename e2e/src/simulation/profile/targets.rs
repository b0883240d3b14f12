//! Adjusts what was drawn for a run of the simulation: for a mutant (a pipeline with one rule broken), so that the
//! broken rule can do harm and be found; and for runs that list what is trending, the settings of the lists. The laws
//! do not depend on either.

use std::time::Duration;

use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_emulator::{Fault, Rule};
use tally_service::Chance;

use crate::simulation::Draws;
use crate::simulation::events::{Crowd, Mix};
use crate::simulation::faults::Action;
use crate::simulation::instance::Role;
use crate::simulation::lists::REGIONS;
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::{Profile, ghosts};

impl Profile {
    /// Creates the conditions for `mutant`.
    pub(super) fn target(&mut self, mutant: Mutant, chance: &Chance) {
        match mutant {
            of_rows if of_rows.is_of_rows() => self.target_rows(of_rows, chance),
            of_the_log if of_the_log <= Mutant::BehindSent => self.target_log(of_the_log),
            of_answers if of_answers <= Mutant::SafeUnpaired => self.target_answers(of_answers),
            of_losses if of_losses <= Mutant::LossesByNumber => self.target_losses(of_losses),
            of_recounts if of_recounts <= Mutant::SettledBySending => self.target_recount(of_recounts),
            of_regions if of_regions.is_of_regions() => self.target_regions(of_regions),
            of_milestones if of_milestones.is_of_milestones() => self.target_milestones(of_milestones),
            of_lists => self.target_lists(of_lists),
        }
    }

    /// Creates them for a mutant of rows.
    fn target_rows(&mut self, mutant: Mutant, chance: &Chance) {
        (self.consumers, self.recounters, self.consuming.misrouted) = (2, 0, 0);
        self.actions.extend([(Action::Freeze, 12), (Action::GroupExpired, 8)]);
        self.rules.push(ghosts(chance.between(20, 80), 5_000, 0));
        match mutant {
            Mutant::CellUnguarded => self.mix = std::mem::take(&mut self.mix).of_sums(),
            Mutant::Sleeper | Mutant::RetryOutlives => {
                // Members come and go all the time, and are gone for longer than tombstones are kept.
                (self.consuming.tombstones, self.mix) = (Duration::from_secs(3_600), Mix::default());
                (self.crowd.posts, self.crowd.users, self.crowd.unlikes) = (3, 5, 50);
                (self.sleepers, self.consuming.sleeping, self.longest_nap) = (Some(Role::Consumer), 100, 60_000);
                (self.apis, self.pace, self.steps) = (0, 600, self.steps.max(200));
                // One consumer is frozen, and the others continue with its rows before hours pass.
                (self.consumers, self.consuming.reset_behind) = (3, 0);
                self.actions = vec![(Action::Nothing, 60), (Action::Freeze, 4), (Action::HoursLongOutage, 3)];
                // A retry is under way when its process is frozen.
                self.rules = vec![Rule::new(Fault::Throttle).table("likes").chance(0.5)];
            }
            Mutant::ReplayClosed => {
                (self.recounters, self.consuming.tombstones) = (1, Duration::from_secs(3_600));
                (self.consuming.statements, self.consuming.requests) = (2, 1);
                (self.crowd.users, self.crowd.unlikes, self.mix) = (20, 50, Mix::default());
                // An audit finishes during a replay, which is not disturbed.
                (self.partitions, self.consuming.reset_behind) = (1, 100);
                (self.pace, self.steps) = (3_000, self.steps.max(240));
                self.actions = vec![(Action::Nothing, 60), (Action::HoursLongOutage, 1)];
                self.rules = vec![
                    Rule::new(Fault::Latency { min_ms: 500, max_ms: 1_500 }).table("likes").on("BatchExecuteStatement"),
                ];
            }
            _ => {}
        }
    }

    /// Creates them for a mutant of the log, or of reading it again: processes come and go.
    fn target_log(&mut self, mutant: Mutant) {
        (self.victims, self.failing) = (Some(Role::Streamer), 15);
        self.actions = vec![(Action::Nothing, 60), (Action::Crash, 12), (Action::FoldsExpired, 6)];
        self.rules.truncate(1);
        match mutant {
            Mutant::StaleFilter => {
                // Positions are stored every half minute.
                (self.streamers, self.leases, self.pace, self.steps) = (2, false, 1_500, 160);
            }
            _ => {
                (self.streamers, self.leases) = (1, false);
                self.actions.push((Action::BrokerDown, 6));
            }
        }
    }

    /// Creates them for a mutant that makes answers wrong without a loss.
    fn target_answers(&mut self, mutant: Mutant) {
        (self.apis, self.readers, self.reader_pace) = (2, 2, 100);
        (self.pace, self.steps) = (300, 200);
        self.actions = vec![(Action::Nothing, 60), (Action::Crash, 2), (Action::CacheEvicted, 5)];
        self.rules.truncate(1);
        (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
        match mutant {
            Mutant::NoMargin => {
                (self.engine.stream_delay, self.cached) = (Duration::from_millis(1_500), false);
            }
            Mutant::LocalClock => {
                (self.engine.stream_delay, self.cached) = (Duration::from_millis(1_500), false);
                (self.wrong_clocks, self.ahead, self.streamers) = (100, 100, 1);
                // A streamer that is replaced all the time makes no progress.
                (self.leases, self.victims) = (false, Some(Role::Streamer));
                self.actions.push((Action::ClockJump, 1));
            }
            Mutant::StandingLast => self.cached = false,
            Mutant::SafeUnpaired => {
                // Some rows are written seconds after their events, and the stream shows them as late as a standing allows.
                (self.engine.stream_delay, self.cached) = (Duration::from_millis(1_500), false);
                (self.consuming.statements, self.consuming.requests) = (25, 64);
                self.rules.push(Rule::new(Fault::Throttle).table("likes").chance(0.85));
            }
            _ => (self.cached, self.cache_failing) = (true, 0),
        }
    }

    /// Creates them for a mutant that makes answers wrong after a loss: few faults except for rare losses, and a stream
    /// without delay. A loss that is still open would hide the effect on the next one.
    fn target_losses(&mut self, mutant: Mutant) {
        self.actions = vec![(Action::Nothing, 60), (Action::CacheEvicted, 5)];
        self.rules.truncate(1);
        (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
        (self.apis, self.readers, self.reader_pace) = (2, 2, 100);
        self.recounters = self.recounters.max(1);
        match mutant {
            Mutant::NoBackLink | Mutant::NoTakeOverLink => {
                (self.apart, self.streamers) = (true, 2);
                self.actions.push((Action::ChangesLostUnread, 6));
            }
            Mutant::LossesByNumber => {
                (self.wrong_clocks, self.ahead, self.streamers) = (100, 0, 1);
                (self.wrong_by, self.victims) = (Duration::from_secs(60), Some(Role::Streamer));
                (self.leases, self.pace, self.steps) = (false, 600, 160);
                self.actions.extend([(Action::TrimUnread, 3), (Action::ClockJump, 1)]);
            }
            _ => self.actions.push((Action::TrimUnread, 3)),
        }
        if matches!(mutant, Mutant::NoGap | Mutant::LossesByNumber) {
            (self.oversleep, self.cached, self.local_ttl) = (true, false, Duration::ZERO);
            self.steps = self.steps.max(120);
        }
        self.ebb = !self.apart;
    }

    /// Creates them for a mutant of what another Region publishes or reads.
    fn target_regions(&mut self, mutant: Mutant) {
        self.actions = vec![(Action::Nothing, 60), (Action::Crash, 1)];
        self.rules.truncate(1);
        (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
        (self.apis, self.readers, self.reader_pace, self.recounters) = (1, 1, 100, 1);
        (self.crowd.posts, self.pace, self.steps) = (2, 600, 200);
        match mutant {
            Mutant::ForeignStanding => self.changes = 3,
            Mutant::LossUncarried => {
                self.ebb = true;
                self.actions.push((Action::TrimUnread, 3));
            }
            // Entries are old enough to be forgotten before all is over.
            Mutant::LateBelieved => self.pace = 60_000,
            _ => {}
        }
    }

    /// Creates them for a mutant of recounts: row keys are queued all the time.
    fn target_recount(&mut self, mutant: Mutant) {
        (self.recounters, self.steps) = (self.recounters.max(1), self.steps.max(60));
        self.actions.push((Action::RecountAsked, 25));
        let slow = Rule::new(Fault::Latency { min_ms: 300, max_ms: 2_000 }).on("BatchExecuteStatement");
        match mutant {
            Mutant::TailAtEnd => {
                self.talk();
                self.rules.push(slow);
            }
            Mutant::NoMarkerWait => {
                self.talk();
                self.engine.stream_delay = Duration::from_millis(1_500);
            }
            Mutant::TailUnfiltered => {
                self.talk();
                self.crowd.users = 20;
                (self.streamers, self.leases, self.failing) = (2, false, 15);
            }
            Mutant::Unseen => {
                (self.recounters, self.failing) = (2, 15);
                self.actions.push((Action::DriftInjected, 20));
            }
            Mutant::NotRaised => {
                (self.streamers, self.leases, self.failing) = (2, false, 15);
                self.sleepers = Some(Role::Streamer);
                self.actions.extend([(Action::Freeze, 20), (Action::Trim, 10)]);
            }
            _ => {
                self.talk();
                self.target_recount_of_losses(mutant);
            }
        }
    }

    /// Creates them for a mutant of recounts during losses.
    fn target_recount_of_losses(&mut self, mutant: Mutant) {
        self.rules.truncate(1);
        (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
        (self.apis, self.readers, self.reader_pace) = (1, 2, 100);
        (self.crowd.users, self.ebb, self.failing) = (20, true, 0);
        (self.pace, self.steps) = (600, 240);
        self.actions = vec![(Action::Nothing, 60), (Action::TrimUnread, 2)];
        match mutant {
            Mutant::LossUnnamed => {
                self.hidden = true;
                self.actions.extend([(Action::DriftInjected, 3), (Action::TrimUnread, 6)]);
            }
            Mutant::SettledBySending => {
                (self.recounters, self.shards) = (2, ShardCount::new(4).expect("a power of two"));
                self.actions.push((Action::RecountAsked, 25));
            }
            _ => {}
        }
    }

    /// Many events about few row keys and little else, so that recounts read them in the middle of changes.
    fn talk(&mut self) {
        (self.crowd.posts, self.shards) = (1, ShardCount::new(1).expect("a power of two"));
        (self.pace, self.steps) = (300, 300);
        self.actions = vec![(Action::Nothing, 60), (Action::Crash, 2), (Action::RecountAsked, 25)];
    }

    /// Creates them for a mutant of milestones: a total crosses the thresholds in both directions while several stream shards
    /// add to it.
    fn target_milestones(&mut self, mutant: Mutant) {
        self.crowd = Crowd { posts: 2, users: 100, hot: 60, unlikes: 50 };
        self.shards = ShardCount::new(4).expect("a power of two");
        (self.streamers, self.leases, self.recounters, self.engine.shards) = (2, false, 0, 4);
        self.pace = 200;
        self.milestones = Ladder::every(5).expect("a threshold");
        self.actions.push((Action::FoldsExpired, 10));
        match mutant {
            Mutant::LateRecord => {
                self.victims = Some(Role::Streamer);
                self.actions.push((Action::Crash, 25));
            }
            Mutant::NoVersion => self.rules.push(ghosts(150, 5_000, 500).on("TransactWriteItems")),
            _ => {}
        }
    }
}

/// Separates the random numbers of lists from the others of a seed.
const LISTS: u64 = 0x006c_6973_7473;

/// The greatest delay of the stream. Lists contain the second that the log is complete for, which stays behind the clock by a
/// margin.
const LATE: Duration = Duration::from_millis(1_500);

/// The settings of the log and of the processes that make lists.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The random numbers for everything about lists.
    pub(crate) chance: Chance,
    /// The number of partitions of the topic of boards.
    pub(crate) boards: u32,
    pub(crate) members: u64,
    /// The limits of keys per process, and of regions with lists.
    pub(crate) keys: usize,
    pub(crate) regions: usize,
    /// The percentage of frozen processes that lose their partitions.
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

    /// Whether so many keys may be forgotten that no list is exact.
    pub(crate) fn is_limited(&self) -> bool {
        self.keys < usize::MAX || self.regions < REGIONS.len()
    }

    /// The region of an event.
    pub(crate) fn region(&self) -> Option<&'static str> {
        let nth = self.chance.place(REGIONS.len() + 1);
        REGIONS.get(nth).copied()
    }
}

impl Profile {
    /// Makes lists in this schedule.
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
            self.actions.push((Action::ListersChanged, 3));
            if self.lossy {
                self.actions.push((Action::ChangesAway, 1));
            }
        }
        self.engine.stream_delay = self.engine.stream_delay.min(LATE);
        self.listing = Some(listing);
    }

    /// Creates the conditions for a mutant of lists: little else happens.
    pub(super) fn target_lists(&mut self, mutant: Mutant) {
        self.crowd = Crowd { posts: 10, users: 40, hot: 30, unlikes: 40 };
        self.shards = ShardCount::new(1).expect("a power of two");
        (self.streamers, self.leases, self.recounters) = (1, false, 0);
        (self.pace, self.steps) = (600, 200);
        self.rules.truncate(1);
        self.actions = vec![(Action::Nothing, 60), (Action::Crash, 2), (Action::ShardRoll, 1)];
        let mut weigh = |action: Action, weight: u64| self.actions.push((action, weight));
        match mutant {
            Mutant::FilteredByMessage => {
                weigh(Action::Crash, 15);
                self.victims = Some(Role::Streamer);
            }
            Mutant::OlderTaken => {
                weigh(Action::Freeze, 10);
                (self.sleepers, self.longest_nap) = (Some(Role::Trends), 25_000);
            }
            Mutant::ExpiredTwice => {
                weigh(Action::Crash, 6);
                (self.victims, self.pace, self.steps) = (Some(Role::Trends), 2_000, 300);
            }
            Mutant::LossForgotten => {
                weigh(Action::TrimUnread, 4);
                (self.engine.stream_delay, self.engine.stream_reorder) = (Duration::ZERO, Duration::ZERO);
            }
            _ => {}
        }
    }
}
