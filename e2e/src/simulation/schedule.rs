//! Runs one schedule, a run of the simulation whose events and faults all follow from a seed: draws them, builds the
//! pipeline, carries out the run, and returns the outcome.

use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use tally_core::definitions::Definitions;
use tally_core::milestone::Ladder;
use tally_service::Chance;
use tokio::time::Instant;

use crate::simulation::abroad::{Abroad, Place};
use crate::simulation::course::Course;
use crate::simulation::driver::Driver;
use crate::simulation::events::Events;
use crate::simulation::instance::{Role, Slot};
use crate::simulation::mutant::Mutant;
use crate::simulation::outcome::Outcome;
use crate::simulation::profile::Profile;
use crate::simulation::readers::Reader;
use crate::simulation::world::World;
use crate::simulation::{self, Draws};

/// Separates the random numbers of counters other than likes from the others of a seed.
const OTHERS: u64 = 0x6f74_6865_7273;

/// The same for the choice whether relays and folds are separate processes.
const APART: u64 = 0x0061_7061_7274;

/// The same for what happens in a second Region.
const ABROAD: u64 = 0x0061_6272_6f61;

/// What a schedule consists of, besides what is drawn.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(about = None, long_about = None)]
pub struct Form {
    /// Number of events
    #[arg(long, default_value_t = 10_000)]
    pub events: u64,
    /// Record who reaches these totals first: `50`, `10,100`, or `every:50`
    #[arg(long, value_name = "LADDER")]
    pub milestones: Option<Ladder>,
    /// List what is trending from the log of changes, and compare every list with the rows
    #[arg(long)]
    pub trends: bool,
    /// Raise a claim, replace a consumer, or set the group back every second
    #[arg(long)]
    pub restless: bool,
    /// How many Regions there are: with 2, the second reads what the first publishes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub regions: u8,
}

/// Run one schedule and print its outcome as JSON
#[derive(Args, Clone, Debug, Default)]
pub struct Order {
    /// Seed of the schedule
    #[arg(long)]
    pub seed: u64,
    #[command(flatten)]
    pub form: Form,
    /// Mutant, which breaks a rule
    #[arg(long, value_name = "NAME")]
    pub mutant: Option<Mutant>,
    /// Do not break the rule, but run that mutant's schedule
    #[arg(long, requires = "mutant")]
    pub spared: bool,
    /// Kinds of faults that are left out
    #[arg(long, value_delimiter = ',')]
    pub without: Vec<String>,
    /// Include the last lines of the trace
    #[arg(long)]
    pub lines: bool,
}

impl Order {
    /// The flags that stand for it.
    pub(super) fn flags(&self) -> Vec<String> {
        let Self { seed, form, mutant, spared, without, lines } = self;
        let Form { events, milestones, trends, restless, regions } = form;
        let mut flags =
            vec![format!("--seed={seed}"), format!("--events={events}"), format!("--regions={}", regions.max(&1))];
        flags.extend(mutant.map(|mutant| format!("--mutant={}", mutant.name())));
        flags.extend(milestones.map(|ladder| format!("--milestones={ladder}")));
        flags.extend((!without.is_empty()).then(|| format!("--without={}", without.join(","))));
        let switches = [("--trends", trends), ("--restless", restless), ("--spared", spared), ("--lines", lines)];
        flags.extend(switches.into_iter().filter(|(_, is_on)| **is_on).map(|(name, _)| name.to_owned()));
        flags
    }
}

/// Runs one schedule in its own runtime, under paused time.
///
/// # Errors
/// The runtime cannot be created.
pub fn run(order: &Order) -> anyhow::Result<Outcome> {
    simulation::seed_randomness(order.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.context("cannot set up a runtime")?;
    Ok(runtime.block_on(Box::pin(schedule(order))))
}

async fn schedule(order: &Order) -> Outcome {
    let began = Instant::now();
    let chance = Chance::seeded(order.seed);
    let other = Chance::seeded(order.seed ^ OTHERS);
    let profile = profile(order, [&chance, &other]);
    let mut outcome = Outcome { seed: order.seed, ..Outcome::default() };
    let (world, abroad) = match worlds(order, &profile).await {
        Ok(worlds) => worlds,
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
        other,
        slots,
        defined: Definitions::likes_alone(),
        garbled: Vec::new(),
        forwards: Vec::new(),
        resets: Default::default(),
        resumes: None,
        replica: Vec::new(),
        adopting: None,
        lapse: None,
        unread: None,
        broker_back: None,
        letters_back: None,
        store_back: None,
        stir: order.form.restless.then_some(began),
    };
    let mut course = Course::of(driver, abroad);
    let held = course.whole(&mut outcome).await;
    let Course { driver: Driver { world, slots, .. }, events, fold, lists, .. } = course;
    outcome.broken = held.err().map(|error| format!("{error:#}"));
    outcome.hash = world.trace.hash();
    outcome.note("events", order.form.events);
    outcome.note("virtual_ms", u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    count_faults(&world, &events);
    fold.rare.iter().for_each(|(kind, count)| world.coverage.add(kind, *count));
    let (answers, lists) = (world.honesty.count(), lists.map(|lists| lists.judged).unwrap_or_default());
    outcome.note("answers", answers.answers);
    outcome.note("exact", answers.exact);
    outcome.note("fresh", answers.fresh);
    outcome.note("lists", lists.lists);
    outcome.note("lists_exact", lists.exact);
    outcome.note("lists_bounded", lists.bounded);
    outcome.faults = world.coverage.all();
    outcome.lines = if order.lines { world.trace.lines() } else { Vec::new() };
    for mut slot in slots {
        slot.kill().await;
    }
    outcome
}

/// The profile of the schedule: drawn, and then changed as ordered.
fn profile(order: &Order, chances: [&Chance; 2]) -> Profile {
    let mut profile = Profile::draw(chances, order.form.events, order.mutant, &order.without);
    if order.mutant.is_none() && Chance::seeded(order.seed ^ APART).happens(30) {
        (profile.apart, profile.streamers) = (true, profile.streamers * 2);
    }
    profile.milestones = order.form.milestones.unwrap_or(profile.milestones);
    if order.form.trends || order.mutant.is_some_and(Mutant::is_of_lists) {
        profile.list(order.seed, order.mutant);
        profile.spare(&order.without);
    }
    if order.form.restless {
        profile.unsettle();
    }
    profile
}

/// Adds the faults that are not actions to the coverage.
fn count_faults(world: &World, events: &Events) {
    let stats = world.emulator.stats();
    for (fault, count) in stats.faults.values().flatten().filter(|(fault, _)| **fault != "outage") {
        world.coverage.add(fault, *count);
    }
    world.coverage.add("ghost_applied", stats.ghosts_applied);
    world.coverage.add("stream_late", u64::from(world.honesty.is_of_a_late_stream()));
    world.coverage.add("poison", events.all().filter(|(.., record)| record.effect.is_none()).count() as u64);
    world.coverage.add("said_before_defined", events.all().filter(|(.., record)| record.early).count() as u64);
}

/// The world of a schedule, and the second Region where it has one.
async fn worlds(order: &Order, profile: &Profile) -> anyhow::Result<(Arc<World>, Option<Abroad>)> {
    let has_two = order.form.regions > 1 || order.mutant.is_some_and(Mutant::is_of_regions);
    let world = Arc::new(World::new(profile, has_two.then_some(Place::Home)).await?);
    if !has_two {
        return Ok((world, None));
    }
    let (mutant, chance) = (order.mutant.filter(|_| !order.spared), Chance::seeded(order.seed ^ ABROAD));
    let abroad = Abroad::start(&world, profile, mutant, &chance).await?;
    Ok((world, Some(abroad)))
}

/// An empty place for each process of the pipeline.
fn places(profile: &Profile) -> Vec<Slot> {
    let places = [
        (Role::Consumer, profile.consumers),
        (Role::Streamer, profile.streamers),
        (Role::Recounter, profile.recounters),
        (Role::Api, profile.apis),
        (Role::Trends, profile.listing.as_ref().map_or(0, |listing| listing.members)),
    ];
    places.into_iter().flat_map(|(role, count)| (1..=count).map(move |nth| Slot::new(role, nth))).collect()
}

/// Starts the readers of every API, which run until the schedule ends.
fn start_readers(world: &Arc<World>, profile: &Profile, slots: &[Slot], chance: &Chance) {
    for slot in slots.iter().filter(|slot| slot.role == Role::Api) {
        for nth in 1..=profile.readers {
            let (name, door) = (format!("reader-{nth} of {}", slot.name), slot.door.clone());
            let (counters, pace) = (profile.counters().collect(), profile.reader_pace);
            Reader { name, door, chance: chance.fork(), counters, pace }.start(world);
        }
    }
}
