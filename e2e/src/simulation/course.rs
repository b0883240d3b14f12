//! Carries out one run of the simulation: produces events and causes faults step by step, then lets the pipeline come
//! to rest, and checks the laws during and after it.

mod listed;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::cached::Cache as _;
use tally_core::ids::RowKey;
use tally_core::time::UnixMillis;
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::abroad::Abroad;
use crate::simulation::driver::Driver;
use crate::simulation::driver::counters::Garbled;
use crate::simulation::events::{Event, Events};
use crate::simulation::fold::Fold;
use crate::simulation::instance::{Role, Slot};
use crate::simulation::laws::{Quiet, Steps, exact, held, said, weights};
use crate::simulation::lists::Lists;
use crate::simulation::outcome::Outcome;
use crate::simulation::profile::Profile;
use crate::simulation::profile::targets::Listing;

/// How long the pipeline may take to come to rest, and how long recounts may take afterwards.
const REST: Duration = Duration::from_secs(1_800);
const RECOUNT: Duration = Duration::from_secs(3600);

/// The number of steps between two checks of the laws.
const LOOK: u64 = 8;

/// The greatest age of a position at which a recount may begin, with a margin. It does not know about a row that was unreadable
/// only before that.
const POSITION: Duration = Duration::from_secs(40);

/// The greatest difference between the clocks of processes and of the store, with a margin.
const CLOCKS: Duration = Duration::from_secs(4);

/// A running schedule, with everything that checks it.
pub(super) struct Course {
    pub(super) driver: Driver,
    pub(super) events: Events,
    pub(super) fold: Fold,
    pub(super) lists: Option<Lists>,
    pub(super) steps: Steps,
    /// The second Region, where there is one.
    pub(super) abroad: Option<Abroad>,
}

impl Course {
    /// A schedule that has not begun.
    pub(super) fn of(driver: Driver, abroad: Option<Abroad>) -> Self {
        let Profile { partitions, shards, consuming, .. } = driver.profile;
        let (events, steps) = (Events::default(), Steps::default());
        let fold = Fold::new(partitions, shards, consuming.tombstones);
        let lists = Lists::of(&driver.world, &driver.profile, driver.mutant);
        Self { driver, events, fold, lists, steps, abroad }
    }

    /// Runs the whole schedule.
    pub(super) async fn whole(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.disturbed().await?;
        self.rest().await?;
        self.quiet(outcome).await?;
        // Until a recount has finished, something may be lost.
        let rested = self.driver.world.clock.now();
        self.listed(rested).await
    }

    /// Produces events and causes faults, and checks the laws from time to time.
    async fn disturbed(&mut self) -> anyhow::Result<()> {
        let steps = self.driver.profile.steps;
        for step in 0..steps {
            let due = self.driver.profile.events * (step + 1) / steps;
            while self.events.len() < due {
                self.produce();
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

    fn produce(&mut self) {
        let Driver { world, profile, chance, other, defined, .. } = &self.driver;
        let (crowd, now) = (self.driver.crowd(), world.clock.now());
        let region = profile.listing.as_ref().and_then(Listing::region);
        let strays = other.happens(profile.consuming.misrouted).then_some(profile.partitions);
        let (chance, event) = match profile.mix.next_event(other, crowd, defined, profile.partitions) {
            Some(event) => (other, event),
            None => (chance, Event::like(chance, crowd)),
        };
        let place = self.events.produce(&world.broker, chance, &event, (region, strays), now);
        if event.early {
            world.history.said_early(place);
        }
    }

    /// Fails if a process has ended by itself, or if a law was found broken during the run.
    fn unbroken(&mut self) -> anyhow::Result<()> {
        for slot in &mut self.driver.slots {
            if let Some(end) = slot.ended() {
                bail!("{} ended by itself: {end}", slot.name);
            }
        }
        if let Some(breach) = self.driver.world.breaches.first() {
            bail!(breach);
        }
        Ok(())
    }

    /// Checks the laws that hold at every moment.
    async fn look(&mut self) -> anyhow::Result<()> {
        self.driver.keep().await?;
        if let Some(lists) = &mut self.lists {
            lists.look(&self.driver.world.history).await.context("lists of what is trending")?;
        }
        let Driver { world, profile, .. } = &self.driver;
        self.fold.follow(&self.events, &world.registers).context("rows are not the fold of their events")?;
        self.fold.stands(&self.events)?;
        let rows = world.rows().await?;
        let losses = world.losses().await?;
        self.steps.follow(world.writes.take(), &world.journal, profile.lossy)?;
        if !profile.lossy {
            // Events that are read again much later are the exception: they count as a loss in any case.
            let lost = losses.iter().find(|loss| !loss.contains(" replay "));
            ensure!(lost.is_none(), "there are losses although nothing was lost: {losses:?}");
            self.doubted().await?;
        }
        world.trace.note(&format!("look {:?}", [rows.len() as u64, self.events.len()]));
        Ok(())
    }

    /// A counter with an unreadable row must produce so once it has reached that row.
    async fn doubted(&self) -> anyhow::Result<()> {
        let Driver { world, profile, garbled, .. } = &self.driver;
        if garbled.is_empty() {
            return Ok(());
        }
        let standings = world.standings().await?;
        let counters = world.counters(profile.counters()).await?;
        let late = profile.engine.stream_delay + profile.engine.stream_reorder + CLOCKS;
        for Garbled { key, at, .. } in garbled {
            let standing = standings.get(&world.journal.partition_of(&key.counter));
            if standing.and_then(|stored| stored.standing.as_of) <= Some(at.plus(late)) {
                continue;
            }
            let counter = counters.get(&key.counter);
            ensure!(
                counter.is_some_and(|counter| counter.doubt.contains(&key.shard)),
                "{key} has had an unreadable row since {at}: {counter:?}"
            );
        }
        Ok(())
    }

    /// Ends all faults, and waits until nothing is under way any more.
    async fn rest(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let driver = &mut self.driver;
        driver.profile.rules.clear();
        self.abroad.iter().for_each(Abroad::rest);
        (driver.roll, driver.lapse, driver.unread) = (None, None, None);
        (driver.broker_back, driver.letters_back, driver.store_back) = (Some(now), Some(now), Some(now));
        for slot in &mut driver.slots {
            slot.due = Some(now);
            slot.resume(now);
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
            ensure!(Instant::now() < deadline, "the pipeline does not come to rest: {}", self.unrest().await?);
            let world = &self.driver.world;
            if since.is_none() && self.is_written().await? {
                since = Some(world.clock.now());
            }
            // The clocks of processes may be behind, and the stream late.
            let engine = &self.driver.profile.engine;
            let late = CLOCKS + engine.stream_delay + engine.stream_reorder;
            if let Some(since) = since
                && self.is_counted(since.plus(late)).await?
            {
                self.look().await?;
                ensure!(self.steps.is_through(), "counters have positions that are not in the log");
                return Ok(());
            }
        }
    }

    /// Whether everything that was in the rows at that time is in the counters.
    async fn is_counted(&self, by: UnixMillis) -> anyhow::Result<bool> {
        let world = &self.driver.world;
        let standings = world.standings().await?;
        let counted = standings.values().filter(|stored| stored.standing.as_of > Some(by)).count();
        Ok(counted == world.journal.partitions as usize)
    }

    /// Whether every event is in the rows and no late request is left.
    async fn is_written(&self) -> anyhow::Result<bool> {
        let Driver { world, profile, .. } = &self.driver;
        let written = |partition| world.registers.claim(partition).safe >= self.events.end(partition);
        let written = (0..profile.partitions).all(written) && self.driver.is_tended();
        Ok(written && world.emulator.stats().ghosts_pending == 0)
    }

    async fn unrest(&self) -> anyhow::Result<String> {
        let world = &self.driver.world;
        let partitions = 0..self.driver.profile.partitions;
        let claims: Vec<_> =
            partitions.map(|partition| (world.registers.claim(partition), self.events.end(partition))).collect();
        let standings = world.standings().await?;
        let left = (&self.driver.forwards, &self.driver.garbled);
        Ok(format!("claims and ends {claims:?}, left to see to {left:?}, standings {standings:?}"))
    }

    /// Checks the laws of the state at rest, before and after recounts have repaired the rest.
    async fn quiet(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.lettered().await?;
        let rows = weights(&self.driver.world.rows().await?);
        // A loss must be announced until an audit has repaired it.
        let world = &self.driver.world;
        if world.losses().await?.is_empty() {
            let is_edited = |key: &RowKey| self.steps.is_edited(key);
            self.counted(&rows, |quiet| held(quiet, is_edited)).await.context("before the last recount")?;
        }
        self.recounted().await?;
        let rows = self.driver.world.rows().await?;
        let weights = weights(&rows);
        self.counted(&weights, exact).await.context("after the last recount")?;
        let totals = self.fold.totals(&self.events)?;
        self.counted(&weights, |quiet| said(quiet, &totals)).await.context("after the last recount")?;
        self.cached().await?;
        if let Some(abroad) = &self.abroad {
            let Driver { world, profile, .. } = &self.driver;
            abroad.equals(world, profile.counters()).await.context("after the last recount")?;
        }
        outcome.note("milestones", self.milestones().await?);
        let stats = self.driver.world.emulator.stats();
        ensure!(stats.panics == 0, "the emulator panicked {} times", stats.panics);
        let (rows, verdicts) = (rows.iter().filter(|row| row.gone.is_none()).count() as u64, self.steps.corrections);
        outcome.note("rows", rows);
        outcome.note("verdicts", verdicts);
        self.driver.world.trace.note(&format!("end {:?}", [rows, verdicts]));
        Ok(())
    }

    /// Every record that is not an event has a dead letter. Other records have one only if their action was not defined yet,
    /// or if a routed event of the same row came before a misrouted one.
    async fn lettered(&mut self) -> anyhow::Result<()> {
        let letters = self.driver.world.letters().await?;
        let [required, lawful] = self.fold.letters(&self.events);
        if let Some((partition, offset)) = required.difference(&letters).next() {
            let told = self.fold.told(&self.events, *partition, *offset);
            bail!("{partition}:{offset} has neither an effect nor a dead letter: {told}");
        }
        let spare = letters.difference(&lawful).next();
        ensure!(spare.is_none(), "{spare:?} is a valid event but has a dead letter");
        self.fold.happened("misrouted_refused", self.events.refused(&letters));
        Ok(())
    }

    async fn counted(
        &self,
        rows: &BTreeMap<RowKey, i64>,
        law: impl FnOnce(&Quiet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.counters(profile.counters()).await?;
        law(&Quiet { rows, counters: &counters })
    }

    /// Runs recounts until nothing is left to recount.
    async fn recounted(&mut self) -> anyhow::Result<()> {
        if self.driver.slots.iter().all(|slot| slot.role != Role::Recounter) {
            self.driver.slots.push(Slot::new(Role::Recounter, 9));
            self.driver.tick();
        }
        tokio::time::sleep(POSITION).await;
        let Driver { world, .. } = &self.driver;
        world.calmly(world.calm.recounts.enqueue_audit(world.clock.now())).await?;
        let deadline = Instant::now() + RECOUNT;
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.unbroken()?;
            let world = &self.driver.world;
            world.pulse.beat();
            if world.is_recounted().await? {
                return self.look().await;
            }
            if Instant::now() >= deadline {
                bail!("recounts do not finish: {:?}", world.losses().await?);
            }
        }
    }

    /// Each counter that reached a threshold must have exactly the record that follows from the log. Returns the number of
    /// records.
    async fn milestones(&mut self) -> anyhow::Result<u64> {
        let Driver { world, profile, .. } = &self.driver;
        if profile.milestones.is_empty() {
            return Ok(0);
        }
        let lossy = profile.lossy || world.journal.has_losses();
        let mut checked = 0;
        for counter in profile.counters() {
            let recorded = world.calmly(world.calm.recounts.milestones(&counter, 100_000)).await?;
            let altered = recorded.iter().find(|recorded| recorded.digest != recorded.milestone.digest(&counter));
            ensure!(altered.is_none(), "{altered:?} of {counter} was changed after it was recorded");
            let recorded: Vec<_> = recorded.into_iter().map(|recorded| recorded.milestone).collect();
            checked += self.steps.milestones(&counter, &recorded, lossy)?;
        }
        Ok(checked)
    }

    /// Every cached count must be the table's, or older. An edit by hand leaves the version as it was, and a recount that finds
    /// the edited number right changes nothing: the cache has the number of before until it expires.
    async fn cached(&self) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.counters(profile.counters()).await?;
        for (id, counter) in counters {
            let got = world.cache.get(world.journal.partition_of(&id), std::slice::from_ref(&id)).await?;
            if let Some(value) = got.values.first().copied().flatten() {
                let same = value.version == counter.version && value.likes == counter.likes;
                ensure!(
                    same || value.version < counter.version
                        || (value.version == counter.version && world.honesty.is_injected(&id)),
                    "{id} is cached as {value:?}, and its counter is {counter:?}"
                );
            }
        }
        Ok(())
    }
}
