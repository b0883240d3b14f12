//! The composition root: which adapter serves which port, and what the process does with them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures_util::FutureExt;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::audit::AuditRun;
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::Producer;
use tally_core::ports::log::TopicReader;
use tally_service::metrics::Catalogue;
use tally_service::{Host, Invalid, Listen, Program};

use crate::args::Args;
use crate::calls::Calls;
use crate::config::{Config, EraseConfig, Job, RecountConfig, Scope};
use crate::erase::{ErasePorts, erase_and_report};
use crate::metrics;
use crate::routes::{Desk, routes};
use crate::run::Run;
use crate::settle::{Recount, begun};
use crate::watch::watch;

/// What a recount works on.
#[derive(Clone)]
pub struct Ports {
    /// The tables, which are checked and watched.
    pub tables: dynamodb::Connection,
    /// The rows of the likes table.
    pub rows: dynamodb::Rows,
    /// The markers beside the rows.
    pub markers: dynamodb::Markers,
    /// The counters.
    pub counters: Arc<Counters>,
    /// Where the folds of the log stand, and the losses.
    pub changes: Arc<Changes>,
    /// Which counters there are.
    pub deployment: dynamodb::Checkpoints,
    /// Runs, how far they are, the queue and the ledger.
    pub recounts: dynamodb::Recounts,
    /// The log of changes.
    pub log: LogPorts,
}

/// The log of changes, as a recount reads and writes it.
#[derive(Clone)]
pub struct LogPorts {
    /// The topic.
    pub topic: String,
    /// Reads it.
    pub reader: Arc<dyn TopicReader>,
    /// Writes corrections, and which losses are repaired.
    pub producer: Arc<dyn Producer>,
}

impl Ports {
    /// The tables of `connection`, and a log.
    pub fn over(connection: &dynamodb::Connection, log: LogPorts) -> Self {
        Self {
            tables: connection.clone(),
            rows: dynamodb::Rows::new(connection),
            markers: dynamodb::Markers::new(connection),
            counters: Arc::new(Counters::new(connection)),
            changes: Arc::new(Changes::new(connection)),
            deployment: dynamodb::Checkpoints::new(connection),
            recounts: dynamodb::Recounts::new(connection),
            log,
        }
    }
}

impl LogPorts {
    /// The topic in Kafka.
    fn open(kafka: Option<&kafka::Settings>, topic: &str) -> anyhow::Result<Self> {
        const WHAT: &str = "cannot set up the log of changes";
        let kafka = kafka.context(WHAT)?;
        let reader = Arc::new(kafka::TopicReader::new(kafka, "tally-batch-recount", topic).context(WHAT)?);
        let producer = Arc::new(kafka::Producer::new(kafka).context(WHAT)?);
        Ok(Self { topic: topic.to_owned(), reader, producer })
    }
}

/// A job and the ports it works on.
pub struct App {
    shards: Option<ShardCount>,
    work: Work,
    /// The id of the run, where a caller has given it.
    caller: Option<AuditRun>,
}

enum Work {
    Recount(Box<Ports>, RecountConfig),
    Erase(ErasePorts, EraseConfig),
}

impl App {
    /// Over DynamoDB and Kafka, as `config` and the standard AWS variables say.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let Config { table_prefix, shards, kafka, job } = config;
        let settings = dynamodb::Settings { table_prefix, ..dynamodb::Settings::default() };
        let tables = dynamodb::Connection::open(&settings).await;
        let work = match job {
            Job::Recount(config) => {
                let ports = Ports::over(&tables, LogPorts::open(kafka.as_ref(), &config.topic)?);
                Work::Recount(Box::new(ports), config)
            }
            Job::Erase(config) => {
                let producer = kafka.as_ref().map(kafka::Producer::new).transpose();
                let producer = producer.context("cannot set up the producer")?.map(|producer| Arc::new(producer) as _);
                Work::Erase(ErasePorts { tables, producer }, config)
            }
        };
        Ok(Self { shards, work, caller: None })
    }

    /// A job over `ports`, whatever is behind them. Where the job is an erasure, its events go where the log is.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        let work = match config.job {
            Job::Recount(config) => Work::Recount(Box::new(ports), config),
            Job::Erase(job) => {
                let producer = config.kafka.map(|_| ports.log.producer);
                Work::Erase(ErasePorts { tables: ports.tables, producer }, job)
            }
        };
        Self { shards: config.shards, work, caller: None }
    }

    /// The same for a program that carries out a recount and has its own answer to print: the run has this id, by which it is
    /// found afterwards, and writes nothing to the standard output.
    #[must_use]
    pub fn called(self, run: AuditRun) -> Self {
        Self { caller: Some(run), ..self }
    }
}

impl tally_service::App for App {
    fn routes(&self, host: &Host) -> Router {
        match &self.work {
            Work::Recount(ports, _) => routes(Desk {
                recounts: ports.recounts.clone(),
                deployment: ports.deployment.clone(),
                clock: host.clock(),
            }),
            Work::Erase(..) => Router::new(),
        }
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, work, caller } = self;
        let tables = match &work {
            Work::Recount(ports, _) => &ports.tables,
            Work::Erase(ports, _) => &ports.tables,
        };
        // A recount creates nothing: a process that writes rows says what the deployment is.
        let shards = Deployment { tables, shards }.join(&host).await?;
        if let Work::Recount(ports, _) = &work {
            host.wait_for("changes", Backoff::STORE, || begun(&ports.changes)).await?;
        }
        let (patience, chance, watching) = (host.patience(), host.chance().clone(), host.clone());
        host.job("recount", move |stop| {
            async move {
                match work {
                    Work::Recount(ports, config) => {
                        let of = Recount::new(*ports, shards, config.rules, (patience, chance), stop).await?;
                        match config.scope {
                            Scope::Watch => watch(&of, &watching).await,
                            scope => Box::pin(Run::shown(&of, &scope, caller).await?.finish()).await,
                        }
                    }
                    Work::Erase(ports, config) => {
                        let calls = Calls::new(config.read_units, patience, stop);
                        erase_and_report(ports, shards, calls, &config).await
                    }
                }
            }
            .boxed()
        });
        Ok(())
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

    /// A process that watches is a service.
    fn patience(args: &Args) -> Option<Duration> {
        (!args.watch).then_some(args.patience)
    }

    /// Only who stays has something to show.
    fn admin_listen(args: &Args) -> Listen {
        if args.watch && args.command.is_none() { args.common.admin_listen } else { Listen::Off }
    }
}
