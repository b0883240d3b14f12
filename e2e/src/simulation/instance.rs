//! One process of a schedule: a service's `App` with clients, clock and chance of its own, that can be started, killed,
//! stopped and frozen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tally_adapters::dynamodb::{self, Connection};
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::ports::{Cache, ChangeStream, Checkpoints, Counts, FencedRows, Intake};
use tally_core::tally::CutRules;
use tally_core::window::CaptureLimits;
use tally_count_api as api;
use tally_service::{Chance, Clock, Condition, Ended, Host, Running, Standstill, UnixMillis};
use tokio::time::Instant;

use super::cache::WatchedCache;
use super::chance::Draws;
use super::door::Door;
use super::events::{LETTERS, TOPIC};
use super::gate::Gate;
use super::kafka::{GatedIntake, GatedProducer};
use super::mutant::Mutant;
use super::ports::{MutatedCheckpoints, MutatedCounts, MutatedMarkers, MutatedRows, MutatedStream, Shadows, Watch};
use super::profile::Profile;
use super::wire::Wire;
use super::world::{Tables, World, settings};

/// The group of all consumers.
pub(crate) const GROUP: &str = "tally-consumer";

/// What a consumer's `--lanes` may be.
const LANES: [&str; 6] = ["1", "2", "4", "8", "16", "auto"];

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Consumer,
    Streamer,
    Recounter,
    Api,
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
        let tables = self.tables(&connection, world, profile, mutant, &host, watch);
        let running = match self.role {
            Role::Consumer => Running::start(consumer_app(world, profile, mutant, tables, &log, chance), host),
            Role::Streamer => Running::start(streamer_app(world, profile, tables, &gate, chance, mutant), host),
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

    /// Ports of the tables, but for the rule that `mutant` breaks.
    fn tables(
        &self,
        connection: &Connection,
        world: &World,
        profile: &Profile,
        mutant: Option<Mutant>,
        host: &Host,
        watch: Option<Watch>,
    ) -> Tables {
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
        if misread || mutant == Mutant::NoHold && self.role == Role::Streamer {
            tables.checkpoints = Arc::new(MutatedCheckpoints {
                inner: tables.checkpoints as Arc<dyn Checkpoints>,
                mutant,
                truth: world.calm.checkpoints.clone(),
                host: world.host.clone(),
                earlier: Mutex::default(),
                watch,
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

fn consumer_app(
    world: &World,
    profile: &Profile,
    mutant: Option<Mutant>,
    tables: Tables,
    gate: &Gate,
    chance: &Chance,
) -> consumer::App {
    let (broker, reader, behind) = (world.broker.clone(), world.broker.clone(), gate.clone());
    let rows: Arc<dyn FencedRows> = match mutant {
        Some(Mutant::Presumed) => Arc::new(MutatedRows(tables.likes)),
        _ => tables.likes,
    };
    let producer = GatedProducer {
        broker: world.broker.clone(),
        gate: gate.clone(),
        chance: chance.fork(),
        lossy: true,
        coverage: world.coverage.clone(),
    };
    let ports = consumer::Ports {
        checkpoints: tables.checkpoints,
        rows: Box::new(move |_| rows),
        maps: tables.maps,
        join: Box::new(move || {
            let inner = Box::new(broker.join(GROUP, TOPIC));
            Ok(Box::new(GatedIntake { inner, gate: behind, held: None }) as Box<dyn Intake>)
        }),
        producer: Arc::new(producer),
        reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
    };
    let lanes = if profile.lanes { chance.pick(&LANES) } else { LANES[0] };
    let settings = consumer::ReadSettings { lanes: lanes.parse().expect("it is one"), ..read_settings(profile) };
    consumer::App::with_ports(consumer::Mode::Consume, settings, ports)
}

/// What every mode of the consumer is set up with.
pub(crate) fn read_settings(profile: &Profile) -> consumer::ReadSettings {
    consumer::ReadSettings {
        topic: TOPIC.to_owned(),
        dead_letter_topic: LETTERS.to_owned(),
        group: GROUP.to_owned(),
        shards: Some(profile.shards),
        ..consumer::ReadSettings::default()
    }
}

fn streamer_app(
    world: &World,
    profile: &Profile,
    tables: Tables,
    gate: &Gate,
    chance: &Chance,
    mutant: Option<Mutant>,
) -> streamer::App {
    let rules = streamer::Rules {
        cut: CutRules { records: profile.prefix, age: Duration::from_millis(20) },
        poll: streamer::PollRules { busy: Duration::from_millis(25), idle: Duration::from_millis(500) },
        discover: Duration::from_secs(5),
        lease: profile.leases.then_some(Duration::from_secs(6)),
        window: CaptureLimits { members: 10_000, age: Duration::from_secs(3_600) },
        milestones: profile.milestones,
        ..streamer::Rules::default()
    };
    let config = streamer::Config::plain("", Some(profile.shards), rules);
    let ports = streamer::Ports {
        stream: tables.stream,
        counts: tables.counts,
        checkpoints: tables.checkpoints,
        recounts: tables.recounts,
        cache: Some(watched_cache(world, profile, gate, chance, mutant)),
        feed: None,
        changes: None,
    };
    streamer::App::with_ports(config, ports)
}

fn api_app(
    world: &World,
    profile: &Profile,
    tables: Tables,
    gate: &Gate,
    chance: &Chance,
    mutant: Option<Mutant>,
) -> api::App {
    let cache = profile.cached.then(|| watched_cache(world, profile, gate, chance, mutant));
    let table = api::read::Bounds { budget: profile.table_budget, ..api::Config::default().table };
    let config = api::Config { local_ttl: profile.local_ttl, table, ..api::Config::default() };
    let ports = api::Ports {
        counts: tables.counts,
        rows: tables.rows,
        maps: tables.maps,
        checkpoints: tables.checkpoints,
        stream: tables.stream,
        recounts: tables.recounts,
        cache,
        producer: None,
    };
    api::App::with_ports(config, ports)
}

fn watched_cache(
    world: &World,
    profile: &Profile,
    gate: &Gate,
    chance: &Chance,
    mutant: Option<Mutant>,
) -> Arc<dyn Cache> {
    Arc::new(WatchedCache {
        inner: world.cache.clone(),
        gate: gate.clone(),
        chance: chance.fork(),
        failing: profile.cache_failing,
        keeps_older: mutant == Some(Mutant::OlderVersionKept),
        breaches: world.breaches.clone(),
        coverage: world.coverage.clone(),
    })
}

fn recount_app(profile: &Profile, mutant: Option<Mutant>, tables: Tables) -> recount::App {
    let mut rules = recount::Rules {
        segments: 2,
        report: Duration::from_secs(10),
        watch: Duration::from_secs(1),
        force: true,
        ..recount::Rules::default()
    };
    let mut markers = tables.markers;
    if mutant == Some(Mutant::OneWait) {
        let wait = std::mem::take(&mut rules.guard);
        markers = Arc::new(MutatedMarkers { inner: markers, wait });
    }
    let config = recount::Config {
        table_prefix: String::new(),
        shards: Some(profile.shards),
        job: recount::Job::Recount(recount::RecountConfig { scope: recount::Scope::Watch, dry_run: false, rules }),
    };
    let ports = recount::Ports {
        stream: tables.stream,
        rows: tables.rows,
        maps: tables.maps,
        markers,
        counts: tables.counts,
        checkpoints: tables.checkpoints,
        recounts: tables.recounts,
        producer: None,
    };
    recount::App::with_ports(config, ports)
}
