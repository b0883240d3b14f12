//! The app of each service as a process of a schedule has it: its settings, and its ports but for the rule that a mutant breaks.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::Connection;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::cached::Cache;
use tally_core::ports::{Intake, Producer, TopicReader};
use tally_count_api as api;
use tally_service::{Chance, Clock, Host};
use tally_trends as trends;

use crate::simulation::cache::WatchedCache;
use crate::simulation::events::{LETTERS, TOPIC};
use crate::simulation::instance::{FOLDS, GROUP, Role};
use crate::simulation::intake::{Beyond, FaultyIntake, FaultyReader, Gate, GatedIntake, GatedProducer};
use crate::simulation::journal::CHANGES;
use crate::simulation::lists::{self, BOARDS};
use crate::simulation::mutant::Mutant;
use crate::simulation::producer::{EarlyProducer, FaultyProducer, UnderWay};
use crate::simulation::profile::Profile;
use crate::simulation::profile::targets::Listing;
use crate::simulation::rewrite::{Asked, Rewriter};
use crate::simulation::world::World;

/// A process that is about to be started.
pub(super) struct Process<'a> {
    pub(super) role: Role,
    /// What of a streamer it is.
    pub(super) part: streamer::Role,
    pub(super) world: &'a World,
    pub(super) profile: &'a Profile,
    pub(super) mutant: Option<Mutant>,
    pub(super) chance: &'a Chance,
    pub(super) connection: &'a Connection,
    /// Its gates to the store and to the log.
    pub(super) wire: Gate,
    pub(super) log: Gate,
    pub(super) clock: Clock,
    pub(super) host: Host,
    /// What it has on its way to the log, and what it has asked of it.
    pub(super) under_way: UnderWay,
    pub(super) asked: Asked,
    /// What a mutant commits.
    pub(super) beyond: Option<Beyond>,
}

/// How a consumer reads.
fn read_settings(profile: &Profile) -> consumer::ReadSettings {
    consumer::ReadSettings {
        batch_rows: profile.consuming.statements,
        concurrency: profile.consuming.requests,
        tombstones: profile.consuming.tombstones,
        topic: TOPIC.to_owned(),
        dead_letter_topic: Some(LETTERS.to_owned()),
        shards: Some(profile.shards),
        ..consumer::ReadSettings::default()
    }
}

impl Process<'_> {
    pub(super) fn consumer(&self) -> consumer::App {
        let (broker, reader, behind) = (self.world.broker.clone(), self.world.broker.clone(), self.log.clone());
        let beyond = self.beyond.clone();
        let producer = GatedProducer {
            broker: self.world.broker.clone(),
            gate: self.log.clone(),
            chance: self.chance.fork(),
            lossy: true,
            coverage: self.world.coverage.clone(),
        };
        let ports = consumer::Ports {
            join: Box::new(move || {
                let inner = Box::new(broker.join(GROUP, TOPIC));
                Ok(Box::new(GatedIntake { inner, gate: behind, held: None, beyond }) as Box<dyn Intake>)
            }),
            producer: Arc::new(producer),
            reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
        };
        let settings = read_settings(self.profile);
        consumer::App::with_ports(settings, ports, self.connection.clone())
    }

    pub(super) fn streamer(&self) -> streamer::App {
        let rules = streamer::Rules {
            poll_idle: Duration::from_millis(500),
            discover: Duration::from_secs(5),
            lease: self.profile.leases.then_some(Duration::from_secs(6)),
            milestones: self.profile.milestones,
            ..streamer::Rules::default()
        };
        let config =
            streamer::Config { role: self.part, ..streamer::Config::plain("", Some(self.profile.shards), rules) };
        let (broker, gate, chance) = (self.world.broker.clone(), self.log.clone(), self.chance.fork());
        let rewriter = self.rewriter();
        let join = move || {
            let inner = Box::new(broker.join(FOLDS, CHANGES));
            let inner = Box::new(GatedIntake { inner, gate: gate.clone(), held: None, beyond: None });
            Ok(Box::new(FaultyIntake { inner, chance: chance.fork(), rewriter: rewriter.clone() }) as Box<dyn Intake>)
        };
        let log = streamer::LogPorts {
            topic: CHANGES.to_owned(),
            producer: self.relaying(),
            reader: self.reader(CHANGES),
            join: Arc::new(join),
        };
        let ports = streamer::Ports { cache: Some(self.cache()), ..streamer::Ports::over(self.connection, log) };
        streamer::App::with_ports(config, ports)
    }

    /// What a relay writes by.
    fn relaying(&self) -> Arc<dyn Producer> {
        let inner = self.producer();
        let early = |line| {
            let (host, under_way) = (self.host.clone(), self.under_way.clone());
            Arc::new(EarlyProducer { inner: inner.clone(), host, line, under_way }) as Arc<dyn Producer>
        };
        match self.mutant {
            Some(Mutant::BehindSent) => early(Some(Arc::default())),
            Some(Mutant::TwoUnderWay) => early(None),
            _ => Arc::new(inner),
        }
    }

    fn producer(&self) -> FaultyProducer {
        FaultyProducer {
            broker: self.world.broker.clone(),
            clock: self.world.clock,
            gate: self.log.clone(),
            chance: self.chance.fork(),
            failing: self.profile.failing,
            host: self.world.host.clone(),
            coverage: self.world.coverage.clone(),
            mutant: self.mutant,
            journal: self.world.journal.clone(),
            said: Arc::default(),
            asked: self.asked.clone(),
            corrections: self.world.corrections.clone(),
        }
    }

    fn reader(&self, topic: &str) -> Arc<dyn TopicReader> {
        let (inner, gate) = (Arc::new(self.world.broker.reader("process", topic)), self.log.clone());
        Arc::new(FaultyReader { inner, gate, rewriter: self.rewriter() })
    }

    /// What rewrites the log for this process, if the mutant reads by another rule.
    fn rewriter(&self) -> Option<Rewriter> {
        let mutant = self.mutant.filter(|mutant| match self.role {
            Role::Streamer => matches!(mutant, Mutant::NoBackLink | Mutant::NotRaised),
            Role::Recounter => matches!(mutant, Mutant::TailUnfiltered | Mutant::NoMarkerWait),
            Role::Trends => matches!(
                mutant,
                Mutant::Unfiltered
                    | Mutant::FilteredByMessage
                    | Mutant::ExpiredTwice
                    | Mutant::RegionKept
                    | Mutant::LossForgotten
                    | Mutant::HalvesApart
            ),
            Role::Consumer | Role::Api => false,
        })?;
        let longest = lists::windows().iter().map(|window| window.span()).max().unwrap_or_default();
        Some(Rewriter::of(mutant, self.clock, longest, self.asked.clone(), &self.world.journal))
    }

    fn cache(&self) -> Arc<dyn Cache> {
        Arc::new(WatchedCache {
            inner: self.world.cache.clone(),
            gate: self.wire.clone(),
            chance: self.chance.fork(),
            failing: self.profile.cache_failing,
            mutant: self.mutant.filter(|mutant| (*mutant == Mutant::StandingFirst) == (self.role == Role::Streamer)),
            journal: self.world.journal.clone(),
            breaches: self.world.breaches.clone(),
            coverage: self.world.coverage.clone(),
        })
    }

    /// One that lists what is trending.
    pub(super) fn trends(&self, listing: &Listing) -> trends::App {
        let (broker, gate, chance) = (self.world.broker.clone(), self.log.clone(), listing.chance.fork());
        let rewriter = self.rewriter();
        let join = move || {
            let inner = Box::new(broker.join(lists::GROUP, CHANGES));
            let inner = Box::new(GatedIntake { inner, gate, held: None, beyond: None });
            Ok(Box::new(FaultyIntake { inner, chance, rewriter }) as Box<dyn Intake>)
        };
        let ports = trends::Ports {
            tables: self.connection.clone(),
            join: Box::new(join),
            changes: Arc::new(self.world.broker.reader("trends", CHANGES)),
            boards: Arc::new(self.world.broker.reader("trends", BOARDS)),
            producer: Arc::new(self.producer()),
        };
        let least = if self.mutant == Some(Mutant::NoRefill) { 0 } else { lists::RULES.least };
        let boards = trends::BoardRules { least, ..lists::RULES };
        let (windows, regions, keys) = (lists::windows(), listing.regions, listing.keys);
        let rules = trends::Rules { windows, boards, regions, keys };
        let topics = trends::Topics { changes: CHANGES.to_owned(), boards: BOARDS.to_owned() };
        trends::App::with_ports(topics, rules, ports)
    }

    pub(super) fn api(&self) -> api::App {
        let table = api::read::Bounds { budget: self.profile.table_budget, ..api::Config::default().table };
        let config = api::Config { local_ttl: self.profile.local_ttl, table, ..api::Config::default() };
        let cache = self.profile.cached.then(|| self.cache());
        let ports = api::Ports { cache, ..api::Ports::over(self.connection) };
        api::App::with_ports(config, ports)
    }

    pub(super) fn recount(&self) -> recount::App {
        let rules = recount::Rules {
            segments: 2,
            patience: Duration::from_secs(60),
            watch: Duration::from_secs(1),
            force: true,
            ..recount::Rules::default()
        };
        let config = recount::Config::plain("", Some(self.profile.shards), recount::Scope::Watch, rules);
        let log = recount::LogPorts {
            topic: CHANGES.to_owned(),
            reader: self.reader(CHANGES),
            producer: Arc::new(self.producer()),
        };
        recount::App::with_ports(config, recount::Ports::over(self.connection, log))
    }
}
