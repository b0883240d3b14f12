//! The composition root: real adapters or given ports, and the tasks that make a consumer of them.

use std::sync::Arc;

use anyhow::{Context, bail};
use tally_adapters::{dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::{Checkpoints, FencedRows, Intake, Outcome, Producer, Shelf};
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Listen, Program, Stage};
use tokio::sync::Semaphore;

use crate::args::{Args, ResetTo};
use crate::config::{Action, Config, ReadSettings};
use crate::dlq::{self, Replay};
use crate::fences::Fences;
use crate::lag::{Board, Meter};
use crate::membership::Membership;
use crate::metrics;
use crate::worker::Shared;

/// The bookmarks of a replay belong to this group.
const REPLAY_GROUP: &str = "tally-dlq-replay";

/// Opens a topic, by its name, to be read by hand.
pub type OpenShelf = Box<dyn Fn(&str) -> Outcome<Arc<dyn Shelf>> + Send>;

/// All that the consumer needs of the world.
pub struct Ports {
    /// What the deployment was created with, and open gaps.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// The rows of a deployment whose posts have so many shards.
    pub rows: Box<dyn FnOnce(ShardCount) -> Arc<dyn FencedRows> + Send>,
    /// Joins the group. Called once the store has answered, for from then on the membership has to be polled.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// Where dead letters go, and where replayed events come from.
    pub producer: Arc<dyn Producer>,
    /// A topic read by hand.
    pub shelf: OpenShelf,
}

/// The consumer, wired and ready to start.
pub struct App {
    action: Action,
    settings: ReadSettings,
    ports: Ports,
}

impl App {
    /// On DynamoDB and Kafka. Nothing is connected yet.
    ///
    /// # Errors
    /// Settings that a client does not take, such as a certificate that does not load.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let Config { action, kafka, store, settings } = config;
        let connection = dynamodb::Connection::open(&store).await;
        let producer = kafka::Producer::new(&kafka).context("cannot set up a kafka producer")?;
        let (group, topic, join) = (settings.group.clone(), settings.topic.clone(), kafka.clone());
        let ports = Ports {
            checkpoints: Arc::new(dynamodb::Checkpoints::new(&connection)),
            rows: Box::new(move |shards| Arc::new(dynamodb::Likes::new(&connection, shards))),
            join: Box::new(move || Ok(Box::new(kafka::Source::new(&join, &group, &topic)?))),
            producer: Arc::new(producer),
            shelf: Box::new(move |topic| Ok(Arc::new(kafka::Shelf::new(&kafka, REPLAY_GROUP, topic)?))),
        };
        Ok(Self::with_ports(action, settings, ports))
    }

    /// On other ports.
    pub fn with_ports(action: Action, settings: ReadSettings, ports: Ports) -> Self {
        Self { action, settings, ports }
    }

    fn consume(self, host: &Host, shards: ShardCount) -> anyhow::Result<()> {
        let permits = Semaphore::new(self.settings.concurrency);
        let rows = (self.ports.rows)(shards);
        let intake = (self.ports.join)().context("cannot join the group")?;
        let Self { settings, ports: Ports { producer, .. }, .. } = self;
        let shared = Arc::new(Shared { rows, producer, settings, shards, permits, host: host.clone() });
        let board = Board::default();
        host.spawn(Stage::Support, "lag", Meter { board: board.clone(), clock: host.clock() });
        // Workers stop first, and give their partitions back to a membership that still is there.
        host.spawn(Stage::Support, "membership", Membership { intake, shared, board });
        Ok(())
    }

    fn list_letters(self, host: &Host, limit: usize) -> anyhow::Result<()> {
        let shelf = (self.ports.shelf)(&self.settings.dead_letter_topic).context("cannot set up a reader")?;
        host.job("dlq list", move |stop| async move {
            stop.unless_requested(dlq::list(&*shelf, limit)).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn replay_letters(self, host: &Host, shards: ShardCount, limit: usize) -> anyhow::Result<()> {
        let shelf = (self.ports.shelf)(&self.settings.dead_letter_topic).context("cannot set up a reader")?;
        let ReadSettings { topic, key, .. } = self.settings;
        let replay = Replay { shelf, producer: self.ports.producer, topic, key, shards };
        host.job("dlq replay", move |stop| async move {
            let done = stop.unless_requested(replay.run(limit)).await??;
            crate::print::line(&format!(
                "replayed\t{}\nskipped\t{}\nof other topics\t{}",
                done.sent, done.skipped, done.foreign
            ))?;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn fences(self, shards: ShardCount) -> anyhow::Result<Fences> {
        let shelf = (self.ports.shelf)(&self.settings.topic).context("cannot set up a reader")?;
        let Ports { checkpoints, rows, .. } = self.ports;
        Ok(Fences { rows: rows(shards), checkpoints, shelf, topic: self.settings.topic })
    }

    fn show_fences(self, host: &Host, shards: ShardCount) -> anyhow::Result<()> {
        let fences = self.fences(shards)?;
        host.job("fence show", move |stop| async move {
            stop.unless_requested(fences.show()).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn reset_fence(self, host: &Host, shards: ShardCount, partition: u32, to: ResetTo) -> anyhow::Result<()> {
        let fences = self.fences(shards)?;
        let now = host.clock().now();
        host.job("fence reset", move |stop| async move {
            stop.unless_requested(fences.reset(partition, to, now)).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let asked = self.settings.shards;
        let checkpoints = Arc::clone(&self.ports.checkpoints);
        let shards = host.wait_for("store", Backoff::STORE, || checkpoints.config(asked)).await?;
        if let Some(asked) = asked.filter(|asked| *asked != shards) {
            bail!("--shards is {asked}, but this deployment was created with {shards}");
        }
        match self.action {
            Action::Consume => self.consume(&host, shards),
            Action::ListLetters { limit } => self.list_letters(&host, limit),
            Action::ReplayLetters { limit } => self.replay_letters(&host, shards, limit),
            Action::ShowFences => self.show_fences(&host, shards),
            Action::ResetFence { partition, to } => self.reset_fence(&host, shards, partition, to),
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
        // A subcommand runs beside the service, whose listener has the port.
        if args.command.is_some() { Listen::Off } else { args.common.admin_listen }
    }
}
