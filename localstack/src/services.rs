//! Runs the pipeline's services inside the local stack: the same apps as in production, connected to the stack's
//! engines. One that dies is started again after a moment, and the restarts are counted.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use axum::Router;
use tally_adapters::kafka;
use tally_batch_recount as recount;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::ports::{Producer, TopicReader};
use tally_count_api as api;
use tally_service::{Chance, Host, How, Readiness, Running, Stage, Stop, Task};
use tally_trends as trends;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::{BOARDS, CHANGES, DEAD_LETTERS, Engines, TOPIC};
use crate::page;
use crate::regions::Home;

/// How long one service may drain when everything stops: several stages have to fit into the process's own grace.
const GRACE: Duration = Duration::from_millis(1200);
/// How long a service that was killed stays down, so that a person can see it.
const AWAY: Duration = Duration::from_secs(1);
/// Between two starts of a service that keeps dying.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };
/// After so long without dying a service counts as recovered.
const HEALTHY: Duration = Duration::from_secs(30);

/// One service, which its keeper starts again and again.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    readiness: Readiness,
    down: AtomicBool,
    restarts: AtomicU64,
    kill: Notify,
}

impl Service {
    /// A service not started yet, whose conditions are among those of `readiness`.
    pub(crate) fn new(name: &'static str, readiness: &Readiness) -> Self {
        let (down, restarts) = (AtomicBool::new(true), AtomicU64::new(0));
        Self { name, readiness: readiness.scope(name), down, restarts, kill: Notify::new() }
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&self) {
        self.kill.notify_one();
    }

    /// Completes once it can do its work.
    pub(crate) async fn ready(&self) {
        self.readiness.until_ready().await;
    }

    /// As the page shows it.
    pub(crate) fn shown(&self) -> page::Part {
        let state = if self.down.load(Ordering::Relaxed) {
            page::PartState::Down
        } else if self.readiness.report().ready {
            page::PartState::Up
        } else {
            page::PartState::Starting
        };
        page::Part { name: self.name.to_owned(), state, restarts: self.restarts.load(Ordering::Relaxed) }
    }
}

/// Starts a service's app in a host.
type Start = Box<dyn Fn(Host) -> anyhow::Result<Running> + Send + Sync>;

pub(crate) struct Keeper {
    pub(crate) service: Arc<Service>,
    pub(crate) start: Start,
    pub(crate) chance: Chance,
}

impl Task for Keeper {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Service { name, readiness, down, restarts, kill } = &*self.service;
        let mut deaths = 0;
        loop {
            let began = Instant::now();
            let host = Host::new(name).with_chance(self.chance.fork()).with_readiness(readiness.clone());
            let running = (self.start)(host)?;
            down.store(false, Ordering::Relaxed);
            let wait = tokio::select! {
                biased;
                () = stop.requested() => {
                    for end in running.stop(GRACE).await.ended {
                        tracing::warn!(service = name, "{end}");
                    }
                    down.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                () = kill.notified() => {
                    running.kill().await;
                    AWAY
                }
                ended = running.ended() => {
                    tracing::error!(service = name, "{ended}");
                    running.kill().await;
                    if let How::UnknownFormat(found) = ended.how {
                        return Err(found.into());
                    }
                    if ended.task == "start" && matches!(ended.how, How::Failed(..)) {
                        return Err(anyhow!("{name} cannot start: {ended}"));
                    }
                    deaths = if began.elapsed() >= HEALTHY { 0 } else { deaths + 1 };
                    AGAIN.ceiling(deaths)
                }
            };
            down.store(true, Ordering::Relaxed);
            stop.unless_requested(tokio::time::sleep(wait)).await?;
            restarts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Over which windows lists are made.
pub(crate) const WINDOWS: [&str; 2] = ["1m", "10m"];

/// How much of the log of changes may be unread: less than the 5 MiB at which the embedded Kafka begins to trim.
const AHEAD: usize = 4 << 20;

/// What they are called on the page, and those of the second Region. Only the first has what is trending.
pub(crate) const TRENDS: &str = "trends";
pub(crate) const NAMES: [&str; 4] = ["consumer", "change-streamer", "batch-recount", "count-api"];
pub(crate) const SECOND_NAMES: [&str; 4] = ["us consumer", "us change-streamer", "us batch-recount", "us count-api"];

/// The services, in the order data flows.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) consumer: Arc<Service>,
    pub(crate) streamer: Arc<Service>,
    pub(crate) recount: Arc<Service>,
    pub(crate) api: Arc<Service>,
    /// What is trending, where there are topics for it.
    pub(crate) trends: Option<Arc<Service>>,
}

/// What they are started with.
pub(crate) struct Plan {
    pub(crate) shards: Option<ShardCount>,
    /// The thresholds of milestones.
    pub(crate) milestones: Option<Ladder>,
    /// The Region, where there are two.
    pub(crate) home: Option<Home>,
    pub(crate) listener: TcpListener,
    /// Served by the API beside its own.
    pub(crate) routes: Router,
    /// Where the amounts taken over HTTP go.
    pub(crate) sums: kafka::Spreading,
}

impl Services {
    /// Services that are not started yet, with what is trending or without.
    pub(crate) fn new(names: [&'static str; 4], host: &Host, lists: bool) -> Self {
        let service = |name| Arc::new(Service::new(name, host.readiness()));
        let [consumer, streamer, recount, api] = names.map(service);
        Self { consumer, streamer, recount, api, trends: lists.then(|| service(TRENDS)) }
    }

    /// Those without which nothing is counted or answered.
    pub(crate) fn needed(&self) -> [&Service; 4] {
        [&self.consumer, &self.streamer, &self.recount, &self.api]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Service> {
        self.needed().into_iter().chain(self.trends.as_deref())
    }

    /// Kills the service of this name as a crash would; whether there is one.
    pub(crate) fn kill(&self, name: &str) -> bool {
        self.all().filter(|service| service.name == name).map(Service::kill).count() > 0
    }

    /// Starts all of them, to be stopped in the order data flows. The API writes likes through `producer`.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub(crate) fn start(
        &self,
        engines: &Engines,
        plan: Plan,
        producer: Arc<dyn Producer>,
        host: &Host,
    ) -> anyhow::Result<()> {
        keep(host, Stage::Work, &self.consumer, consumer_of(engines, &plan));
        keep(host, Stage::Output, &self.streamer, streamer_of(engines, &plan)?);
        keep(host, Stage::Output, &self.recount, recount_of(engines, &plan)?);
        if let Some(trends) = &self.trends {
            keep(host, Stage::Output, trends, trends_of(engines));
        }
        keep(host, Stage::Work, &self.api, api_of(engines, plan, producer)?);
        Ok(())
    }
}

fn keep(host: &Host, stage: Stage, service: &Arc<Service>, start: Start) {
    host.spawn(stage, service.name, Keeper { service: Arc::clone(service), start, chance: host.chance().fork() });
}

fn consumer_of(engines: &Engines, plan: &Plan) -> Start {
    let (connection, kafka) = (engines.store.tables.connection.clone(), engines.kafka.settings.clone());
    let mut settings = consumer::ReadSettings::default();
    settings.topics.likes.topic = TOPIC.to_owned();
    settings.topics.dead_letter_topic = Some(DEAD_LETTERS.to_owned());
    let (prefix, shards) = (engines.table_prefix.clone(), plan.shards);
    Box::new(move |host| {
        let ports = consumer::Ports::over(&kafka, (&consumer::group_of(&prefix), TOPIC), &prefix, None)?;
        let app = consumer::App::with_ports(shards, settings.clone(), ports, connection.clone());
        Ok(Running::start(app, host))
    })
}

fn streamer_of(engines: &Engines, plan: &Plan) -> anyhow::Result<Start> {
    let (connection, prefix) = (&engines.store.tables.connection, &engines.table_prefix);
    let group = streamer::group_of(prefix);
    let log = streamer::LogPorts::over(&engines.kafka.settings, CHANGES, &group, connection)?;
    let mut ports = streamer::Ports::over(connection, log);
    ports.cache = Some(Arc::new(engines.cache.clone()));
    let ahead = engines.kafka.embedded.is_some().then_some(AHEAD);
    let rules = streamer::Rules { ahead, ..streamer::Rules::default() };
    let ports_of = |home: &Home| home.ports(&engines.kafka.settings, &group);
    ports.regions = plan.home.as_ref().map(ports_of).transpose()?;
    let settings = streamer::Settings { milestones: plan.milestones, rules, ..streamer::Settings::default() };
    let shards = plan.shards;
    Ok(Box::new(move |host| {
        let app = streamer::App::with_ports(shards, settings.clone(), ports.clone());
        Ok(Running::start(app, host))
    }))
}

fn reader(engines: &Engines, topic: &str) -> anyhow::Result<Arc<dyn TopicReader>> {
    Ok(Arc::new(kafka::TopicReader::new(&engines.kafka.settings, "tally-localstack", topic)?))
}

/// Windows that fill while a person looks on.
fn trends_of(engines: &Engines) -> Start {
    let (connection, kafka) = (engines.store.tables.connection.clone(), engines.kafka.settings.clone());
    let group = trends::group_of(&engines.table_prefix);
    let windows = WINDOWS.map(|window| window.parse().expect("it is a window"));
    let rules = trends::Rules {
        windows: windows.to_vec(),
        boards: trends::BoardRules::default(),
        regions: 1_000,
        keys: usize::MAX,
    };
    Box::new(move |host| {
        let ports = trends::Ports::over(&connection, &kafka, &group, CHANGES, BOARDS)?;
        let app = trends::App::with_ports(None, rules.clone(), ports);
        Ok(Running::start(app, host))
    })
}

fn recount_of(engines: &Engines, plan: &Plan) -> anyhow::Result<Start> {
    let log = recount::LogPorts::open(&engines.kafka.settings, CHANGES)?;
    let ports = recount::Ports::over(&engines.store.tables.connection, log);
    let shards = plan.shards;
    Ok(Box::new(move |host| {
        let (scope, rules) = (recount::Scope::Watch, recount::Rules::default());
        let app = recount::App::with_ports(shards, scope, rules, ports.clone());
        Ok(Running::start(app, host))
    }))
}

fn api_of(engines: &Engines, plan: Plan, producer: Arc<dyn Producer>) -> anyhow::Result<Start> {
    let boards = engines.kafka.lists.then(|| reader(engines, BOARDS)).transpose()?;
    let mut ports = api::Ports::over(&engines.store.tables.connection);
    ports.cache = Some(Arc::new(engines.cache.clone()));
    ports.producer = Some(producer);
    let shards = plan.shards;
    let config = api::Config { open_writes: true, ..api::Config::default() };
    Ok(Box::new(move |host| {
        let app = api::App {
            listener: Some(tokio::net::TcpListener::from_std(plan.listener.try_clone()?)?),
            own: plan.routes.clone(),
            own_pages: true,
            spreading: plan.sums.clone(),
            boards: boards.clone(),
            ..api::App::with_ports(shards, config.clone(), ports.clone())
        };
        Ok(Running::start(app, host))
    }))
}

#[cfg(test)]
mod tests {
    use tally_service::{App, Stage};

    use super::*;

    /// A service that is ready at once and runs until it is stopped, or dies, or cannot start.
    #[derive(Clone, Copy)]
    enum Mortal {
        Lives,
        Dies,
        Refuses,
    }

    impl App for Mortal {
        async fn start(self, host: Host) -> anyhow::Result<()> {
            anyhow::ensure!(!matches!(self, Self::Refuses), "no such table");
            host.spawn(Stage::Work, "live", move |stop: Stop| async move {
                anyhow::ensure!(!matches!(self, Self::Dies), "dead");
                stop.requested().await;
                Ok(())
            });
            Ok(())
        }
    }

    fn keep(mortal: Mortal) -> (Arc<Service>, Host) {
        let service = Arc::new(Service::new("mortal", &Readiness::new()));
        let start: Start = Box::new(move |host| Ok(Running::start(mortal, host)));
        let host = Host::new("test");
        super::keep(&host, Stage::Work, &service, start);
        (service, host)
    }

    async fn restarted(service: &Service, times: u64) {
        while service.shown().restarts < times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_killed_comes_back_and_is_counted() {
        let (service, host) = keep(Mortal::Lives);
        service.ready().await;
        service.kill();
        restarted(&service, 1).await;
        service.ready().await;
        assert_eq!(service.shown().state, page::PartState::Up);
        assert!(host.shut_down(Duration::from_secs(4)).await.exit().is_clean());
        assert_eq!(service.shown().state, page::PartState::Down);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_keeps_dying_is_started_less_and_less_often() {
        let (service, _host) = keep(Mortal::Dies);
        let began = Instant::now();
        restarted(&service, 3).await;
        assert!((7..8).contains(&began.elapsed().as_secs()), "1 + 2 + 4 s, not {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_cannot_start_ends_the_process() {
        let (_, host) = keep(Mortal::Refuses);
        assert!(host.first_end().await.to_string().contains("no such table"));
    }
}
