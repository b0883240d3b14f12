//! The composition root: which adapter serves which port, and what the process does with them.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use futures_util::FutureExt;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::audit::AuditRun;
use tally_core::backoff::Backoff;
use tally_core::ports::Producer;
use tally_core::ports::log::TopicReader;
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Invalid, Listen, Program};

use crate::args::Args;
use crate::calls::Calls;
use crate::config::{Config, Job, RecountConfig, Scope};
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
    config: Config,
    ports: Wired,
    /// The id of the run, where a caller has given it.
    caller: Option<AuditRun>,
}

enum Wired {
    Recount(Box<Ports>),
    Erase(Box<ErasePorts>),
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
        let ports = match &config.job {
            Job::Recount(recount) => {
                let log = LogPorts::open(config.kafka.as_ref(), &recount.topic)?;
                Wired::Recount(Box::new(Ports::over(&connection, log)))
            }
            Job::Erase(_) => {
                let producer = config.kafka.as_ref().map(kafka::Producer::new).transpose();
                let producer = producer.context("cannot set up the producer")?.map(|producer| Arc::new(producer) as _);
                Wired::Erase(Box::new(ErasePorts { tables: connection, producer }))
            }
        };
        Ok(Self { config, ports, caller: None })
    }

    /// A job over `ports`, whatever is behind them. Where the job is an erasure, its events go where the log is.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        let ports = match &config.job {
            Job::Recount(_) => Wired::Recount(Box::new(ports)),
            Job::Erase(_) => {
                let producer = config.kafka.as_ref().map(|_| ports.log.producer);
                Wired::Erase(Box::new(ErasePorts { tables: ports.tables, producer }))
            }
        };
        Self { config, ports, caller: None }
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
        match &self.ports {
            Wired::Recount(ports) => {
                let Ports { recounts, deployment, .. } = Ports::clone(ports);
                routes(Desk { recounts, deployment, clock: host.clock() })
            }
            Wired::Erase(_) => Router::new(),
        }
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { config, ports, caller } = self;
        let tables = match &ports {
            Wired::Recount(ports) => &ports.tables,
            Wired::Erase(ports) => &ports.tables,
        };
        // A recount creates nothing: a process that writes rows says what the deployment is.
        let shards = Deployment { tables, shards: config.shards }.join(&host).await?;
        if let Wired::Recount(ports) = &ports {
            host.wait_for("changes", Backoff::STORE, || begun(&ports.changes)).await?;
        }
        let (by, watching) = ((host.clock(), host.chance().clone()), host.clone());
        host.job("recount", move |stop| {
            async move {
                match (ports, config.job) {
                    (Wired::Recount(ports), Job::Recount(config)) => {
                        let of = Recount::new(*ports, shards, config.rules, by, stop).await?;
                        run(&of, &config, caller, &watching).await
                    }
                    (Wired::Erase(ports), Job::Erase(config)) => {
                        let calls = Calls::new(config.read_units, by, stop);
                        erase_and_report(*ports, shards, calls, &config).await
                    }
                    _ => unreachable!("the ports are those of the job"),
                }
            }
            .boxed()
        });
        Ok(())
    }
}

async fn run(of: &Recount, config: &RecountConfig, caller: Option<AuditRun>, host: &Host) -> anyhow::Result<Exit> {
    if config.scope == Scope::Watch {
        return watch(of, host).await;
    }
    let run = Run::begin(of, &config.scope, caller).await?;
    Box::pin(run.finish()).await
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

    /// Only who stays has something to show.
    fn admin_listen(args: &Args) -> Listen {
        if args.watch && args.command.is_none() { args.common.admin_listen } else { Listen::Off }
    }
}
