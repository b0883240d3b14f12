//! One process of a schedule: a service's `App` with clients, clock and chance of its own, that can be started, killed,
//! stopped and frozen.

mod apps;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tally_adapters::dynamodb::{self, Connection};
use tally_core::ports::{ChangeStream, Checkpoints, Counts};
use tally_service::{Chance, Clock, Condition, Ended, Host, Running, Standstill, UnixMillis};
use tokio::time::Instant;

use super::door::Door;
use super::gate::Gate;
use super::mutant::Mutant;
use super::ports::{MutatedCheckpoints, MutatedCounts, MutatedStream, Shadows, UnderWay, Watch};
use super::profile::Profile;
use super::wire::Wire;
use super::world::{Tables, World, settings};
use apps::{Streaming, api_app, consumer_app, recount_app, streamer_app, trends_app};

pub(crate) use apps::read_settings;

/// The group of all consumers.
pub(crate) const GROUP: &str = "tally-consumer";

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consumer,
    Streamer,
    Recounter,
    Api,
    /// It lists what is trending.
    Trends,
}

/// A place for a process, which may have several lives.
pub(crate) struct Slot {
    pub(crate) role: Role,
    pub(crate) name: String,
    pub(crate) life: Option<Life>,
    /// When it is started again.
    pub(crate) due: Option<Instant>,
    /// Where an API is asked.
    pub(crate) door: Door,
    lives: u64,
    shadows: Shadows,
}

/// What a mutant's ports need of their process.
struct Tampered<'a> {
    mutant: Option<Mutant>,
    host: &'a Host,
    watch: Option<Watch>,
    under_way: UnderWay,
}

/// One life of a process.
pub(crate) struct Life {
    running: Running,
    wire: Gate,
    log: Gate,
    /// Stops an API's tasks as well: what it knows grows old unseen.
    tasks: Standstill,
    /// When the store, and then the log, may be reached again.
    pub(crate) thaws: Option<(Instant, Instant)>,
}

impl Slot {
    /// A place with no process in it yet.
    pub(crate) fn new(role: Role, nth: u64) -> Self {
        let name = match role {
            Role::Consumer => format!("consumer-{nth}"),
            Role::Streamer => format!("streamer-{nth}"),
            Role::Recounter => format!("recounter-{nth}"),
            Role::Api => format!("api-{nth}"),
            Role::Trends => format!("trends-{nth}"),
        };
        let (due, door, shadows) = (Some(Instant::now()), Door::default(), Shadows::default());
        Self { role, name, life: None, due, door, lives: 0, shadows }
    }

    /// Starts the process, whose clock says `now`.
    pub(crate) fn start(
        &mut self,
        world: &World,
        profile: &Profile,
        mutant: Option<Mutant>,
        chance: &Chance,
        now: UnixMillis,
    ) {
        self.lives += 1;
        self.due = None;
        let mut wire = Wire::new(&self.name, &world.emulator, &world.trace, &world.coverage);
        (wire.mutant, wire.rude) = (mutant, !profile.claims);
        wire.shadows = self.shadows.clone();
        let (gate, log) = (wire.gate.clone(), Gate::default());
        let connection = Connection::in_process(&settings(), wire, world.clock.now());
        let (host, tasks) = (Host::new(&self.name), Standstill::default());
        let (clock, watch) = match mutant {
            Some(Mutant::AgeByPoller) if self.role == Role::Api => {
                let (clock, watch) = Watch::starting_at(now);
                (clock, Some(watch))
            }
            _ => (Clock::starting_at(now), None),
        };
        let host = host.with_clock(clock).with_chance(chance.fork());
        let tampered = Tampered { mutant, host: &host, watch, under_way: UnderWay::default() };
        let under_way = tampered.under_way.clone();
        let tables = self.tables(&connection, world, profile, tampered);
        let running = match self.role {
            Role::Consumer => Running::start(consumer_app(world, profile, mutant, tables, &log, chance), host),
            Role::Streamer => {
                let unfed = self.is_unfed(mutant);
                let streaming = Streaming { gates: [&gate, &log], host: &host, under_way, unfed };
                Running::start(streamer_app(world, profile, tables, &streaming, chance, mutant), host)
            }
            Role::Trends => {
                let listing = profile.listing.as_ref().expect("there is a place for it where there are lists");
                Running::start(trends_app(world, listing, mutant, tables, &log, &host), host)
            }
            Role::Recounter => Running::start(recount_app(profile, mutant, tables), host),
            Role::Api => {
                let (app, front) = api_app(world, profile, tables, &gate, chance, mutant).in_process();
                self.door.open(front);
                Running::start(app, host.with_standstill(tasks.clone()))
            }
        };
        if self.role == Role::Streamer {
            world.honesty.clock_is_ahead(now.since(world.clock.now()));
        }
        world.trace.note(&format!("{} life {}", self.name, self.lives));
        self.life = Some(Life { running, wire: gate, log, tasks, thaws: None });
    }

    /// Whether it leaves the ledger to the others.
    fn is_unfed(&self, mutant: Option<Mutant>) -> bool {
        mutant == Some(Mutant::FedByOthers) && self.name == "streamer-2"
    }

    /// Ports of the tables, but for the rule that `mutant` breaks.
    fn tables(&self, connection: &Connection, world: &World, profile: &Profile, tampered: Tampered<'_>) -> Tables {
        let Tampered { mutant, host, watch, under_way } = tampered;
        let mut tables = Tables {
            likes: Arc::new(dynamodb::Likes::new(connection, profile.shards)),
            rows: Arc::new(dynamodb::Rows::new(connection)),
            markers: Arc::new(dynamodb::Markers::new(connection)),
            maps: Arc::new(dynamodb::Maps::new(connection)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            stream: Arc::new(dynamodb::Streams::new(connection)),
        };
        let Some(mutant) = mutant else { return tables };
        if mutant.is_of_captures() && self.role == Role::Streamer {
            tables.stream = Arc::new(MutatedStream {
                inner: tables.stream as Arc<dyn ChangeStream>,
                mutant,
                shadows: self.shadows.clone(),
                counts: Arc::clone(&tables.counts),
                checkpoints: Arc::clone(&tables.checkpoints),
                recounts: Arc::clone(&tables.recounts),
                host: host.clone(),
                label: Mutex::default(),
            });
        }
        let misread = mutant.is_of_reading() && self.role == Role::Api;
        let misstated = self.role == Role::Streamer
            && (matches!(mutant, Mutant::NoHold | Mutant::TwoUnderWay) || self.is_unfed(Some(mutant)));
        let forgotten = mutant == Mutant::LossForgotten && self.role == Role::Trends;
        if misread || misstated || forgotten {
            tables.checkpoints = Arc::new(MutatedCheckpoints {
                inner: tables.checkpoints as Arc<dyn Checkpoints>,
                mutant,
                truth: world.calm.checkpoints.clone(),
                host: world.host.clone(),
                earlier: Mutex::default(),
                watch,
                under_way,
            });
        }
        let counted = matches!(mutant, Mutant::Pipelined | Mutant::NoFloor | Mutant::NoBoundary | Mutant::SilentZero);
        if counted || mutant.is_of_milestones() && self.role == Role::Streamer {
            tables.counts = Arc::new(MutatedCounts {
                inner: tables.counts as Arc<dyn Counts>,
                mutant,
                host: host.clone(),
                tamper: world.tamper(),
                earlier: Mutex::new(BTreeMap::new()),
            });
        }
        tables
    }

    /// The end of the process that it was not asked for, if there was one.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.life.as_ref()?.running.ended().now_or_never()
    }

    /// The partitions that it leaves alone because a cell is ahead of the fence.
    pub(crate) fn ahead(&self) -> Vec<u32> {
        let conditions = self.life.as_ref().map(|life| life.running.host().readiness().report().conditions);
        let stands = |(name, condition): (String, Condition)| match condition {
            Condition::NotReady(why) if why.contains("but the cell of") => {
                name.strip_prefix("partition-")?.parse().ok()
            }
            _ => None,
        };
        conditions.into_iter().flatten().filter_map(stands).collect()
    }

    /// Ends it as a crash does.
    pub(crate) async fn kill(&mut self) {
        self.door.close();
        if let Some(life) = self.life.take() {
            life.running.kill().await;
        }
    }

    /// Stops it in order; whether it said that all was well.
    pub(crate) async fn stop(&mut self) -> bool {
        match self.life.take() {
            Some(life) => {
                self.door.close();
                life.wire.open();
                life.log.open();
                life.tasks.end();
                life.running.stop(Duration::from_secs(30)).await.exit().is_clean()
            }
            None => true,
        }
    }

    /// Freezes it; its store answers again at the first of two moments, its log at the second.
    pub(crate) fn freeze(&mut self, thaws: (Instant, Instant)) {
        if let Some(life) = &mut self.life {
            life.wire.shut();
            life.log.shut();
            if self.role == Role::Api {
                self.door.standstill.begin();
                life.tasks.begin();
            }
            life.thaws = Some(thaws);
        }
    }

    /// Thaws what is due by `now`.
    pub(crate) fn thaw(&mut self, now: Instant) {
        let Some(life) = &mut self.life else { return };
        let Some((wire, log)) = life.thaws else { return };
        if now >= wire {
            life.wire.open();
            self.door.standstill.end();
            life.tasks.end();
        }
        if now >= log {
            life.log.open();
            life.thaws = None;
        }
    }
}
