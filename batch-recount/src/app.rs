//! Puts the recount together: opens the tables and the log, and starts the job that recounts once or watches.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use futures_util::FutureExt;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::Producer;
use tally_core::ports::log::TopicReader;
use tally_service::metrics::Catalogue;
use tally_service::{Host, Program};

use crate::args::{Args, Scope};
use crate::metrics;
use crate::routes::{Desk, routes};
use crate::run::recount;
use crate::settle::{Recount, Rules};
use crate::watch::watch;

/// A recount, and the ports that it works on.
pub struct App {
    shards: Option<ShardCount>,
    scope: Scope,
    rules: Rules,
    ports: Ports,
    /// Whether the topic is in Kafka, where it can be missing.
    in_kafka: bool,
}

impl App {
    /// Takes any ports. `shards` is the number that the deployment must have, if one was given.
    pub fn with_ports(shards: Option<ShardCount>, scope: Scope, rules: Rules, ports: Ports) -> Self {
        Self { shards, scope, rules, ports, in_kafka: false }
    }
}

/// The tables, by what is in them, and the log.
#[derive(Clone)]
pub struct Ports {
    /// The tables, which are checked and watched.
    pub tables: dynamodb::Connection,
    /// The rows of the likes table, and the markers beside them.
    pub rows: dynamodb::Rows,
    /// The counters.
    pub counters: Arc<Counters>,
    /// The positions and standings of the folds, and the losses.
    pub changes: Arc<Changes>,
    /// The definitions of the deployment's counters.
    pub deployment: dynamodb::Checkpoints,
    /// Runs and how far they are, the queue of row keys, and the ledger of corrections.
    pub recounts: dynamodb::Recounts,
    /// The log of changes.
    pub log: LogPorts,
}

/// The log of changes, as a recount reads and writes it.
#[derive(Clone)]
pub struct LogPorts {
    /// The topic.
    pub topic: String,
    /// Reads the topic.
    pub reader: Arc<dyn TopicReader>,
    /// Appends corrections, and which losses are repaired.
    pub producer: Arc<dyn Producer>,
}

impl LogPorts {
    /// Opens the topic in Kafka.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn open(kafka: &kafka::Settings, topic: &str) -> anyhow::Result<Self> {
        const WHAT: &str = "cannot set up the log of changes";
        let reader = Arc::new(kafka::TopicReader::new(kafka, "tally-batch-recount", topic).context(WHAT)?);
        let producer = Arc::new(kafka::Producer::new(kafka).context(WHAT)?);
        Ok(Self { topic: topic.to_owned(), reader, producer })
    }
}

impl Ports {
    /// Returns ports over the tables of `connection`, and a log.
    pub fn over(connection: &dynamodb::Connection, log: LogPorts) -> Self {
        Self {
            tables: connection.clone(),
            rows: dynamodb::Rows::new(connection),
            counters: Arc::new(Counters::new(connection)),
            changes: Arc::new(Changes::new(connection)),
            deployment: dynamodb::Checkpoints::new(connection),
            recounts: dynamodb::Recounts::new(connection),
            log,
        }
    }
}

impl tally_service::App for App {
    fn routes(&self, host: &Host) -> Router {
        let Ports { recounts, deployment, .. } = &self.ports;
        routes(Desk { recounts: recounts.clone(), deployment: deployment.clone(), clock: host.clock() })
    }

    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, scope, rules, ports, in_kafka } = self;
        // A recount creates nothing: the processes that write rows create the deployment.
        let shards = Deployment { tables: &ports.tables, shards }.join(&host).await?;
        host.wait_for("changes", Backoff::STORE, || ports.changes.begun()).await?;
        if in_kafka && matches!(scope, Scope::Watch) {
            let LogPorts { reader, topic, .. } = ports.log.clone();
            kafka::NeededTopic::watch(&host, "topic", reader, &topic, "the changes of rows");
        }
        let (by, watching) = ((host.patience(), host.chance().clone()), host.clone());
        host.job("recount", move |stop| {
            async move {
                let of = Recount::new(ports, shards, rules, by, stop).await?;
                match scope {
                    Scope::Watch => watch(&of, &watching).await,
                    scope => Ok(recount(&of, &scope, true).await?.0),
                }
            }
            .boxed()
        });
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(args: Args) -> anyhow::Result<Self> {
        let tables = dynamodb::Connection::open(&dynamodb::Settings::of(&args.store)).await;
        let log = LogPorts::open(&args.kafka.settings()?, &args.changes.changes_topic)?;
        let app = Self::with_ports(args.store.shards, args.scope(), args.rules, Ports::over(&tables, log));
        Ok(Self { in_kafka: true, ..app })
    }
}
