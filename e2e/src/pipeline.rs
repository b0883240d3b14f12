//! Runs consumers and streamers in this process without crashes, for the test of costs and the benchmark `scale`. Kafka
//! is an in-memory log, DynamoDB is the emulator, requests are counted, and time is paused, so the same input gives the
//! same result on any machine.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::{Connection, Consistency, Stores};
use tally_adapters::memory::log::{Broker, Stamping};
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_emulator::{Config, Emulator, Rule};
use tally_service::{Chance, Clock, Host, Running};
use tally_testkit::{BEGAN, Store};

use crate::meter::Meter;
use crate::simulation::world::settings;

/// The topic of events.
pub const TOPIC: &str = "likes";

/// The log of changes.
const CHANGES: &str = "changes";

/// A running pipeline.
pub struct Pipeline {
    pub emulator: Emulator,
    pub broker: Broker,
    pub clock: Clock,
    /// The requests of the consumers and those of the streamers.
    pub meters: [Meter; 2],
    /// The harness's own access to the tables, which is not counted.
    pub tables: Stores,
    running: Vec<Running>,
}

impl Pipeline {
    /// Creates empty tables, a topic of events and a log of changes with these numbers of partitions. Nothing runs yet.
    pub async fn new(partitions: u32, changes: u32, emulator: Config) -> Self {
        let Store { emulator, connection, .. } = Store::with(emulator).await;
        let broker = Broker::new();
        broker.create_topic(TOPIC, partitions);
        broker.create_topic("likes.dlq", 1);
        broker.create_topic(CHANGES, changes);
        let clock = Clock::starting_at(BEGAN);
        let (meters, tables) = (std::array::from_fn(|_| Meter::new(&emulator)), Stores::over(&connection, clock));
        Self { emulator, broker, clock, meters, tables, running: Vec::new() }
    }

    /// Starts this many consumers and streamers. From now on, requests are as slow as `rules` say.
    pub fn start(&mut self, [consumers, streamers]: [u64; 2], rules: Vec<Rule>) {
        self.emulator.set_faults(rules);
        for nth in 1..=consumers {
            let connection = Connection::in_process(&settings(), self.meters[0].client(), self.clock.now());
            let app = consumer::App::with_ports(None, consumer::ReadSettings::default(), self.consumer(), connection);
            self.running.push(Running::start(app, self.host("consumer", nth)));
        }
        for nth in 1..=streamers {
            let connection = Connection::in_process(&settings(), self.meters[1].client(), self.clock.now());
            let ports = streamer::Ports::over(&connection, self.changes());
            let app = streamer::App::with_ports(None, streamer::Settings::default(), ports);
            self.running.push(Running::start(app, self.host("change-streamer", consumers + nth)));
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

    /// A counter, which is empty if it does not exist.
    ///
    /// # Errors
    /// The table or the item cannot be read.
    pub async fn counter(&self, id: &CounterId) -> Outcome<Counter> {
        let mut read = self.tables.counters.read(std::slice::from_ref(id), Consistency::Strong).await?;
        read.counters.remove(id).unwrap_or_else(|| Ok(Counter::default()))
    }

    /// Stops all services.
    pub async fn stop(self) {
        for running in self.running {
            running.stop(Duration::from_secs(60)).await;
        }
    }
}
