//! The composition root: real adapters or given ports, and the tasks of a consumer.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::event::KeyScheme;
use tally_core::ids::ShardCount;
use tally_core::ports::{CounterMaps, DeploymentConfig, FencedRows, Intake, Outcome, Producer, TopicReader};
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Invalid, Listen, Program, Stage};
use tokio::sync::{Semaphore, watch};

use crate::args::Args;
use crate::config::{Config, Mode, ReadSettings, Replaying};
use crate::counters::{self, Counters};
use crate::dlq::{self, Replay};
use crate::draw::{Drawn, Verifier};
use crate::fences::{Fences, Reset};
use crate::homes::FollowHomes;
use crate::import::{Import, ImportSettings};
use crate::lag::{Board, Meter};
use crate::membership::Membership;
use crate::metrics;
use crate::misrouted::Warning;
use crate::worker::Shared;

/// The group whose committed offsets say how far replays of a deployment's dead letters have come, and the name under which
/// they write.
pub fn replay_group(table_prefix: &str) -> String {
    format!("{table_prefix}tally-dlq-replay")
}

/// Why letters cannot be told apart.
const NAMELESS: &str = "whose dead letters are meant is told by the tables";

/// Opens a topic, by its name, to be read outside of any group.
pub type OpenTopic = Box<dyn Fn(&str) -> Outcome<Arc<dyn TopicReader>> + Send>;

/// The ports of a consumer.
pub struct Ports {
    /// What the deployment was created with.
    pub checkpoints: Arc<dyn DeploymentConfig>,
    /// The rows of a deployment whose posts have so many shards.
    pub rows: Box<dyn FnOnce(ShardCount) -> Arc<dyn FencedRows> + Send>,
    /// The maps of sets.
    pub maps: Arc<dyn CounterMaps>,
    /// Joins the group. Called once the store has answered: from then on the membership has to be polled.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// Writes dead letters, and puts them back on the topic.
    pub producer: Arc<dyn Producer>,
    /// Reads the topic of likes and the dead-letter topic for an operator.
    pub reader: OpenTopic,
}

/// The consumer, wired and ready to start.
pub struct App {
    mode: Mode,
    settings: ReadSettings,
    ports: Ports,
    /// The tables to check before anything is written; `None` where the ports are not over tables.
    tables: Option<dynamodb::Connection>,
    /// Puts dead letters back; `None` where the ports are not over Kafka.
    replays: Option<kafka::Transactions>,
}

impl App {
    /// Over DynamoDB and Kafka. Nothing is connected yet.
    ///
    /// # Errors
    /// Settings that a client does not take, such as a certificate that does not load.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let Config { mode, kafka, store, settings } = config;
        let connection = dynamodb::Connection::open(&store).await;
        let producer = kafka::Producer::new(&kafka).context("cannot set up a kafka producer")?;
        let replays = replay_group(&connection.tables().prefix);
        let (group, topic, join) = (settings.group.clone(), settings.topic.clone(), kafka.clone());
        let ports = Ports {
            checkpoints: Arc::new(dynamodb::Checkpoints::new(&connection)),
            rows: Box::new({
                let connection = connection.clone();
                move |shards| Arc::new(dynamodb::Likes::new(&connection, shards))
            }),
            maps: Arc::new(dynamodb::Maps::new(&connection)),
            join: Box::new({
                let connection = connection.clone();
                move || {
                    let source = kafka::Source::new(&join, &group, &topic)?;
                    // The tables are checked by now, which says what they are.
                    Ok(Box::new(match connection.deployment() {
                        Some(deployment) => source.of_deployment(deployment),
                        None => source,
                    }))
                }
            }),
            producer: Arc::new(producer),
            reader: Box::new({
                let (kafka, group) = (kafka.clone(), replays.clone());
                move |topic| Ok(Arc::new(kafka::TopicReader::new(&kafka, &group, topic)?))
            }),
        };
        let replays = Some(kafka::Transactions::new(&kafka, &replays));
        Ok(Self { tables: Some(connection), replays, ..Self::with_ports(mode, settings, ports) })
    }

    /// Over any ports.
    pub fn with_ports(mode: Mode, settings: ReadSettings, ports: Ports) -> Self {
        Self { mode, settings, ports, tables: None, replays: None }
    }

    /// The same, which checks and watches these tables first, and goes by their clock.
    #[must_use]
    pub fn over_tables(self, connection: dynamodb::Connection) -> Self {
        Self { tables: Some(connection), ..self }
    }

    /// What tells the deployment from others, once its tables were checked.
    fn name(&self) -> Option<String> {
        self.tables.as_ref().and_then(|tables| tables.deployment()).map(str::to_owned)
    }

    fn consume(self, host: &Host, shards: ShardCount) -> anyhow::Result<()> {
        let name = self.name();
        let permits = Semaphore::new(self.settings.concurrency);
        let rows = (self.ports.rows)(shards);
        let intake = (self.ports.join)().context("cannot join the group")?;
        let Self { settings, ports: Ports { checkpoints: deployment, maps, producer, .. }, .. } = self;
        let (told, announced) = watch::channel(0);
        host.spawn(
            Stage::Support,
            "homes",
            FollowHomes { maps: Arc::clone(&maps), announced: told, clock: host.clock() },
        );
        let shared = Arc::new(Shared {
            rows,
            maps,
            announced,
            deployment,
            name,
            producer,
            settings,
            shards,
            permits,
            host: host.clone(),
            misrouted: Warning::default(),
        });
        let board = Board::default();
        host.spawn(Stage::Support, "lag", Meter { board: board.clone(), clock: host.clock() });
        // The membership outlives the partitions' workers, which give their partitions back to it.
        host.spawn(Stage::Support, "membership", Membership { intake, shared, board });
        Ok(())
    }

    fn list_letters(self, host: &Host, limit: usize) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let reader = (self.ports.reader)(&self.settings.dead_letter_topic).context("cannot set up a reader")?;
        host.job("dlq list", move |stop| async move {
            stop.unless_requested(dlq::list(&*reader, &deployment, limit)).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn replay_letters(self, host: &Host, shards: ShardCount, asked: Replaying) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let reader = (self.ports.reader)(&self.settings.dead_letter_topic).context("cannot set up a reader")?;
        let transactions = Arc::new(self.replays.context("dead letters are put back in Kafka")?);
        let ReadSettings { topic, key, .. } = self.settings;
        let Ports { checkpoints, .. } = self.ports;
        let Replaying { limit, sums, dry_run } = asked;
        host.job("dlq replay", move |stop| async move {
            let defined = checkpoints.definitions().await.context("cannot read the counters")?;
            let definitions = defined.said_in(&topic);
            let replay = Replay {
                reader,
                transactions,
                deployment,
                topic,
                key,
                shards,
                definitions,
                wanted: dlq::Wanted::default(),
                sums,
                dry_run,
            };
            let done = stop.unless_requested(replay.run(limit)).await??;
            let sent = if dry_run { "would be replayed" } else { "replayed" };
            crate::print::line(&format!(
                "{sent}\t{}\nskipped\t{}\nof other topics or deployments\t{}",
                done.sent, done.skipped, done.foreign
            ))?;
            if done.repeated > 0 {
                crate::print::line(&format!("put back before, not sent again\t{}", done.repeated))?;
            }
            if done.sums > 0 {
                crate::print::line(&format!("of sums, not sent without --sums\t{}", done.sums))?;
            }
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn fences(self, shards: ShardCount) -> anyhow::Result<Fences> {
        let reader = (self.ports.reader)(&self.settings.topic).context("cannot set up a reader")?;
        let Ports { checkpoints, rows, .. } = self.ports;
        Ok(Fences { rows: rows(shards), checkpoints, reader, topic: self.settings.topic })
    }

    fn import(self, host: &Host, shards: ShardCount, settings: ImportSettings) -> anyhow::Result<()> {
        let ReadSettings { topic, key, .. } = self.settings;
        let reader = (self.ports.reader)(&topic).context("cannot set up a reader")?;
        let import = Import { reader, producer: self.ports.producer, topic, key, shards, host: host.clone(), settings };
        host.job("import", move |stop| import.run(stop));
        Ok(())
    }

    fn counters(self, host: &Host, file: Option<&Path>) -> anyhow::Result<()> {
        let counters = Counters { deployment: self.ports.checkpoints, topic: self.settings.topic };
        let wanted = file.map(counters::read).transpose()?;
        host.job("counters", move |stop| async move {
            match wanted {
                None => stop.unless_requested(counters.list()).await??,
                Some(wanted) => stop.unless_requested(counters.apply(&wanted)).await??,
            }
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    async fn verify_draw(self, host: &Host, shards: ShardCount, drawn: Drawn) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let Self { ports: Ports { checkpoints, rows, reader, .. }, settings, tables, .. } = self;
        let tables = tables.context("milestones are read from tables")?;
        let defined = host.wait_for("counters", Backoff::STORE, || checkpoints.definitions()).await?;
        let verifier = Verifier {
            defined: &defined,
            milestones: Arc::new(dynamodb::Recounts::new(&tables)),
            rows: rows(shards),
            deployment: &deployment,
            topic: &settings.topic,
            dead_letter_topic: &settings.dead_letter_topic,
            open: &|topic| reader(topic).context("cannot set up a reader"),
        };
        let draw = verifier.of(drawn)?;
        let clock = host.clock();
        host.job("draw verify", move |stop| async move {
            let found = stop.unless_requested(draw.persist(clock)).await?;
            crate::print::line(&found.to_string())?;
            Ok(found.exit())
        });
        Ok(())
    }

    /// Whether the deployment is needed: an import whose keys name no shard needs Kafka alone.
    fn needs_tables(&self) -> bool {
        !matches!(self.mode, Mode::Import(_)) || self.settings.key == KeyScheme::PostShard
    }

    fn show_fences(self, host: &Host, shards: ShardCount) -> anyhow::Result<()> {
        let fences = self.fences(shards)?;
        host.job("fence show", move |stop| async move {
            stop.unless_requested(fences.show()).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn reset_fence(self, host: &Host, shards: ShardCount, reset: Reset) -> anyhow::Result<()> {
        let changes = Changes::new(self.tables.as_ref().context("losses are written into tables")?);
        let fences = self.fences(shards)?;
        let now = host.clock().now();
        host.job("fence reset", move |stop| async move {
            stop.unless_requested(fences.reset(reset, &changes, now)).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let (checkpoints, shards) = (self.ports.checkpoints.clone(), self.settings.shards);
        let deployment = Deployment { tables: self.tables.as_ref(), checkpoints, shards };
        let shards = if self.needs_tables() { deployment.create(&host).await? } else { ShardCount::DEFAULT };
        match self.mode.clone() {
            Mode::Consume => self.consume(&host, shards),
            Mode::ListLetters { limit } => self.list_letters(&host, limit),
            Mode::ReplayLetters(asked) => self.replay_letters(&host, shards, asked),
            Mode::ShowFences => self.show_fences(&host, shards),
            Mode::ResetFence(reset) => self.reset_fence(&host, shards, reset),
            Mode::ListCounters => self.counters(&host, None),
            Mode::ApplyCounters(file) => self.counters(&host, Some(&file)),
            Mode::VerifyDraw(drawn) => self.verify_draw(&host, shards, drawn).await,
            Mode::Import(settings) => self.import(&host, shards, *settings),
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
        // A subcommand runs beside a consumer, whose listener has the port.
        if args.command.is_some() { Listen::Off } else { args.common.admin_listen }
    }
}
