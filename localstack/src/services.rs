//! The services as they run here: their own apps, over the engines' ports.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use tally_adapters::kafka;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::{Producer, TopicReader};
use tally_count_api as api;
use tally_service::{Host, Running, Stage};
use tally_trends as trends;

use crate::engine::{BOARDS, CHANGES, DEAD_LETTERS, Engines, TOPIC};
use crate::keeper::{Keeper, Service};

/// Over which windows lists are made.
pub(crate) const WINDOWS: [&str; 2] = ["1m", "10m"];

/// How much of the log of changes may be unread: less than the 5 MiB at which the embedded Kafka begins to trim.
const AHEAD: usize = 4 << 20;

/// The services, in the order data flows.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) consumer: Service,
    pub(crate) streamer: Service,
    pub(crate) recount: Service,
    pub(crate) api: Service,
    /// What is trending, where there are topics for it.
    pub(crate) trends: Option<Service>,
}

/// What they are started with.
pub(crate) struct Plan {
    pub(crate) shards: Option<ShardCount>,
    /// The thresholds of milestones.
    pub(crate) milestones: Ladder,
    pub(crate) listener: TcpListener,
    /// Served by the API beside its own.
    pub(crate) routes: Router,
    /// Writes the likes taken over HTTP.
    pub(crate) producer: Arc<dyn Producer>,
    /// Where the amounts taken over HTTP go.
    pub(crate) sums: kafka::Spreading,
}

impl Services {
    /// Services that are not started yet, with what is trending or without.
    pub(crate) fn new(host: &Host, lists: bool) -> Self {
        let service = |name| Service::new(name, host.readiness());
        Self {
            consumer: service("consumer"),
            streamer: service("change-streamer"),
            recount: service("batch-recount"),
            api: service("count-api"),
            trends: lists.then(|| service("trends")),
        }
    }

    /// Those without which nothing is counted or answered.
    pub(crate) fn needed(&self) -> [&Service; 4] {
        [&self.consumer, &self.streamer, &self.recount, &self.api]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Service> {
        self.needed().into_iter().chain(&self.trends)
    }

    /// Starts all of them, to be stopped in the order data flows.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn start(&self, engines: &Engines, plan: Plan, host: &Host) -> anyhow::Result<()> {
        let letters = kafka::Producer::new(&engines.kafka.settings)?;
        keep(host, Stage::Work, &self.consumer, consumer_of(engines, &plan, letters));
        keep(host, Stage::Output, &self.streamer, streamer_of(engines, &plan)?);
        keep(host, Stage::Output, &self.recount, recount_of(engines, &plan)?);
        if let Some(trends) = &self.trends {
            keep(host, Stage::Output, trends, trends_of(engines));
        }
        keep(host, Stage::Work, &self.api, api_of(engines, plan)?);
        Ok(())
    }
}

fn keep<F>(host: &Host, stage: Stage, service: &Service, start: F)
where
    F: Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static,
{
    host.spawn(stage, service.name(), Keeper { service: service.clone(), start, chance: host.chance().fork() });
}

fn consumer_of(
    engines: &Engines,
    plan: &Plan,
    letters: kafka::Producer,
) -> impl Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static {
    let (connection, kafka) = (engines.store.connection.clone(), engines.kafka.settings.clone());
    let settings = consumer::ReadSettings {
        topic: TOPIC.to_owned(),
        dead_letter_topic: Some(DEAD_LETTERS.to_owned()),
        shards: plan.shards,
        ..Default::default()
    };
    let group = consumer::group_of(&engines.table_prefix);
    move |host| {
        let (connection, kafka) = (connection.clone(), kafka.clone());
        let (group, topic, reader) = (group.clone(), settings.topic.clone(), kafka.clone());
        let ports = consumer::Ports {
            join: Box::new(move || Ok(Box::new(kafka::Source::new(&kafka, &group, &topic)?))),
            producer: Arc::new(letters.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(kafka::TopicReader::new(&reader, "tally-dlq-replay", topic)?))),
        };
        let app = consumer::App::with_ports(settings.clone(), ports, connection);
        Ok(Running::start(app, host))
    }
}

fn streamer_of(
    engines: &Engines,
    plan: &Plan,
) -> anyhow::Result<impl Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static> {
    let (connection, prefix) = (&engines.store.connection, &engines.table_prefix);
    let group = streamer::group_of(prefix);
    let log = streamer::LogPorts::over(&engines.kafka.settings, CHANGES, &group, connection)?;
    let mut ports = streamer::Ports::over(connection, log);
    ports.cache = Some(Arc::new(engines.cache.clone()));
    let ahead = engines.kafka.embedded.is_some().then_some(AHEAD);
    let rules = streamer::Rules { milestones: plan.milestones, ahead, ..streamer::Rules::default() };
    let config = streamer::Config::plain(prefix, plan.shards, rules);
    Ok(move |host| {
        let app = streamer::App::with_ports(config.clone(), ports.clone());
        Ok(Running::start(app, host))
    })
}

fn reader(engines: &Engines, topic: &str) -> anyhow::Result<Arc<dyn TopicReader>> {
    Ok(Arc::new(kafka::TopicReader::new(&engines.kafka.settings, "tally-localstack", topic)?))
}

/// Windows that fill while a person looks on.
fn trends_of(engines: &Engines) -> impl Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static {
    let (connection, kafka) = (engines.store.connection.clone(), engines.kafka.settings.clone());
    let group = format!("{}tally-trends", engines.table_prefix);
    let topics = trends::Topics { changes: CHANGES.to_owned(), boards: BOARDS.to_owned() };
    let windows = WINDOWS.map(|window| window.parse().expect("it is a window"));
    let rules = trends::Rules {
        windows: windows.to_vec(),
        boards: trends::BoardRules::default(),
        regions: 1_000,
        keys: usize::MAX,
    };
    move |host| {
        let ports = trends::Ports::over(&connection, &kafka, &group, &topics)?;
        let app = trends::App::with_ports(topics.clone(), rules.clone(), ports);
        Ok(Running::start(app, host))
    }
}

fn recount_of(
    engines: &Engines,
    plan: &Plan,
) -> anyhow::Result<impl Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static> {
    let producer = Arc::new(kafka::Producer::new(&engines.kafka.settings)?);
    let log = recount::LogPorts { topic: CHANGES.to_owned(), reader: reader(engines, CHANGES)?, producer };
    let ports = recount::Ports::over(&engines.store.connection, log);
    let (prefix, rules) = (&engines.table_prefix, recount::Rules::default());
    let config = recount::Config::plain(prefix, plan.shards, recount::Scope::Watch, rules);
    Ok(move |host| {
        let app = recount::App::with_ports(config.clone(), ports.clone());
        Ok(Running::start(app, host))
    })
}

fn api_of(
    engines: &Engines,
    plan: Plan,
) -> anyhow::Result<impl Fn(Host) -> anyhow::Result<Running> + Send + Sync + 'static> {
    let boards = engines.kafka.has_lists().then(|| reader(engines, BOARDS)).transpose()?;
    let mut ports = api::Ports::over(&engines.store.connection);
    ports.cache = Some(Arc::new(engines.cache.clone()));
    ports.producer = Some(plan.producer);
    let (table_prefix, shards) = (engines.table_prefix.clone(), plan.shards);
    let config = api::Config { table_prefix, shards, open_writes: true, ..api::Config::default() };
    Ok(move |host| {
        let listener = tokio::net::TcpListener::from_std(plan.listener.try_clone()?)?;
        let app = api::App::with_ports(config.clone(), ports.clone()).listening_on(listener);
        let app = app.with_routes(plan.routes.clone()).spreading(plan.sums.clone());
        let app = match &boards {
            Some(boards) => app.listing(Arc::clone(boards)),
            None => app,
        };
        Ok(Running::start(app.for_own_pages(), host))
    })
}
