//! The composition root: which adapter serves which port, and what the process does with them.

use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use axum::Router;
use futures_util::FutureExt;
use tally_adapters::{dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::{ChangeStream, Checkpoints, Counts, Outcome, Producer, Recounts, Rows, Worker};
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Listen, Program};
use tokio::time::Instant;

use crate::args::Args;
use crate::budget::Budget;
use crate::config::{Config, Job, RecountConfig, Rules, Scope};
use crate::cost::Spent;
use crate::erase::erase;
use crate::metrics;
use crate::room::Room;
use crate::routes::{Desk, routes};
use crate::run::Run;
use crate::tools::Tools;
use crate::watch::watch;

/// What a recount works on.
#[derive(Clone)]
pub struct Ports {
    /// The change stream of the likes table: which shards there are.
    pub stream: Arc<dyn ChangeStream>,
    /// The rows.
    pub rows: Arc<dyn Rows>,
    /// The counters.
    pub counts: Arc<dyn Counts>,
    /// How far the stream is applied, and gaps.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Runs, claims, reports, the queue and the ledger.
    pub recounts: Arc<dyn Recounts>,
    /// Where erasures are produced, if there are any.
    pub producer: Option<Arc<dyn Producer>>,
}

impl Ports {
    /// The tables of `connection`, without a producer.
    pub fn over(connection: &dynamodb::Connection) -> Self {
        Self {
            stream: Arc::new(dynamodb::Streams::new(connection)),
            // A recount never writes a row, so how many shards rows are spread over is of no concern to this port.
            rows: Arc::new(dynamodb::Likes::new(connection, ShardCount::DEFAULT)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            producer: None,
        }
    }
}

/// A recount, wired.
pub struct App {
    config: Config,
    ports: Ports,
    /// The tables to be checked before anything is written; `None` where the ports are not over them.
    tables: Option<dynamodb::Connection>,
}

impl App {
    /// Over DynamoDB and Kafka, as `config` and the standard AWS variables say.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let settings =
            dynamodb::Settings { table_prefix: config.table_prefix.clone(), ..dynamodb::Settings::default() };
        let connection = dynamodb::Connection::open(&settings).await;
        let mut ports = Ports::over(&connection);
        if let Job::Erase(erase) = &config.job
            && let Some(settings) = &erase.kafka
        {
            let producer = kafka::Producer::new(settings);
            ports.producer = Some(Arc::new(producer.context("cannot set up the producer")?));
        }
        Ok(Self { tables: Some(connection), ..Self::with_ports(config, ports) })
    }

    /// Over any ports.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        Self { config, ports, tables: None }
    }
}

impl tally_service::App for App {
    fn routes(&self, host: &Host) -> Router {
        let Ports { recounts, checkpoints, .. } = &self.ports;
        let (recounts, checkpoints) = (Arc::clone(recounts), Arc::clone(checkpoints));
        routes(Desk { recounts, checkpoints, clock: host.clock() })
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { config, ports, tables } = self;
        if let Some(connection) = &tables {
            host.wait_for("tables", Backoff::STORE, || dynamodb::check_tables(connection)).await?;
        }
        // A recount creates nothing: what the deployment is, is for those to say who write rows.
        let created = host.wait_for("deployment", Backoff::STORE, || deployed(&*ports.checkpoints)).await?;
        if let Some(told) = config.shards {
            ensure!(told == created, "--shards is {told}, but this deployment was created with {created}");
        }
        let rules = match &config.job {
            Job::Recount(recount) => recount.rules,
            Job::Erase(erase) => Rules { read_units: erase.read_units, ..Rules::default() },
        };
        let chance = host.chance().clone();
        let me = Worker(format!("recount-{:016x}", chance.token()));
        let (clock, budget, spent) = (host.clock(), Arc::new(Budget::new(rules.read_units)), Arc::<Spent>::default());
        host.job("recount", move |stop| {
            let (skew, room) = (Arc::default(), Arc::new(Room::of(rules.held)));
            let closing = Arc::new(Mutex::new(Instant::now()));
            let tools =
                Tools { ports, clock, chance, me, rules, shards: created, budget, spent, skew, room, closing, stop };
            run(tools, config.job).boxed()
        });
        Ok(())
    }
}

async fn deployed(checkpoints: &dyn Checkpoints) -> Outcome<ShardCount> {
    let missing = || Fault::Transient("no consumer or change-streamer has created the deployment yet".to_owned());
    checkpoints.deployed().await?.ok_or_else(missing)
}

async fn run(tools: Tools, job: Job) -> anyhow::Result<Exit> {
    match job {
        Job::Recount(RecountConfig { scope: Scope::Watch, .. }) => watch(&tools).await,
        Job::Recount(RecountConfig { scope, dry_run, .. }) => {
            let run = Run::begin(&tools, &scope, dry_run, false).await?;
            Ok(Box::pin(run.finish()).await?.exit)
        }
        Job::Erase(config) => {
            let producer = tools.ports.producer.clone();
            erase(&tools, &config, producer.as_deref()).await
        }
    }
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    const METRICS: Catalogue = metrics::CATALOGUE;

    async fn build(config: Config) -> anyhow::Result<Self> {
        Self::new(config).await
    }

    fn admin_listen(args: &Args) -> Listen {
        match args.command {
            Some(_) => Listen::Off,
            None => args.common.admin_listen,
        }
    }
}
