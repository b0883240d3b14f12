//! The composition root: which adapter serves which port, and what the process does with them.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use futures_util::FutureExt;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::ports::{ChangeStream, Checkpoints, CounterMaps, Counts, Markers, Producer, Recounts, Rows};
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Invalid, Listen, Program};

use crate::args::Args;
use crate::config::{Config, Job, RecountConfig, Rules, Scope};
use crate::erase::erase_and_report;
use crate::metrics;
use crate::recounter::Recounter;
use crate::routes::{Desk, routes};
use crate::run::Run;
use crate::watch::watch;

/// What a recount works on.
#[derive(Clone)]
pub struct Ports {
    /// The change stream of the likes table: which shards there are.
    pub stream: Arc<dyn ChangeStream>,
    pub rows: Arc<dyn Rows>,
    /// The maps of sets.
    pub maps: Arc<dyn CounterMaps>,
    /// The markers beside the rows.
    pub markers: Arc<dyn Markers>,
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
            rows: Arc::new(dynamodb::Rows::new(connection)),
            maps: Arc::new(dynamodb::Maps::new(connection)),
            markers: Arc::new(dynamodb::Markers::new(connection)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            producer: None,
        }
    }
}

/// A recount and the ports it works on.
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

    /// A recount over `ports`, whatever is behind them.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        Self { config, ports, tables: None }
    }
}

impl tally_service::App for App {
    fn routes(&self, host: &Host) -> Router {
        let Ports { recounts, checkpoints, maps, .. } = self.ports.clone();
        routes(Desk { runs: recounts.clone(), queue: recounts, checkpoints, maps, clock: host.clock() })
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { config, ports, tables } = self;
        let (tables, checkpoints) = (tables.as_ref(), ports.checkpoints.clone());
        // A recount creates nothing: a process that writes rows says what the deployment is.
        let shards = Deployment { tables, checkpoints, shards: config.shards }.join(&host).await?;
        let rules = match &config.job {
            Job::Recount(recount) => recount.rules,
            Job::Erase(erase) => Rules { read_units: erase.read_units, ..Rules::default() },
        };
        let (clock, chance) = (host.clock(), host.chance().clone());
        host.job("recount", move |stop| {
            let recounter = Recounter::new(ports, shards, rules, (clock, chance), stop);
            run(recounter, config.job).boxed()
        });
        Ok(())
    }
}

async fn run(of: Recounter, job: Job) -> anyhow::Result<Exit> {
    match job {
        Job::Recount(RecountConfig { scope: Scope::Watch, .. }) => watch(&of).await,
        Job::Recount(RecountConfig { scope, dry_run, .. }) => {
            let run = Run::begin(&of, &scope, dry_run, false).await?;
            Ok(Box::pin(run.finish()).await?.exit)
        }
        Job::Erase(config) => {
            let producer = of.store.ports.producer.clone();
            erase_and_report(&of.store, &config, producer.as_deref()).await
        }
    }
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(config: Config) -> anyhow::Result<Self> {
        Self::new(config).await
    }

    fn environment(_: &Args) -> Invalid {
        dynamodb::environment()
    }

    fn admin_listen(args: &Args) -> Listen {
        match args.command {
            Some(_) => Listen::Off,
            None => args.common.admin_listen,
        }
    }
}
