//! A pipeline without faults under paused time: one consumer and one streamer over the log's twin and the emulator, whose
//! requests are counted. One input gives one outcome, on any machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::log::Broker;
use tally_change_streamer as streamer;
use tally_consumer as consumer;
use tally_core::consume::LanePolicy;
use tally_core::ids::{LaneCount, ShardCount};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Rule};
use tally_service::{Chance, Clock, Host, Running};

use crate::meter::Meter;

/// When every run begins.
const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// The topic of events.
pub const TOPIC: &str = "likes";

/// The pipeline while it runs.
pub struct Pipeline {
    pub emulator: Emulator,
    pub broker: Broker,
    pub clock: Clock,
    /// Requests of the consumer, and those of the streamer.
    pub meters: [Meter; 2],
    /// The harness's own ports, whose requests are not counted.
    pub counts: dynamodb::Counts,
    pub checkpoints: dynamodb::Checkpoints,
    pub fences: dynamodb::Likes,
    running: Vec<Running>,
}

impl Pipeline {
    /// Empty tables and a topic of so many partitions; nothing runs yet.
    ///
    /// # Errors
    /// The emulator does not take the tables.
    pub async fn new(partitions: u32) -> anyhow::Result<Self> {
        let epoch = std::time::UNIX_EPOCH + Duration::from_millis(BEGAN.0);
        let emulator = Emulator::new(Config { epoch: Some(epoch), ..Config::default() });
        let connection = Connection::in_process(&settings(), emulator.http_client(), BEGAN);
        dynamodb::ensure_tables(&connection).await.context("cannot create the tables")?;
        let broker = Broker::new();
        broker.create_topic(TOPIC, partitions);
        broker.create_topic("likes.dlq", 1);
        Ok(Self {
            meters: [Meter::new(&emulator), Meter::new(&emulator)],
            emulator,
            broker,
            clock: Clock::starting_at(BEGAN),
            counts: dynamodb::Counts::new(&connection),
            checkpoints: dynamodb::Checkpoints::new(&connection),
            fences: dynamodb::Likes::new(&connection, ShardCount::DEFAULT),
            running: Vec::new(),
        })
    }

    /// Starts both services; from now on requests are as slow as `rules` say.
    pub fn start(&mut self, rules: Vec<Rule>) {
        self.emulator.set_faults(rules);
        let host = |name: &str, seed| Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed));
        let [consumers, streamers] = &self.meters;
        let connection = Connection::in_process(&settings(), consumers.clone(), self.clock.now());
        let (broker, reader, rows) = (self.broker.clone(), self.broker.clone(), connection.clone());
        let ports = consumer::Ports {
            checkpoints: Arc::new(dynamodb::Checkpoints::new(&connection)),
            rows: Box::new(move |shards| Arc::new(dynamodb::Likes::new(&rows, shards))),
            maps: Arc::new(dynamodb::Maps::new(&connection)),
            join: Box::new(move || Ok(Box::new(broker.join("tally-consumer", TOPIC)))),
            producer: Arc::new(self.broker.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(reader.reader("by-hand", topic)))),
        };
        // One chain of transactions in each partition: figures do not depend on how batches fall.
        let lanes = LanePolicy::Pinned(LaneCount::ONE);
        let reads = consumer::ReadSettings { lanes, ..consumer::ReadSettings::default() };
        let app = consumer::App::with_ports(consumer::Mode::Consume, reads, ports);
        self.running.push(Running::start(app, host("consumer", 1)));
        let connection = Connection::in_process(&settings(), streamers.clone(), self.clock.now());
        let config = streamer::Config {
            table_prefix: String::new(),
            shards: None,
            cache: None,
            feed: None,
            rules: streamer::Rules::default(),
        };
        let app = streamer::App::with_ports(config, streamer::Ports::over(&connection));
        self.running.push(Running::start(app, host("change-streamer", 2)));
    }

    /// Stops both.
    pub async fn stop(self) {
        for running in self.running {
            running.stop(Duration::from_secs(60)).await;
        }
    }
}

/// One attempt, whose failure would be seen, and no time limit.
fn settings() -> Settings {
    Settings { attempts: 1, attempt_timeout: Duration::from_secs(3_600), ..Settings::local("") }
}
