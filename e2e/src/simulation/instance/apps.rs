//! The app of each service as a process of a schedule has it: its settings, and its ports but for the rule that a mutant breaks.

use std::sync::Arc;
use std::time::Duration;

use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::ports::{Cache, FencedRows, Intake, Producer};
use tally_core::tally::CutRules;
use tally_core::window::CaptureLimits;
use tally_count_api as api;
use tally_service::{Chance, Host};
use tally_trends as trends;

use super::super::cache::WatchedCache;
use super::super::chance::Draws;
use super::super::events::{LETTERS, TOPIC};
use super::super::gate::Gate;
use super::super::kafka::{GatedIntake, GatedProducer};
use super::super::lists::{self, BOARDS, CHANGES};
use super::super::mutant::Mutant;
use super::super::ports::{EarlyProducer, LedgerIntake, LedgerProducer, MutatedMarkers, MutatedRows, UnderWay};
use super::super::profile::{Listing, Profile};
use super::super::world::{Tables, World};
use super::GROUP;

/// What a consumer's `--lanes` may be.
const LANES: [&str; 6] = ["1", "2", "4", "8", "16", "auto"];

pub(super) fn consumer_app(
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

/// What a streamer has of its process.
pub(super) struct Streaming<'a> {
    /// Its gates to the store and to the log.
    pub(super) gates: [&'a Gate; 2],
    pub(super) host: &'a Host,
    /// What it has on its way to the ledger.
    pub(super) under_way: UnderWay,
    /// It does not write the ledger.
    pub(super) unfed: bool,
}

pub(super) fn streamer_app(
    world: &World,
    profile: &Profile,
    tables: Tables,
    streaming: &Streaming<'_>,
    chance: &Chance,
    mutant: Option<Mutant>,
) -> streamer::App {
    let changes = profile.listing.as_ref().filter(|_| !streaming.unfed);
    let changes = changes.map(|listing| changes_port(world, listing, mutant, streaming));
    let [gate, _] = streaming.gates;
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
        changes,
    };
    streamer::App::with_ports(config, ports)
}

fn changes_port(
    world: &World,
    listing: &Listing,
    mutant: Option<Mutant>,
    streaming: &Streaming<'_>,
) -> streamer::ChangesPort {
    let [_, gate] = streaming.gates;
    let inner = ledger_producer(world, listing, gate);
    let early = |line| {
        let (inner, host, under_way) = (inner.clone(), streaming.host.clone(), streaming.under_way.clone());
        Arc::new(EarlyProducer { inner, host, line, under_way }) as Arc<dyn Producer>
    };
    let producer = match mutant {
        Some(Mutant::FedBeforeAnswer) => early(Some(Arc::default())),
        Some(Mutant::TwoUnderWay) => early(None),
        _ => Arc::new(inner),
    };
    let log = Arc::new(world.broker.reader("streamer", CHANGES));
    streamer::ChangesPort { producer, topic: CHANGES.to_owned(), log }
}

fn ledger_producer(world: &World, listing: &Listing, gate: &Gate) -> LedgerProducer {
    LedgerProducer {
        broker: world.broker.clone(),
        clock: world.clock,
        gate: gate.clone(),
        chance: listing.chance.fork(),
        failing: listing.failing,
        host: world.host.clone(),
        coverage: world.coverage.clone(),
    }
}

/// One that lists what is trending.
pub(super) fn trends_app(
    world: &World,
    listing: &Listing,
    mutant: Option<Mutant>,
    tables: Tables,
    gate: &Gate,
    host: &Host,
) -> trends::App {
    let windows = lists::windows();
    let longest = windows.iter().map(|window| window.span()).max().unwrap_or_default();
    let (broker, gate_of_log, chance, clock) =
        (world.broker.clone(), gate.clone(), listing.chance.fork(), host.clock());
    let join = move || {
        let inner = Box::new(broker.join(lists::GROUP, CHANGES));
        let inner = Box::new(GatedIntake { inner, gate: gate_of_log, held: None });
        Ok(Box::new(LedgerIntake { inner, mutant, chance, clock, longest }) as Box<dyn Intake>)
    };
    let ports = trends::Ports {
        checkpoints: tables.checkpoints,
        stream: tables.stream,
        join: Box::new(join),
        changes: Arc::new(world.broker.reader("trends", CHANGES)),
        boards: Arc::new(world.broker.reader("trends", BOARDS)),
        producer: Arc::new(ledger_producer(world, listing, gate)),
    };
    let least = if mutant == Some(Mutant::NoRefill) { 0 } else { lists::RULES.least };
    let boards = trends::BoardRules { least, ..lists::RULES };
    let rules = trends::Rules { windows, boards, regions: listing.regions, keys: listing.keys };
    trends::App::with_ports(trends::Topics { changes: CHANGES.to_owned(), boards: BOARDS.to_owned() }, rules, ports)
}

pub(super) fn api_app(
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

pub(super) fn recount_app(profile: &Profile, mutant: Option<Mutant>, tables: Tables) -> recount::App {
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
