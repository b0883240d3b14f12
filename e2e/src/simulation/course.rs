//! One schedule's course: what is said and done step by step, the rest after it, and what is held against it on the way
//! and then.

mod listed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, Ordinal, RowKey, StreamShardId};
use tally_core::ports::{Cache as _, Cached, Milestones as _, RecountQueue as _, ScannedRow};
use tokio::time::Instant;

use super::chance::Draws;
use super::driver::{Driver, Garbled};
use super::events::Events;
use super::fold::Fold;
use super::instance::{Role, Slot};
use super::laws::{Quiet, Seen, Verdicts, exact, held, rows_fold, said, weights};
use super::lists::Lists;
use super::milestones::Stream;
use super::outcome::Outcome;
use super::profile::Listing;

/// How long the pipeline may take to come to rest, and how long recounts may take then.
const REST: Duration = Duration::from_secs(1_800);
const RECOUNT: Duration = Duration::from_secs(3 * 3600);

/// Steps between two looks at the laws.
const LOOK: u64 = 8;

/// How far apart the clocks of processes and of the store may be, and a little more.
const CLOCKS: Duration = Duration::from_secs(4);

/// A schedule under way, with what is held against it.
pub(super) struct Course {
    pub(super) driver: Driver,
    pub(super) events: Events,
    pub(super) fold: Fold,
    pub(super) lists: Option<Lists>,
    seen: Seen,
    /// Which shard of the stream has which ordinal.
    ordinals: BTreeMap<Ordinal, StreamShardId>,
}

impl Course {
    /// Nothing has happened yet.
    pub(super) fn of(driver: Driver) -> Self {
        let (events, fold, seen) = (Events::default(), Fold::default(), Seen::default());
        let lists = Lists::of(&driver.world, &driver.profile, driver.mutant);
        Self { driver, events, fold, lists, seen, ordinals: BTreeMap::new() }
    }

    /// All of it.
    pub(super) async fn whole(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.disturbed().await?;
        self.rest().await?;
        let rested = self.driver.world.clock.now();
        self.quiet(outcome).await?;
        self.listed(rested).await
    }

    /// Sends events and does deeds, and looks now and then.
    async fn disturbed(&mut self) -> anyhow::Result<()> {
        let steps = self.driver.profile.steps;
        for step in 0..steps {
            let due = self.driver.profile.events * (step + 1) / steps;
            while self.events.len() < due {
                self.say();
            }
            self.driver.world.pulse.beat();
            self.driver.tick();
            self.driver.define(step).await?;
            self.driver.tend().await?;
            self.driver.act().await?;
            let pace = self.driver.chance.millis(20, self.driver.profile.pace);
            tokio::time::sleep(pace).await;
            self.unbroken()?;
            if step % LOOK == 0 {
                self.look().await?;
            }
        }
        Ok(())
    }

    fn say(&mut self) {
        let Driver { world, profile, chance, other, defined, .. } = &self.driver;
        let (crowd, now) = (self.driver.crowd(), world.clock.now());
        let region = profile.listing.as_ref().and_then(Listing::region);
        match profile.mix.speak(other, crowd, defined, profile.partitions) {
            Some(spoken) => self.events.say_other(&world.broker, other, &spoken, region, now),
            None => self.events.say(&world.broker, chance, crowd, region, now),
        }
    }

    /// No process has ended by itself, and nothing was seen to break on the way.
    fn unbroken(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.driver.slots {
            let end = slot.ended();
            ensure!(
                end.is_none(),
                "{} ended by itself: {}",
                slot.name,
                end.map(|end| end.to_string()).unwrap_or_default()
            );
        }
        if let Some(breach) = self.driver.world.breaches.first() {
            bail!(breach);
        }
        Ok(())
    }

    /// Holds what can be seen against the laws of every moment.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.driver.keep().await?;
        if let Some(lists) = &mut self.lists {
            lists.look(&self.driver.world.history).await.context("what is trending")?;
        }
        let Driver { world, profile, .. } = &self.driver;
        let rows = loop {
            let (moves, rows) = (world.moves.len(), world.calmly(world.rows()).await?);
            // A commit in between would show rows newer than their fences.
            if world.moves.len() == moves {
                break rows;
            }
        };
        self.fold.follow(&self.events, &world.moves.behind(self.fold.taken()))?;
        let homes = world.calmly(world.homes(profile.counters())).await?;
        rows_fold(&rows, &self.fold, &self.driver.foreign(), &homes, profile.shards)
            .context("rows are not the fold of their events")?;
        let states = world.calmly(world.states()).await?;
        self.ordinals.extend(states.iter().map(|state| (state.checkpoint.ordinal, state.checkpoint.id.clone())));
        self.seen.checkpoints(states.into_iter().map(|state| state.checkpoint))?;
        let counters = world.calmly(world.counters(profile.counters())).await?;
        self.suspects(&counters).await?;
        self.seen.counters(counters)?;
        world.trace.figures("look", &[rows.len() as u64, self.events.len()]);
        Ok(())
    }

    /// A row key with a row that is not readable is suspect, once the stream is applied that far. A piece of the stream that
    /// is lost may have said so.
    async fn suspects(&self, counters: &BTreeMap<CounterId, Counter>) -> anyhow::Result<()> {
        let Driver { world, profile, garbled, .. } = &self.driver;
        if profile.lossy || garbled.is_empty() {
            return Ok(());
        }
        let states = world.calmly(world.states()).await?;
        let open = states.iter().filter(|state| !state.checkpoint.closed).map(|state| state.checkpoint.at);
        let Some(applied) = open.min() else { return Ok(()) };
        let late = profile.engine.stream_delay + profile.engine.stream_reorder + CLOCKS;
        for Garbled { key, at, .. } in garbled.iter().filter(|garbled| garbled.at.plus(late) < applied) {
            let suspect = counters.get(&key.counter).and_then(|counter| counter.shards.get(&key.shard));
            ensure!(
                suspect.is_some_and(|tally| tally.suspect),
                "{key} has a row since {at} that is not readable: {suspect:?}"
            );
        }
        Ok(())
    }

    /// Ends all faults and waits until nothing is on its way any more.
    async fn rest(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let driver = &mut self.driver;
        driver.profile.rules.clear();
        (driver.roll, driver.lapse) = (None, None);
        (driver.broker_back, driver.letters_back, driver.store_back) = (Some(now), Some(now), Some(now));
        for slot in &mut driver.slots {
            slot.due = Some(now);
            if let Some(life) = &mut slot.life {
                life.thaws = life.thaws.map(|_| (now, now));
            }
        }
        driver.tick();
        driver.hurry();
        let deadline = now + REST;
        let mut since = None;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.unbroken()?;
            self.driver.tick();
            self.driver.tend().await?;
            ensure!(Instant::now() < deadline, "no rest: {}", self.unrest().await?);
            let world = &self.driver.world;
            if since.is_none() && self.is_written().await? {
                since = Some(world.clock.now());
            }
            let Some(since) = since else { continue };
            let states = world.calmly(world.states()).await?;
            let mut open = states.iter().filter(|state| !state.checkpoint.closed).peekable();
            // Clocks of processes may be behind.
            let settled = since.plus(CLOCKS);
            if open.peek().is_some() && open.all(|state| state.checkpoint.at > settled) {
                return self.look().await;
            }
        }
    }

    /// Whether every event is in the rows and no ghost is left.
    async fn is_written(&self) -> anyhow::Result<bool> {
        let Driver { world, profile, .. } = &self.driver;
        let written = |partition| world.moves.least(partition).is_some_and(|least| least >= self.events.end(partition));
        let written = (0..profile.partitions).all(written) && self.driver.is_tended();
        Ok(written && world.emulator.stats().ghosts_pending == 0)
    }

    async fn unrest(&self) -> anyhow::Result<String> {
        let world = &self.driver.world;
        let partitions = 0..self.driver.profile.partitions;
        let fences: Vec<_> =
            partitions.map(|partition| (world.moves.fences(partition), self.events.end(partition))).collect();
        let states = world.calmly(world.states()).await?;
        let open: Vec<_> = states.iter().filter(|state| !state.checkpoint.closed).collect();
        let left = (&self.driver.edits, &self.driver.garbled);
        Ok(format!("fences and ends {fences:?}, left to see to {left:?}, open stream shards {open:?}"))
    }

    /// Holds everything against the laws of quiet, before and after recounts have done what is left.
    async fn quiet(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.lettered().await?;
        let lossless = !self.driver.profile.lossy;
        let verdicts = self.judged(outcome).await?;
        let rows = weights(&self.rows().await?);
        if lossless {
            let mut changes = verdicts.corrections();
            for injection in &self.driver.injections {
                *changes.entry(injection.key.clone()).or_default() += injection.amount;
            }
            self.counted(&rows, |quiet| held(quiet, &changes)).await.context("before the last recount")?;
        }
        self.recounted().await?;
        let verdicts = self.judged(outcome).await?;
        let unproved = self.driver.asked.iter().find(|key| !verdicts.proved(key));
        ensure!(unproved.is_none(), "{unproved:?} was recounted, and no verdict says that nothing was left to correct");
        let rows = self.rows().await?;
        let weights = weights(&rows);
        self.counted(&weights, exact).await.context("after the last recount")?;
        let totals = self.fold.totals();
        self.counted(&weights, |quiet| said(quiet, &totals)).await.context("after the last recount")?;
        self.cached().await?;
        outcome.milestones = self.milestones().await?;
        let stats = self.driver.world.emulator.stats();
        ensure!(stats.panics == 0, "the emulator panicked {} times", stats.panics);
        outcome.rows = rows.len() as u64;
        self.driver.world.trace.figures("end", &[outcome.rows, outcome.verdicts]);
        Ok(())
    }

    /// What has a dead letter is no event, or was not known to be one when its fence passed it; and all of that has one.
    async fn lettered(&self) -> anyhow::Result<()> {
        let letters = self.driver.world.letters().await?;
        let required: BTreeSet<_> = self.events.poisoned().union(&self.fold.unknown).copied().collect();
        let missing = required.difference(&letters).next();
        ensure!(missing.is_none(), "{missing:?} is no event, or was not known to be one, and has no dead letter");
        let lawful: BTreeSet<_> = required.union(&self.events.early()).copied().collect();
        let spare = letters.difference(&lawful).next();
        ensure!(spare.is_none(), "{spare:?} is an event, and has a dead letter");
        Ok(())
    }

    async fn rows(&self) -> anyhow::Result<Vec<ScannedRow>> {
        let world = &self.driver.world;
        world.calmly(world.rows()).await
    }

    async fn counted(
        &self,
        rows: &BTreeMap<RowKey, i64>,
        law: impl FnOnce(&Quiet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.calmly(world.counters(profile.counters())).await?;
        law(&Quiet { rows, counters: &counters })
    }

    /// The verdicts so far, each held against the stream.
    async fn judged(&mut self, outcome: &mut Outcome) -> anyhow::Result<Verdicts> {
        self.driver.keep().await?;
        let Driver { profile, archive, ledger, injections, .. } = &self.driver;
        let verdicts = Verdicts::of(ledger.all().to_vec(), archive)?;
        verdicts.found_the_rows(archive)?;
        if !profile.lossy {
            verdicts.knew_the_count(archive, injections, &self.seen)?;
        }
        outcome.verdicts = verdicts.len();
        Ok(verdicts)
    }

    /// Has everything recounted that is left to recount.
    async fn recounted(&mut self) -> anyhow::Result<()> {
        if self.driver.slots.iter().all(|slot| slot.role != Role::Recounter) {
            self.driver.slots.push(Slot::new(Role::Recounter, 9));
            self.driver.tick();
        }
        let Driver { world, .. } = &self.driver;
        world.calmly(world.calm.recounts.enqueue_audit(world.clock.now())).await?;
        let deadline = Instant::now() + RECOUNT;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.unbroken()?;
            let world = &self.driver.world;
            world.pulse.beat();
            if world.calmly(world.is_recounted()).await? {
                return self.look().await;
            }
            ensure!(Instant::now() < deadline, "recounts come to no end");
        }
    }

    /// Each counter that reached a threshold has the record of what the stream says reached it first, and no other. How many.
    async fn milestones(&mut self) -> anyhow::Result<u64> {
        self.driver.keep().await?;
        let Driver { world, profile, archive, .. } = &self.driver;
        if profile.milestones.is_empty() {
            return Ok(0);
        }
        let stream = Stream { archive, ordinals: &self.ordinals, is_lossy: profile.lossy };
        let mut checked = 0;
        for counter in profile.counters() {
            let recorded = world.calmly(world.calm.recounts.milestones(&counter, 100_000)).await?;
            let altered = recorded.iter().find(|recorded| recorded.digest != recorded.milestone.digest(&counter));
            ensure!(altered.is_none(), "{altered:?} of {counter} is not as it was written");
            let recorded: Vec<_> = recorded.into_iter().rev().map(|recorded| recorded.milestone).collect();
            checked += world.changes.judge(&counter, &recorded, &profile.milestones, &stream)?;
        }
        Ok(checked)
    }

    /// What is cached is nothing that the table never said.
    async fn cached(&self) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.calmly(world.counters(profile.counters())).await?;
        for (post, counter) in counters {
            let cached = world.cache.get(std::slice::from_ref(&post)).await?;
            if let Some(Cached::Hit(served)) = cached.first() {
                let same = served.version == counter.version && served.likes == counter.likes;
                ensure!(
                    same || served.version < counter.version,
                    "{post} is cached as {served:?}, and its counter is {counter:?}"
                );
            }
        }
        Ok(())
    }
}
