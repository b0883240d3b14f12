//! The attack `regions`: two Regions, each with a pipeline, a load and readers of its own, and a mirror that copies
//! topics between them in both directions.
//!
//! A process of either Region is killed; the mirror is killed, stands still, or begins at the beginning; a Region is
//! away. Readers ask both APIs all the time: a sum that is called exact has to be one of the rows of both Regions, and
//! each part one of its own. After each round both APIs have to be exact and up to date again, at the end with the sum
//! of both.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_adapters::kafka;
use tally_adapters::memory::Mirror;
use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_service::{Chance, Host, Stop};
use tally_testkit::until;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::attack::campaign::Extent;
use crate::attack::engines::{Engines, Roles};
use crate::attack::fleet::{Fleet, Launcher, Slot};
use crate::attack::load::{Counted, Parts};
use crate::attack::stage::{Ground, SETTLES, Stage, Under, well};
use crate::simulation::Draws;
use crate::simulation::honest::{Count, Honesty};

const NAMES: [&str; 2] = ["eu", "us"];
/// The topic that each publishes in, and what it is called where it is copied to.
const COUNTS: &str = "counts";
const COPIES: [&str; 2] = ["eu.counts", "us.counts"];

/// How often a mirror copies.
const EVERY: Duration = Duration::from_millis(200);

/// How long both Regions may take to be exact again.
const PATIENCE: Duration = Duration::from_secs(120);

/// The shortest and the longest time in milliseconds for which the mirror or a Region is away.
const SHORTEST: u64 = 2_000;
const LONGEST: u64 = 25_000;

/// What a round does.
#[derive(Clone, Copy)]
enum Act {
    Kill,
    MirrorDies,
    MirrorStands,
    MirrorBeginsAgain,
    Away,
}

const ACTS: [(Act, &str); 5] = [
    (Act::Kill, "process killed"),
    (Act::MirrorDies, "mirror killed"),
    (Act::MirrorStands, "mirror stood still"),
    (Act::MirrorBeginsAgain, "mirror repeated all"),
    (Act::Away, "Region was away"),
];

/// What the mirror is told.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Copy,
    Stand,
    /// To lose what it has in memory.
    Die,
    BeginAgain,
}

/// Both Regions, and the mirror between them.
struct Regions {
    stages: Vec<Stage>,
    parts: Parts,
    orders: watch::Sender<Order>,
    mirrors: Host,
    chance: Chance,
}

pub(super) async fn fight(program: &Path, ground: Ground, extent: Extent, under: Under) -> anyhow::Result<String> {
    let began = Instant::now();
    let regions = Regions::begin(program, ground, under).await?;
    for (round, (act, name)) in ACTS.into_iter().cycle().enumerate().take(extent.rounds) {
        let healed = Box::pin(regions.round(act)).await;
        let tails = |text: String, stage: &Stage| stage.fleet.tails(&text);
        let healed = healed.with_context(|| regions.stages.iter().fold(format!("round {round}, {name}"), tails))?;
        regions.stages[0].report.recovered(format!("exact: {name}"), healed);
    }
    regions.fall_silent().await?;
    let Regions { stages, parts, orders: _orders, mirrors, .. } = regions;
    let mut text = String::new();
    for (name, stage) in NAMES.into_iter().zip(stages) {
        let report = Box::pin(stage.judge()).await.context(name)?;
        let took = began.elapsed().as_secs_f64();
        text += &format!("regions, {name}: seed {}, {took:.0} s\n{report}", ground.seed);
    }
    well(&mirrors)?;
    for (name, part) in &parts {
        let Count { answers, exact, lies, .. } = part.verdict().with_context(|| format!("the part of {name}"))?;
        text += &format!("  parts of {name} answered         {answers}, {exact} exact, {lies} wrong\n");
    }
    Ok(text)
}

impl Regions {
    async fn begin(program: &Path, ground: Ground, under: Under) -> anyhow::Result<Self> {
        let brokers = [ground.broker, under.remote_broker];
        ensure!(brokers[0].is_some() == brokers[1].is_some(), "--broker and --remote-broker need each other");
        let mut engines = Vec::new();
        for (broker, copy) in brokers.into_iter().zip([COPIES[1], COPIES[0]]) {
            let tasks = Host::new("attack");
            let started = Engines::start(&tasks, broker, Roles::Kept, under.redis, &[COUNTS, copy]).await?;
            engines.push((tasks, Arc::new(started)));
        }
        let part = |(name, (_, engines)): (_, &(Host, Arc<Engines>))| {
            (name, Honesty::of(vec![engines.history.clone()], SETTLES, Duration::ZERO))
        };
        let parts: Parts = NAMES.into_iter().zip(&engines).map(part).collect();
        let (mirrors, orders) = (Host::new("mirrors"), watch::Sender::new(Order::Copy));
        for (from, to, copy) in [(0, 1, COPIES[0]), (1, 0, COPIES[1])] {
            let mirror = between(engines[from].1.broker, engines[to].1.broker, copy)?;
            let heard = orders.subscribe();
            let name = format!("mirror to {}", NAMES[to]);
            mirrors.worker(tally_service::Stage::Intake, &name, move |stop| copies(mirror, heard, stop));
        }
        let others = [1, 0].map(|other| Arc::clone(&engines[other].1));
        let (mut stages, mut seed) = (Vec::new(), ground.seed);
        for (nth, ((tasks, engines), other)) in engines.into_iter().zip(others).enumerate() {
            let launcher = Launcher::new(program, &engines);
            launcher.tell("TALLY_REGION_NAME", NAMES[nth]);
            launcher.tell("TALLY_REMOTE", &format!("{}={}", NAMES[1 - nth], COPIES[1 - nth]));
            let fleet = Fleet::start(launcher, 2).await?;
            let knows = async || named(&fleet).await == Some(NAMES.len());
            until("the api to know both Regions", PATIENCE, knows).await?;
            let abroad = Some((other, parts.clone()));
            stages.push(Stage::over(tasks, engines, fleet, seed, under, abroad).await?);
            seed += 1;
        }
        let regions = Self { stages, parts, orders, mirrors, chance: Chance::seeded(ground.seed) };
        regions.healed().await?;
        Ok(regions)
    }

    /// Does one thing, and returns how long it took until both Regions were exact again.
    async fn round(&self, act: Act) -> anyhow::Result<Duration> {
        let wait = self.chance.millis(SHORTEST, LONGEST);
        let nth = self.chance.place(NAMES.len());
        let (here, there) = (&self.stages[nth], &self.stages[1 - nth]);
        match act {
            Act::Kill => {
                let slots = &here.fleet.slots;
                kill(here, std::slice::from_ref(&slots[self.chance.place(slots.len())])).await?;
                revive(here)?;
            }
            Act::MirrorDies => self.mirror_is(Order::Die, wait).await,
            Act::MirrorStands => self.mirror_is(Order::Stand, wait).await,
            Act::MirrorBeginsAgain => _ = self.orders.send_replace(Order::BeginAgain),
            Act::Away => {
                kill(here, &here.fleet.slots).await?;
                let before = there.honesty.count().exact;
                self.mirror_is(Order::Stand, wait).await;
                ensure!(there.honesty.count().exact > before, "nothing was exact while the other Region was away");
                revive(here)?;
            }
        }
        let took = self.healed().await?;
        well(&self.mirrors)?;
        self.stages.iter().try_for_each(Stage::all_well)?;
        Ok(took)
    }

    async fn mirror_is(&self, order: Order, wait: Duration) {
        self.orders.send_replace(order);
        sleep(wait).await;
        self.orders.send_replace(Order::Copy);
    }

    /// Waits until both APIs call the likes of every post exact, with everything from before now in either Region.
    async fn healed(&self) -> anyhow::Result<Duration> {
        let since = self.stages[0].clock.now();
        let is_exact = async || {
            for stage in &self.stages {
                if !is_exact(stage, since).await {
                    return false;
                }
            }
            true
        };
        until("both Regions to be exact again", PATIENCE, is_exact).await
    }

    /// Ends the load, and waits until both Regions have all of it.
    async fn fall_silent(&self) -> anyhow::Result<()> {
        for stage in &self.stages {
            stage.all_well()?;
            stage.fall_silent().await;
        }
        for stage in &self.stages {
            stage.counted().await?;
        }
        self.healed().await?;
        Ok(())
    }
}

/// How many Regions the answers of this fleet's API name.
async fn named(fleet: &Fleet) -> Option<usize> {
    let post = PostId::new("p-0").ok()?;
    Counted::ask(fleet.api().public()?, &post).await.map(|counted| counted.regions.len())
}

async fn is_exact(stage: &Stage, since: UnixMillis) -> bool {
    let Some(address) = stage.fleet.api().public() else { return false };
    for post in stage.crowd.posts() {
        if !Counted::ask(address, &post).await.is_some_and(|counted| counted.is_exact(since)) {
            return false;
        }
    }
    true
}

async fn kill(stage: &Stage, slots: &[Slot]) -> anyhow::Result<()> {
    stage.fleet.weigh();
    for slot in slots {
        slot.process().kill().await?;
    }
    Ok(())
}

/// Starts a new process in each place whose process was killed.
fn revive(stage: &Stage) -> anyhow::Result<()> {
    let mut killed = stage.fleet.slots.iter().filter(|slot| !slot.process().is_running());
    killed.try_for_each(|slot| stage.fleet.refill(slot).map(drop))
}

/// A mirror from the topic of counts in one Kafka to a copy in another.
fn between(from: SocketAddr, to: SocketAddr, copy: &str) -> anyhow::Result<Mirror> {
    let settings = |broker: SocketAddr| kafka::Settings::plaintext(&broker.to_string());
    let reader = kafka::TopicReader::new(&settings(from), "mirror", COUNTS)?;
    Ok(Mirror::new(Arc::new(reader), Arc::new(kafka::Producer::new(&settings(to))?), copy))
}

/// Copies as it is told. An order comes at any moment, also while some records of many are sent.
async fn copies(mut mirror: Mirror, mut orders: watch::Receiver<Order>, stop: Stop) -> anyhow::Result<()> {
    loop {
        let order = *orders.borrow_and_update();
        match order {
            Order::Die => mirror.forget(),
            Order::BeginAgain => mirror.begin_again(),
            Order::Copy | Order::Stand => {}
        }
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            changed = orders.changed() => if changed.is_err() { return Ok(()) },
            () = copy_on(&mut mirror), if matches!(order, Order::Copy | Order::BeginAgain) => {}
        }
    }
}

async fn copy_on(mirror: &mut Mirror) {
    loop {
        // A fault passes, or the Regions do not become exact again.
        if mirror.read().await.is_ok() {
            let _ = mirror.copy().await;
        }
        sleep(EVERY).await;
    }
}
