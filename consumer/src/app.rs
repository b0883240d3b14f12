//! Puts the consumer together: opens the clients that the settings name, and starts its tasks over them or any other
//! ports.

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::ids::ShardCount;
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer, TopicReader};
use tally_service::metrics::Catalogue;
use tally_service::{Host, Program, Seldom, Stage};
use tokio::sync::Semaphore;

use crate::args::{Args, ReadSettings};
use crate::metrics;
use crate::misrouted::Warning;
use crate::partition::{Shared, Worker};

/// Returns the name under which replays of a deployment's dead letters write, and of the group whose committed offsets
/// say how far the replays have come.
pub fn replay_group(table_prefix: &str) -> String {
    format!("{table_prefix}tally-dlq-replay")
}

/// Opens a topic, by its name, to be read outside of any group.
pub type OpenTopic = Box<dyn Fn(&str) -> Outcome<Arc<dyn TopicReader>> + Send>;

/// The ports of a consumer, beside its tables.
pub struct Ports {
    /// Joins the group. Called once the store has answered: from then on the membership has to be polled.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// Writes dead letters.
    pub producer: Arc<dyn Producer>,
    /// Reads the topic of likes outside of any group.
    pub reader: OpenTopic,
}

impl Ports {
    /// Opens Kafka for a member of `group`, which reads `topic`, of a deployment with these table names. Where there are
    /// `tables`, the group has to be that of their deployment.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn over(
        kafka: &kafka::Settings,
        (group, topic): (&str, &str),
        table_prefix: &str,
        tables: Option<&dynamodb::Connection>,
    ) -> anyhow::Result<Self> {
        let (settings, readers) = (kafka.clone(), replay_group(table_prefix));
        Ok(Self {
            join: Box::new(kafka::joining(kafka, group, topic, tables)),
            producer: Arc::new(kafka::Producer::new(kafka).context("cannot set up a kafka producer")?),
            reader: Box::new(move |topic| Ok(Arc::new(kafka::TopicReader::new(&settings, &readers, topic)?))),
        })
    }
}

/// The consumer: its settings, its ports and its tables.
pub struct App {
    shards: Option<ShardCount>,
    settings: ReadSettings,
    ports: Ports,
    tables: dynamodb::Connection,
}

impl App {
    /// Takes any ports and these tables. `shards` is the number that the deployment must have, if one was given.
    pub fn with_ports(
        shards: Option<ShardCount>,
        settings: ReadSettings,
        ports: Ports,
        tables: dynamodb::Connection,
    ) -> Self {
        Self { shards, settings, ports, tables }
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let shards = Deployment { tables: &self.tables, shards: self.shards }.create(&host).await?;
        let intake = (self.ports.join)().context("cannot join the group")?;
        let Self { settings, ports: Ports { producer, reader, .. }, tables, .. } = self;
        let letters = settings.topics.letters();
        let reads_letters = reader(&letters).context("cannot set up a reader")?;
        kafka::NeededTopic::watch(&host, "dead letters", reads_letters, &letters, "dead letters");
        let shared = Arc::new(Shared {
            registers: Registers::new(&tables),
            claims: Claims::new(&tables, host.clock()),
            changes: Changes::new(&tables),
            deployment: Checkpoints::new(&tables),
            // The tables were checked, so the connection knows it.
            name: tables.deployment().map(str::to_owned),
            producer,
            reader: reader(&settings.topics.likes.topic).context("cannot set up a reader")?,
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            settings,
            shards,
            host: host.clone(),
            misrouted: Warning::default(),
            refused: Seldom::default(),
        });
        let membership = kafka::Membership::new(intake, host.readiness(), move |log: Arc<dyn OwnedPartition>| {
            let name = format!("partition-{}", log.partition().index);
            shared.host.worker(Stage::Intake, &name, Worker { log, shared: Arc::clone(&shared) });
        });
        let (on_rebalance, on_fault) = (metrics::rebalanced, metrics::kafka_error);
        // The membership outlives the partitions' workers, which give their partitions back to it.
        host.spawn(Stage::Support, "membership", kafka::Membership { on_rebalance, on_fault, ..membership });
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(Args { kafka, store, read, .. }: Args) -> anyhow::Result<Self> {
        let (kafka, group) = (kafka.settings()?, read.topics.group(&store.table_prefix));
        let tables = dynamodb::Connection::open(&dynamodb::Settings::of(&store)).await;
        let of = (&*group, &*read.topics.likes.topic);
        let ports = Ports::over(&kafka, of, &store.table_prefix, Some(&tables))?;
        Ok(Self::with_ports(store.shards, read, ports, tables))
    }
}
