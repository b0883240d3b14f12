//! Builds the service that runs in a simulated process, with its settings and its access to Kafka, DynamoDB and the
//! cache. For a mutant (a pipeline with one rule broken) it builds in the part that breaks the rule.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::Connection;
use tally_adapters::kafka::LikesTopic;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::cached::Cache;
use tally_core::ports::{Intake, Outcome, Producer, TopicReader, Transactions};
use tally_count_api as api;
use tally_service::Chance;
use tally_trends as trends;

use crate::simulation::abroad::{COPIED, COUNTS, Place};
use crate::simulation::cache::WatchedCache;
use crate::simulation::events::{LETTERS, TOPIC};
use crate::simulation::instance::{FOLDS, GROUP, Process, Role};
use crate::simulation::intake::{FaultyReader, FaultyTransactions, GatedProducer, Interceptor, ProcessIntake};
use crate::simulation::journal::CHANGES;
use crate::simulation::lists::{self, BOARDS};
use crate::simulation::mutant::Mutant;
use crate::simulation::producer::{EarlyProducer, FaultyProducer};
use crate::simulation::profile::targets::Listing;
use crate::simulation::profile::{Consuming, Profile};
use crate::simulation::rewrite::Rewriter;

/// The app of a process that is about to start.
pub(super) struct Apps<'a> {
    pub(super) process: Process,
    /// The role of a streamer.
    pub(super) part: streamer::Role,
    pub(super) profile: &'a Profile,
    pub(super) chance: &'a Chance,
    pub(super) connection: &'a Connection,
}

impl Apps<'_> {
    /// Joins a group of a topic. `late` returns the source of the random delay of revocations.
    fn joining<L: Fn() -> Option<Chance>>(
        &self,
        group: &'static str,
        topic: &'static str,
        late: L,
    ) -> impl Fn() -> Outcome<Box<dyn Intake>> + use<L> {
        let (world, interceptor) = (Arc::clone(&self.process.world), self.interceptor());
        move || {
            let inner = Box::new(world.broker.join(group, topic));
            Ok(Box::new(ProcessIntake { inner, interceptor: interceptor.clone(), held: None, late: late() }))
        }
    }

    fn interceptor(&self) -> Interceptor {
        let Process { log, beyond, .. } = self.process.clone();
        Interceptor { gate: log, beyond, rewriter: self.rewriter() }
    }

    pub(super) fn consumer(&self) -> consumer::App {
        let reader = self.process.world.broker.clone();
        let producer = GatedProducer { process: self.process.clone(), chance: self.chance.fork() };
        let ports = consumer::Ports {
            join: Box::new(self.joining(GROUP, TOPIC, || None)),
            producer: Arc::new(producer),
            reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
        };
        let Consuming { statements, requests, tombstones, .. } = self.profile.consuming;
        let likes = LikesTopic { topic: TOPIC.to_owned() };
        let settings = consumer::ReadSettings {
            batch_rows: statements,
            concurrency: requests,
            tombstones,
            topics: consumer::TopicArgs { likes, dead_letter_topic: Some(LETTERS.to_owned()), group: None },
            ..consumer::ReadSettings::default()
        };
        consumer::App::with_ports(Some(self.profile.shards), settings, ports, self.connection.clone())
    }

    pub(super) fn streamer(&self) -> streamer::App {
        // The first to fork the schedule's chance: pinned seeds rely on the order.
        let regions = self.regions();
        let rules = streamer::Rules {
            // Nothing happens in the table of a Region without users.
            poll_idle: Duration::from_millis(if self.process.world.place == Some(Place::Abroad) { 2_000 } else { 500 }),
            discover: Duration::from_secs(5),
            no_leases: !self.profile.leases,
            ..streamer::Rules::default()
        };
        let settings = streamer::Settings { role: self.part, milestones: Some(self.profile.milestones), rules };
        let chance = self.chance.fork();
        let log = streamer::LogPorts {
            topic: CHANGES.to_owned(),
            producer: self.relaying(),
            reader: self.reader(CHANGES),
            join: Arc::new(self.joining(FOLDS, CHANGES, move || Some(chance.fork()))),
        };
        let ports =
            streamer::Ports { cache: Some(self.cache()), regions, ..streamer::Ports::over(self.connection, log) };
        streamer::App::with_ports(Some(self.profile.shards), settings, ports)
    }

    /// What a streamer publishes, and reads of another Region.
    fn regions(&self) -> Option<streamer::RegionPorts> {
        let place = self.process.world.place?;
        let remote = || streamer::RemotePorts {
            region: Place::Home.region(),
            topic: COPIED.to_owned(),
            reader: self.reader(COPIED),
            join: Arc::new(self.joining("home", COPIED, || None)),
        };
        let (process, chance) = (self.process.clone(), self.chance.fork());
        let transactions = move |id: &str| {
            let (inner, process) = (process.world.broker.transactions(id), process.clone());
            Box::new(FaultyTransactions { inner, process, chance: chance.fork() }) as Box<dyn Transactions>
        };
        Some(streamer::RegionPorts {
            name: place.region(),
            topic: COUNTS.to_owned(),
            usual: TOPIC.to_owned(),
            reader: self.reader(COUNTS),
            transactions: Arc::new(transactions),
            remotes: (place == Place::Abroad).then(remote).into_iter().collect(),
        })
    }

    /// The producer of a relay.
    fn relaying(&self) -> Arc<dyn Producer> {
        let inner = self.producer();
        let early = |line| Arc::new(EarlyProducer { inner: inner.clone(), line }) as Arc<dyn Producer>;
        match self.process.mutant {
            Some(Mutant::BehindSent) => early(Some(Arc::default())),
            Some(Mutant::TwoUnderWay) => early(None),
            _ => Arc::new(inner),
        }
    }

    fn producer(&self) -> FaultyProducer {
        let (process, chance) = (self.process.clone(), self.chance.fork());
        FaultyProducer { process, chance, failing: self.profile.failing, history: Arc::default() }
    }

    fn reader(&self, topic: &str) -> Arc<dyn TopicReader> {
        Arc::new(FaultyReader {
            inner: Arc::new(self.process.world.broker.reader("process", topic)),
            interceptor: self.interceptor(),
        })
    }

    /// Rewrites the log for this process, if the mutant reads by another rule.
    fn rewriter(&self) -> Option<Rewriter> {
        let mutant = self.process.mutant.filter(|mutant| match self.process.role {
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
        let Process { host, asked, world, .. } = &self.process;
        Some(Rewriter::of(mutant, host.clock(), longest, asked.clone(), &world.journal))
    }

    fn cache(&self) -> Arc<dyn Cache> {
        let is_streamer = self.process.role == Role::Streamer;
        Arc::new(WatchedCache {
            mutant: self.process.mutant.filter(|mutant| (*mutant == Mutant::StandingFirst) == is_streamer),
            process: self.process.clone(),
            chance: self.chance.fork(),
            failing: self.profile.cache_failing,
        })
    }

    /// A process that makes lists of what is trending.
    pub(super) fn trends(&self, listing: &Listing) -> trends::App {
        let late = listing.chance.fork();
        let ports = trends::Ports {
            tables: self.connection.clone(),
            join: Box::new(self.joining(lists::GROUP, CHANGES, move || Some(late.clone()))),
            changes: trends::NamedReader::new(CHANGES, self.process.world.broker.reader("trends", CHANGES)),
            boards: trends::NamedReader::new(BOARDS, self.process.world.broker.reader("trends", BOARDS)),
            producer: Arc::new(self.producer()),
        };
        let least = if self.process.mutant == Some(Mutant::NoRefill) { 0 } else { lists::RULES.least };
        let boards = trends::BoardRules { least, ..lists::RULES };
        let (windows, regions, keys) = (lists::windows(), listing.regions, listing.keys);
        let rules = trends::Rules { windows, boards, regions, keys };
        trends::App::with_ports(None, rules, ports)
    }

    pub(super) fn api(&self) -> api::App {
        let (local_ttl, table_budget) = (self.profile.local_ttl, self.profile.table_budget);
        let config = api::Config { local_ttl, table_budget, ..api::Config::default() };
        let cache = self.profile.cached.then(|| self.cache());
        let ports = api::Ports { cache, ..api::Ports::over(self.connection) };
        api::App::with_ports(None, config, ports)
    }

    pub(super) fn recount(&self) -> recount::App {
        let rules = recount::Rules {
            segments: 2,
            patience: Duration::from_secs(60),
            watch: Duration::from_secs(1),
            force: true,
            ..recount::Rules::default()
        };
        let log = recount::LogPorts {
            topic: CHANGES.to_owned(),
            reader: self.reader(CHANGES),
            producer: Arc::new(self.producer()),
        };
        let ports = recount::Ports::over(self.connection, log);
        recount::App::with_ports(Some(self.profile.shards), recount::Scope::Watch, rules, ports)
    }
}
