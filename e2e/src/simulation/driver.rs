//! Causes the trouble in a run of the simulation: between two steps it draws an action, such as a crash, a frozen
//! process, an outage or an operator's mistake, performs it, and ends it when that is due.

mod claims;
pub(crate) mod counters;
mod log;

use std::sync::Arc;
use std::time::Duration;

use tally_core::audit::QueueReason;
use tally_core::cached::{Cache as _, Value};
use tally_core::definitions::Definitions;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_emulator::Rule;
use tally_service::Chance;
use tokio::time::Instant;

use crate::simulation::driver::claims::{Forward, Resets};
use crate::simulation::driver::counters::Garbled;
use crate::simulation::driver::log::{Replica, Unread};
use crate::simulation::events::{Crowd, LETTERS};
use crate::simulation::faults::Action;
use crate::simulation::instance::{FOLDS, GROUP, Role, Slot};
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::Profile;
use crate::simulation::world::World;
use crate::simulation::{Draws, lists};

/// The largest error of a clock while lists are made.
const SKEW: Duration = Duration::from_secs(1);

/// The table whose stream is read.
const LIKES: &str = "likes";

/// A running schedule.
pub(crate) struct Driver {
    pub(crate) world: Arc<World>,
    pub(crate) profile: Profile,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) chance: Chance,
    /// The random numbers for everything about counters other than likes.
    pub(crate) other: Chance,
    pub(crate) slots: Vec<Slot>,
    /// The counters that are defined so far.
    pub(crate) defined: Definitions,
    pub(crate) garbled: Vec<Garbled>,
    /// The partitions whose group offset is set forward.
    pub(crate) forwards: Vec<Forward>,
    pub(crate) resets: Resets,
    /// When the paused topic is resumed.
    pub(crate) resumes: Option<Instant>,
    /// When an operator adopts the new table of counters.
    pub(crate) adopting: Option<Instant>,
    /// The contents of a replica of the cache.
    pub(crate) replica: Replica,
    /// When the unread part of the stream is trimmed.
    pub(crate) lapse: Option<Instant>,
    /// A loss of messages that stopped folds have not read.
    pub(crate) unread: Option<Unread>,
    /// When the broker, dead letters and the store work again.
    pub(crate) broker_back: Option<Instant>,
    pub(crate) letters_back: Option<Instant>,
    pub(crate) store_back: Option<Instant>,
    /// When stream shards are closed next.
    pub(crate) roll: Option<Instant>,
    /// When an owner of a partition is disturbed next, in a restless schedule.
    pub(crate) stir: Option<Instant>,
}

impl Driver {
    /// Performs one random action.
    pub(crate) async fn act(&mut self) -> anyhow::Result<()> {
        self.end_lapse().await?;
        self.lose_unread().await?;
        self.stir().await?;
        self.replicate();
        let total: u64 = self.profile.actions.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.chance.below(total);
        let mut action = Action::Nothing;
        for (candidate, weight) in &self.profile.actions {
            if drawn < *weight {
                action = *candidate;
                break;
            }
            drawn -= weight;
        }
        if self.perform(action).await? && action != Action::Nothing {
            self.world.coverage.fired(&action.name());
            self.world.trace.note(&action.name());
        }
        Ok(())
    }

    /// Performs an action, and returns whether that was possible and is not counted elsewhere.
    async fn perform(&mut self, action: Action) -> anyhow::Result<bool> {
        let soon = Instant::now() + self.chance.millis(0, self.profile.pace * 5);
        Ok(match action {
            Action::Crash | Action::Stop => self.end(action == Action::Crash, soon).await?,
            Action::Freeze => self.freeze(),
            Action::Rebalance => self.rebalance(soon).await,
            Action::ShardSplit => self.world.emulator.split_shard(LIKES, None, None).is_ok(),
            Action::ShardRoll => self.world.emulator.roll_shards(LIKES, None).is_ok(),
            Action::Trim => self.trim().await?,
            Action::StreamSwitched => self.switch().await?,
            Action::Pause => self.pause().await?,
            Action::CacheFilledLate => self.fill().await?,
            Action::ClockJump => self.skew().await,
            Action::RecountAsked => self.ask().await?,
            Action::DriftInjected => self.inject().await?,
            Action::WeightUnreadable => self.garble().await?,
            Action::GroupReset => self.reset_group().await?,
            Action::GroupResetForward => self.reset_forward().await?,
            Action::ClaimRaised => self.raise().await?,
            Action::TopicPaused => self.pause_topic().await?,
            Action::HoursLongOutage => self.sleep_through(self.other.millis(65 * 60_000, 100 * 60_000)).await?,
            Action::DayLongOutage => self.sleep_through(Duration::from_secs(25 * 3600)).await?,
            Action::ChangesLost | Action::ChangesTrimmed => self.lose_changes(action == Action::ChangesLost).await?,
            Action::TableLost => self.lose_table().await?,
            Action::ListersChanged => self.change_listers().await,
            Action::ChangesAway => self.take_changes_away().await?,
            other => self.perform_at_once(other, soon),
        })
    }

    /// Performs one of the actions that are always possible, or begins one that is counted at its end.
    fn perform_at_once(&mut self, action: Action, soon: Instant) -> bool {
        let World { broker, cache, journal, .. } = &*self.world;
        match action {
            Action::GroupExpired => broker.expire(GROUP),
            Action::FoldsExpired => broker.expire(FOLDS),
            Action::BrokerDown => {
                broker.set_down(true);
                self.broker_back = Some(soon);
            }
            Action::DeadLettersRefused => {
                broker.refuse_writes(LETTERS, Some(Fault::Transient("refused".to_owned())));
                self.letters_back = Some(soon);
            }
            Action::CacheEvicted => {
                self.profile.counters().for_each(|id| cache.evict(journal.partition_of(&id), &id));
            }
            Action::CacheFailover => self.fail_over(),
            Action::StoreOutage => {
                self.world.set_rules(&[Rule::new(tally_emulator::Fault::Outage)]);
                self.store_back = Some(soon);
            }
            Action::StoreSlow => {
                let (least, most) = (self.chance.between(200, 2_000), self.chance.between(2_000, 3_000));
                let slow = Rule::new(tally_emulator::Fault::Latency { min_ms: least, max_ms: most });
                self.world.set_rules(&[slow]);
                self.store_back = Some(Instant::now() + self.chance.millis(1_000, 30_000));
            }
            Action::TrimUnread => self.begin_lapse(),
            Action::ChangesLostUnread => self.begin_unread(),
            Action::Nothing => {}
            _ => return false,
        }
        !matches!(action, Action::TrimUnread | Action::ChangesLostUnread)
    }

    /// Does what is due: starts and resumes processes, and ends outages.
    pub(crate) fn tick(&mut self) {
        let now = Instant::now();
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.broker_back) {
            self.world.broker.set_down(false);
        }
        if due(&mut self.letters_back) {
            self.world.broker.refuse_writes(LETTERS, None);
        }
        if due(&mut self.store_back) {
            self.world.set_rules(&self.profile.rules);
        }
        if due(&mut self.roll) {
            let _ = self.world.emulator.roll_shards(LIKES, None);
            self.roll = self.profile.rolls.map(|every| now + every);
        }
        for slot in &mut self.slots {
            slot.thaw(now);
            if slot.life.is_none() && slot.due.is_some_and(|due| due <= now) {
                let clock = self.world.clock.now();
                slot.start(&self.world, &self.profile, self.mutant, &self.chance, clock);
            }
        }
    }

    fn places(&self, role: Role) -> Vec<usize> {
        (0..self.slots.len()).filter(|slot| self.slots[*slot].role == role).collect()
    }

    fn alive(&self, role: Option<Role>) -> Option<usize> {
        let is_one = |slot: &Slot| slot.life.is_some() && role.is_none_or(|role| slot.role == role);
        let alive: Vec<usize> = (0..self.slots.len()).filter(|slot| is_one(&self.slots[*slot])).collect();
        (!alive.is_empty()).then(|| alive[self.chance.place(alive.len())])
    }

    async fn end(&mut self, crash: bool, back: Instant) -> anyhow::Result<bool> {
        let Some(slot) = self.alive(self.profile.victims.filter(|_| crash)) else { return Ok(false) };
        let slot = &mut self.slots[slot];
        if crash {
            slot.crash(back).await;
        } else {
            slot.stop(back).await?;
        }
        Ok(true)
    }

    fn freeze(&mut self) -> bool {
        let longest = if self.chance.happens(10) { 30_000 } else { self.profile.longest_nap };
        let (wire, log) = (self.chance.millis(200, longest), self.chance.millis(0, 3_000));
        let Some(slot) = self.alive(self.profile.sleepers) else { return false };
        let slot = &mut self.slots[slot];
        let thaw = Instant::now() + wire;
        slot.freeze((thaw, thaw + log));
        if slot.role == Role::Consumer && self.chance.happens(70) {
            self.world.broker.expire(GROUP);
        }
        if slot.role == Role::Streamer && self.chance.happens(50) {
            self.world.broker.expire(FOLDS);
        }
        let listing = self.profile.listing.as_ref().filter(|_| slot.role == Role::Trends);
        if listing.is_some_and(|listing| listing.chance.happens(listing.expiring)) {
            self.world.broker.expire(lists::GROUP);
        }
        true
    }

    async fn rebalance(&mut self, back: Instant) -> bool {
        let consumers = self.places(Role::Consumer);
        let slot = consumers[self.chance.place(consumers.len())];
        if consumers.len() < 3 && self.chance.happens(50) {
            self.slots.push(Slot::new(Role::Consumer, consumers.len() as u64 + 1));
        } else if self.slots[slot].life.is_some() {
            self.slots[slot].crash(back).await;
        } else {
            return false;
        }
        true
    }

    /// Saves the log before any of it is lost.
    pub(crate) async fn keep(&mut self) -> anyhow::Result<()> {
        let World { calm, journal, .. } = &*self.world;
        self.world.calmly(journal.learn(&calm.changes)).await?;
        journal.follow().await
    }

    /// The current posts and users.
    pub(crate) fn crowd(&self) -> Crowd {
        let crowd = self.profile.crowd;
        match (self.profile.ebb, self.lapse) {
            (false, _) => crowd,
            (true, Some(_)) => Crowd { unlikes: 90, ..crowd },
            (true, None) => Crowd { unlikes: 10, ..crowd },
        }
    }

    async fn pause(&mut self) -> anyhow::Result<bool> {
        let thaw = Instant::now() + Duration::from_secs(16 * 60);
        self.world.pulse.rest(thaw);
        self.slots.iter_mut().for_each(|slot| slot.freeze((thaw, thaw)));
        tokio::time::sleep_until(thaw).await;
        self.keep().await?;
        Ok(true)
    }

    /// A reader misses the cache, reads the table, and waits before it fills the cache.
    async fn fill(&mut self) -> anyhow::Result<bool> {
        let id = self.counter();
        let partition = self.world.journal.partition_of(&id);
        let Some(token) = self.world.cache.begin_fill(partition, &id).await? else { return Ok(false) };
        let counters = self.world.counters(std::iter::once(id.clone())).await?;
        tokio::time::sleep(self.chance.millis(0, 2_000)).await;
        let value = counters.get(&id).map(Value::from).unwrap_or_default();
        self.world.cache.fill(partition, &id, &token, &value).await?;
        Ok(true)
    }

    /// Restarts a process with a wrong clock: slightly wrong, or so much that it must not be used.
    async fn skew(&mut self) -> bool {
        let Some(slot) = self.alive(self.profile.victims) else { return false };
        self.slots[slot].kill().await;
        let by = self.chance.millis(0, 1_500);
        // Lists rely on clocks within 2 s of the store's, including the delay of the stream.
        let mut by = if self.profile.listing.is_some() { by.min(SKEW) } else { by };
        if self.chance.happens(self.profile.wrong_clocks) {
            self.world.coverage.fired("clock_wrong");
            by = self.profile.wrong_by;
        }
        let clock = self.world.clock.now();
        let clock = if self.chance.happens(self.profile.ahead) { clock.plus(by) } else { clock.minus(by) };
        self.slots[slot].start(&self.world, &self.profile, self.mutant, &self.chance, clock);
        true
    }

    async fn ask(&mut self) -> anyhow::Result<bool> {
        let ids: Vec<CounterId> = self.profile.counters().collect();
        let counters = self.world.counters(ids.into_iter()).await?;
        for (id, counter) in counters {
            for shard in counter.parts.keys().filter(|_| self.chance.happens(60)) {
                self.enqueue(&RowKey { counter: id.clone(), shard: *shard }, QueueReason::Asked).await?;
            }
        }
        Ok(true)
    }

    async fn enqueue(&self, key: &RowKey, reason: QueueReason) -> anyhow::Result<()> {
        let enqueue = self.world.calm.recounts.enqueue(key, reason, self.world.clock.now());
        Ok(self.world.calmly(enqueue).await?)
    }

    async fn inject(&mut self) -> anyhow::Result<bool> {
        if self.profile.hidden && self.world.corrections.is_any() {
            return Ok(false);
        }
        let id = self.counter();
        let counters = self.world.counters(std::iter::once(id.clone())).await?;
        let shards: Vec<_> = counters.values().flat_map(|counter| counter.parts.keys().copied()).collect();
        if shards.is_empty() {
            return Ok(false);
        }
        let key = RowKey { counter: id, shard: shards[self.chance.place(shards.len())] };
        let amount = i64::try_from(self.chance.between(1, 9)).unwrap_or(1);
        let amount = if self.chance.happens(50) || self.profile.hidden { -amount } else { amount };
        let injected = self.world.inject(&key, amount).await;
        if injected {
            self.world.honesty.injected(&key.counter, amount);
            self.enqueue(&key, QueueReason::Drift).await?;
        }
        Ok(injected)
    }

    fn counter(&self) -> CounterId {
        let ids: Vec<CounterId> = self.profile.counters().collect();
        ids[self.chance.place(ids.len())].clone()
    }
}
