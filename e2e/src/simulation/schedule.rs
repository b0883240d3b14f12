//! One schedule from its seed to its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_core::ports::{Cache as _, Cached, RecountQueue as _};
use tally_service::Chance;
use tokio::time::Instant;

use super::archive::Archive;
use super::chance::Draws;
use super::clockwork;
use super::driver::Driver;
use super::events::Events;
use super::instance::{Role, Slot};
use super::laws::{Quiet, Seen, Verdicts, by_key, exact, held, rows_are};
use super::mutant::Mutant;
use super::outcome::Outcome;
use super::profile::Profile;
use super::readers::Reader;
use super::world::World;

/// How long the pipeline may take to come to rest, and how long recounts may take then.
const REST: Duration = Duration::from_secs(1_800);
const RECOUNT: Duration = Duration::from_secs(3 * 3600);

/// Steps between two looks at the laws.
const LOOK: u64 = 8;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// What everything is drawn from.
    pub seed: u64,
    /// Events said.
    pub events: u64,
    /// The rule that is broken, if one is.
    pub mutant: Option<Mutant>,
    /// Whether the rule is kept after all, in the schedule that would be the mutant's.
    pub spared: bool,
    /// Kinds of faults that are left out.
    pub without: BTreeSet<String>,
    /// Whether the last lines of the trace are wanted.
    pub lines: bool,
}

/// Runs one schedule in a runtime of its own, under paused time.
///
/// # Errors
/// No runtime could be had.
pub fn run(order: &Order) -> anyhow::Result<Outcome> {
    clockwork::wind(order.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot set up a runtime")?;
    Ok(runtime.block_on(Box::pin(schedule(order))))
}

async fn schedule(order: &Order) -> Outcome {
    let began = Instant::now();
    let chance = Chance::seeded(order.seed);
    let profile = Profile::draw(&chance, order.events, order.mutant, &order.without);
    let mut outcome = Outcome { seed: order.seed, events: order.events, ..Outcome::default() };
    let world = match World::new(&profile).await {
        Ok(world) => world,
        Err(error) => return Outcome { broken: Some(format!("{error:#}")), ..outcome },
    };
    world.set_rules(&profile.rules);
    let slots = places(&profile);
    start_readers(&world, &profile, &slots, &chance);
    let roll = profile.rolls.map(|every| began + every);
    let driver = Driver {
        world,
        roll,
        profile,
        mutant: order.mutant.filter(|_| !order.spared),
        chance,
        slots,
        archive: Archive::default(),
        ledger: Vec::new(),
        injections: Vec::new(),
        asked: Vec::new(),
        lapse: None,
        broker_back: None,
        letters_back: None,
        store_back: None,
    };
    let mut course = Course { driver, events: Events::default(), seen: Seen::default() };
    let held = course.whole(&mut outcome).await;
    let Course { driver: Driver { world, slots, .. }, events, .. } = course;
    let poisoned = events.poisoned().len() as u64;
    outcome.broken = held.err().map(|error| format!("{error:#}"));
    outcome.hash = world.trace.hash();
    outcome.virtual_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let stats = world.emulator.stats();
    for faults in stats.faults.values() {
        faults
            .iter()
            .filter(|(fault, _)| *fault != "outage")
            .for_each(|(fault, count)| world.coverage.add(fault, *count));
    }
    world.coverage.add("ghost_applied", stats.ghosts_applied);
    world.coverage.add("poison", poisoned);
    let judged = world.honesty.count();
    (outcome.answers, outcome.exact) = (judged.answers, judged.exact);
    outcome.faults = world.coverage.all();
    if order.lines {
        outcome.lines = world.trace.lines();
    }
    for mut slot in slots {
        slot.kill().await;
    }
    outcome
}

/// A place for each process of the pipeline, still empty.
fn places(profile: &Profile) -> Vec<Slot> {
    let places = [
        (Role::Consumer, profile.consumers),
        (Role::Streamer, profile.streamers),
        (Role::Recounter, profile.recounters),
        (Role::Api, profile.apis),
    ];
    places.into_iter().flat_map(|(role, count)| (1..=count).map(move |nth| Slot::new(role, nth))).collect()
}

/// Readers at the door of every API, until the schedule ends.
fn start_readers(world: &World, profile: &Profile, slots: &[Slot], chance: &Chance) {
    for slot in slots.iter().filter(|slot| slot.role == Role::Api) {
        for nth in 1..=profile.readers {
            let (name, door) = (format!("reader-{nth} of {}", slot.name), slot.door.clone());
            let (crowd, pace) = (profile.crowd, profile.reader_pace);
            Reader { name, door, chance: chance.fork(), crowd, pace }.start(&world.host, world);
        }
    }
}

/// A schedule under way, with what is held against it.
struct Course {
    driver: Driver,
    events: Events,
    seen: Seen,
}

impl Course {
    async fn whole(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.disturbed().await?;
        self.rest().await?;
        self.quiet(outcome).await
    }

    /// Sends events and does deeds, and looks now and then.
    async fn disturbed(&mut self) -> anyhow::Result<()> {
        let steps = self.driver.profile.steps;
        for step in 0..steps {
            let due = self.driver.profile.events * (step + 1) / steps;
            while self.events.len() < due {
                let Driver { world, chance, .. } = &self.driver;
                self.events.say(&world.broker, chance, self.driver.crowd(), world.clock.now());
            }
            self.driver.world.pulse.beat();
            self.driver.tick();
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
        let Driver { world, profile, .. } = &self.driver;
        let (fences, rows) = world
            .calmly(async {
                loop {
                    let (before, rows) = (world.fences().await?, world.rows().await?);
                    // A commit in between would show rows newer than their fences.
                    if world.fences().await? == before {
                        return anyhow::Ok((before, rows));
                    }
                }
            })
            .await?;
        let offsets = fences.iter().map(|(partition, (offset, _))| (*partition, *offset)).collect();
        rows_are(&rows, &self.events.fold(&offsets), profile.shards)
            .context("rows are not the fold of their events")?;
        self.seen.fences(fences)?;
        let states = world.calmly(world.states()).await?;
        self.seen.checkpoints(states.into_iter().map(|state| state.checkpoint))?;
        let counters = world.calmly(world.counters(profile.crowd.all_counters())).await?;
        self.seen.counters(counters)?;
        world.trace.figures("look", &[rows.len() as u64, self.events.len()]);
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
        let deadline = now + REST;
        let mut since = None;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.unbroken()?;
            self.driver.tick();
            ensure!(Instant::now() < deadline, "no rest: {}", self.unrest().await?);
            let world = &self.driver.world;
            if since.is_none() && self.is_written().await? {
                since = Some(world.clock.now());
            }
            let Some(since) = since else { continue };
            let states = world.calmly(world.states()).await?;
            let mut open = states.iter().filter(|state| !state.checkpoint.closed).peekable();
            // Clocks of processes may be behind.
            let settled = since.plus(Duration::from_secs(4));
            if open.peek().is_some() && open.all(|state| state.checkpoint.at > settled) {
                return self.look().await;
            }
        }
    }

    /// Whether every event is in the rows and no ghost is left.
    async fn is_written(&self) -> anyhow::Result<bool> {
        let Driver { world, profile, .. } = &self.driver;
        let fences = world.calmly(world.fences()).await?;
        let written =
            |partition: u32| fences.get(&partition).is_some_and(|fence| fence.0 >= self.events.end(partition));
        Ok((0..profile.partitions).all(written) && world.emulator.stats().ghosts_pending == 0)
    }

    async fn unrest(&self) -> anyhow::Result<String> {
        let world = &self.driver.world;
        let fences = world.calmly(world.fences()).await?;
        let states = world.calmly(world.states()).await?;
        let open: Vec<_> = states.iter().filter(|state| !state.checkpoint.closed).collect();
        let said: BTreeMap<_, _> = fences.keys().map(|partition| (*partition, self.events.end(*partition))).collect();
        Ok(format!("fences {fences:?} of {said:?}, open stream shards {open:?}"))
    }

    /// Holds everything against the laws of quiet, before and after recounts have done what is left.
    async fn quiet(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let letters = self.driver.world.letters().await?;
        let poisoned = self.events.poisoned();
        ensure!(
            letters == poisoned,
            "{} records are no events, and {} have a dead letter",
            poisoned.len(),
            letters.len()
        );
        let lossless = !self.driver.profile.lossy;
        let verdicts = self.judged(outcome).await?;
        let rows = self.rows().await?;
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
        self.counted(&rows, exact).await.context("after the last recount")?;
        self.cached().await?;
        let stats = self.driver.world.emulator.stats();
        ensure!(stats.panics == 0, "the emulator panicked {} times", stats.panics);
        outcome.rows = u64::try_from(rows.values().sum::<i64>()).unwrap_or(0);
        self.driver.world.trace.figures("end", &[outcome.rows, outcome.verdicts]);
        Ok(())
    }

    async fn rows(&self) -> anyhow::Result<BTreeMap<tally_core::ids::RowKey, i64>> {
        let world = &self.driver.world;
        Ok(by_key(&world.calmly(world.rows()).await?))
    }

    async fn counted(
        &self,
        rows: &BTreeMap<tally_core::ids::RowKey, i64>,
        law: impl FnOnce(&Quiet<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.calmly(world.counters(profile.crowd.all_counters())).await?;
        law(&Quiet { rows, counters: &counters, shards: profile.shards })
    }

    /// The verdicts so far, each held against the stream.
    async fn judged(&mut self, outcome: &mut Outcome) -> anyhow::Result<Verdicts> {
        self.driver.keep().await?;
        let Driver { profile, archive, ledger, injections, .. } = &self.driver;
        let verdicts = Verdicts::of(ledger.clone(), archive)?;
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

    /// What is cached is nothing that the table never said.
    async fn cached(&self) -> anyhow::Result<()> {
        let Driver { world, profile, .. } = &self.driver;
        let counters = world.calmly(world.counters(profile.crowd.all_counters())).await?;
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
