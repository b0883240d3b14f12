//! The tables and the log that a recount works on.

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::{dynamodb, kafka};
use tally_core::ports::Producer;
use tally_core::ports::log::TopicReader;

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
