//! A pipeline without faults under paused time: consumers and streamers over the log's twin and the emulator, whose requests
//! are counted. One input gives one outcome, on any machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Connection, Consistency, Settings};
use tally_adapters::memory::log::Broker;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Rule};
use tally_service::{Chance, Clock, Host, Running};

use crate::meter::Meter;

/// When every run begins.
const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// The topic of events.
pub const TOPIC: &str = "likes";

/// The log of changes.
const CHANGES: &str = "changes";

/// How large a pipeline is.
pub struct Sizes {
    /// Kafka partitions.
    pub partitions: u32,
    /// Partitions of the log of changes.
    pub changes: u32,
    pub consumers: u64,
    pub streamers: u64,
    /// How each consumer reads.
    pub reads: consumer::ReadSettings,
    pub emulator: Config,
}

impl Default for Sizes {
    /// One consumer and one streamer.
    fn default() -> Self {
        Self {
            partitions: 1,
            changes: 1,
            consumers: 1,
            streamers: 1,
            reads: consumer::ReadSettings::default(),
            emulator: Config::default(),
        }
    }
}

/// The pipeline while it runs.
pub struct Pipeline {
    pub emulator: Emulator,
    pub broker: Broker,
    pub clock: Clock,
    /// Requests of the consumers, and those of the streamers.
    pub meters: [Meter; 2],
    /// The harness's own ports, whose requests are not counted.
    pub counters: Counters,
    /// What is stored of the log of changes.
    pub log: Changes,
    pub checkpoints: dynamodb::Checkpoints,
    /// How far each partition has come.
    pub claims: Claims,
    consumers: u64,
    streamers: u64,
    reads: consumer::ReadSettings,
    running: Vec<Running>,
}

impl Pipeline {
    /// Empty tables and a topic of so many partitions; nothing runs yet.
    ///
    /// # Errors
    /// The emulator does not take the tables.
    pub async fn new(partitions: u32) -> anyhow::Result<Self> {
        Self::sized(Sizes { partitions, ..Sizes::default() }).await
    }

    /// The same of other sizes.
    ///
    /// # Errors
    /// The emulator does not take the tables.
    pub async fn sized(sizes: Sizes) -> anyhow::Result<Self> {
        let Sizes { partitions, changes, consumers, streamers, reads, emulator } = sizes;
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(Config { epoch: Some(epoch), ..emulator });
        let connection = Connection::in_process(&settings(), emulator.http_client(), BEGAN);
        dynamodb::ensure_tables(&connection).await.context("cannot create the tables")?;
        let broker = Broker::new();
        broker.create_topic(TOPIC, partitions);
        broker.create_topic("likes.dlq", 1);
        broker.create_topic(CHANGES, changes);
        let clock = Clock::starting_at(BEGAN);
        Ok(Self {
            meters: std::array::from_fn(|_| Meter::new(&emulator)),
            emulator,
            broker,
            clock,
            counters: Counters::new(&connection),
            log: Changes::new(&connection),
            checkpoints: dynamodb::Checkpoints::new(&connection),
            claims: Claims::new(&connection, clock),
            consumers,
            streamers,
            reads,
            running: Vec::new(),
        })
    }

    /// Starts all services; from now on requests are as slow as `rules` say.
    pub fn start(&mut self, rules: Vec<Rule>) {
        self.emulator.set_faults(rules);
        for nth in 1..=self.consumers {
            let connection = Connection::in_process(&settings(), self.meters[0].clone(), self.clock.now());
            let (reads, ports) = (self.reads.clone(), self.consumer());
            let app = consumer::App::with_ports(reads, ports, connection);
            self.running.push(Running::start(app, self.host("consumer", nth)));
        }
        for nth in 1..=self.streamers {
            let config = streamer::Config::plain("", None, streamer::Rules::default());
            let connection = Connection::in_process(&settings(), self.meters[1].clone(), self.clock.now());
            let app = streamer::App::with_ports(config, streamer::Ports::over(&connection, self.changes()));
            self.running.push(Running::start(app, self.host("change-streamer", self.consumers + nth)));
        }
    }

    fn changes(&self) -> streamer::LogPorts {
        let broker = self.broker.clone();
        streamer::LogPorts {
            topic: CHANGES.to_owned(),
            producer: Arc::new(Stamping(self.broker.clone(), self.clock)),
            reader: Arc::new(self.broker.reader("tally-change-streamer", CHANGES)),
            join: Arc::new(move || Ok(Box::new(broker.join("tally-change-streamer", CHANGES)))),
        }
    }

    fn host(&self, name: &str, seed: u64) -> Host {
        Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed))
    }

    fn consumer(&self) -> consumer::Ports {
        let (broker, reader) = (self.broker.clone(), self.broker.clone());
        consumer::Ports {
            join: Box::new(move || Ok(Box::new(broker.join("tally-consumer", TOPIC)))),
            producer: Arc::new(self.broker.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
        }
    }

    /// A counter as it is; an empty one where there is none.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn counter(&self, id: &CounterId) -> Outcome<Counter> {
        let mut read = self.counters.read(std::slice::from_ref(id), Consistency::Strong).await?;
        read.counters.remove(id).unwrap_or_else(|| Ok(Counter::default()))
    }

    /// Stops all.
    pub async fn stop(self) {
        for running in self.running {
            running.stop(Duration::from_secs(60)).await;
        }
    }
}

/// A producer to a topic that states when each record was appended.
struct Stamping(Broker, Clock);

#[async_trait]
impl Producer for Stamping {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.write(record, self.1.now())
    }
}

/// One attempt, whose failure would be seen, and no time limit.
fn settings() -> Settings {
    Settings { attempts: 1, attempt_timeout: Duration::from_secs(3_600), ..Settings::local("") }
}
