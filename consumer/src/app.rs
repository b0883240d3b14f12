//! The composition root: real adapters or given ports, and the tasks of a consumer.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::registers::Registers;
use tally_adapters::dynamodb::{Checkpoints, Recounts};
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer, TopicReader};
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Invalid, Listen, Program, Stage};
use tokio::sync::Semaphore;

use crate::args::{Args, Command, CountersCommand, DlqCommand, DrawCommand, ReadSettings};
use crate::config::Config;
use crate::counters::{self, Counters};
use crate::dlq::{self, Replay};
use crate::draw::{Draw, Drawn};
use crate::import::{Import, ImportArgs};
use crate::metrics;
use crate::misrouted::Warning;
use crate::partition::{Shared, Worker};

/// The group whose committed offsets say how far replays of a deployment's dead letters have come, and the name under which
/// they write.
pub fn replay_group(table_prefix: &str) -> String {
    format!("{table_prefix}tally-dlq-replay")
}

/// Why letters cannot be told apart.
const NAMELESS: &str = "whose dead letters are meant is told by the tables";

/// Opens a topic, by its name, to be read outside of any group.
pub type OpenTopic = Box<dyn Fn(&str) -> Outcome<Arc<dyn TopicReader>> + Send>;

/// The ports of a consumer, beside its tables.
pub struct Ports {
    /// Joins the group. Called once the store has answered: from then on the membership has to be polled.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// Writes dead letters, and puts them back on the topic.
    pub producer: Arc<dyn Producer>,
    /// Reads the topic of likes and the dead-letter topic outside of any group.
    pub reader: OpenTopic,
}

/// The consumer, wired and ready to start.
pub struct App {
    /// An operator's command, instead of consuming.
    command: Option<Command>,
    settings: ReadSettings,
    ports: Ports,
    tables: dynamodb::Connection,
    /// Puts dead letters back; `None` where the ports are not over Kafka.
    replays: Option<kafka::Transactions>,
}

impl App {
    /// Over DynamoDB and Kafka. Nothing is connected yet.
    ///
    /// # Errors
    /// Settings that a client does not take, such as a certificate that does not load.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let group = config.group();
        let Config { command, kafka, store, settings } = config;
        let tables = dynamodb::Connection::open(&store).await;
        let producer = kafka::Producer::new(&kafka).context("cannot set up a kafka producer")?;
        let replays = replay_group(&tables.tables().prefix);
        let (topic, join) = (settings.topic.clone(), kafka.clone());
        let ports = Ports {
            join: Box::new({
                let tables = tables.clone();
                move || {
                    let source = kafka::Source::new(&join, &group, &topic)?;
                    // The tables are checked by now, which says what they are.
                    Ok(Box::new(match tables.deployment() {
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
        Ok(Self { command, replays, ..Self::with_ports(settings, ports, tables) })
    }

    /// A consumer over any ports, and these tables.
    pub fn with_ports(settings: ReadSettings, ports: Ports, tables: dynamodb::Connection) -> Self {
        Self { command: None, settings, ports, tables, replays: None }
    }

    /// What tells the deployment from others, once its tables were checked.
    fn name(&self) -> Option<String> {
        self.tables.deployment().map(str::to_owned)
    }

    fn consume(self, host: &Host, shards: ShardCount) -> anyhow::Result<()> {
        let name = self.name();
        let intake = (self.ports.join)().context("cannot join the group")?;
        let Self { settings, ports: Ports { producer, reader, .. }, tables, .. } = self;
        let shared = Arc::new(Shared {
            registers: Registers::new(&tables),
            claims: Claims::new(&tables, host.clock()),
            changes: Changes::new(&tables),
            deployment: Checkpoints::new(&tables),
            name,
            producer,
            reader: reader(&settings.topic).context("cannot set up a reader")?,
            permits: Arc::new(Semaphore::new(settings.concurrency)),
            settings,
            shards,
            host: host.clone(),
            misrouted: Warning::default(),
        });
        let readiness = host.readiness().clone();
        let begin = Box::new(move |log: Arc<dyn OwnedPartition>| {
            let name = format!("partition-{}", log.partition().index);
            shared.host.worker(Stage::Intake, &name, Worker { log, shared: Arc::clone(&shared) });
        });
        let (on_rebalance, on_fault) = (metrics::rebalanced, metrics::kafka_error);
        // The membership outlives the partitions' workers, which give their partitions back to it.
        host.spawn(
            Stage::Support,
            "membership",
            kafka::Membership { intake, readiness, begin, on_rebalance, on_fault },
        );
        Ok(())
    }

    fn list_letters(self, host: &Host, limit: usize) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let reader = (self.ports.reader)(&self.settings.letters()).context("cannot set up a reader")?;
        let topic = self.settings.topic;
        host.job("dlq list", move |stop| async move {
            stop.unless_requested(dlq::list(&*reader, (&deployment, &topic), limit)).await??;
            Ok(Exit::CLEAN)
        });
        Ok(())
    }

    fn replay_letters(self, host: &Host, limit: usize, sums: bool, dry_run: bool) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let reader = (self.ports.reader)(&self.settings.letters()).context("cannot set up a reader")?;
        let transactions = Arc::new(self.replays.context("dead letters are put back in Kafka")?);
        let (topic, checkpoints) = (self.settings.topic, Checkpoints::new(&self.tables));
        host.job("dlq replay", move |stop| async move {
            let defined = checkpoints.definitions().await.context("cannot read the counters")?;
            let definitions = defined.said_in(&topic);
            let wanted = dlq::Wanted::default();
            let replay = Replay { reader, transactions, deployment, topic, definitions, wanted, sums, dry_run };
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

    fn import(self, host: &Host, settings: ImportArgs) -> anyhow::Result<()> {
        let topic = self.settings.topic;
        let reader = (self.ports.reader)(&topic).context("cannot set up a reader")?;
        let import = Import { reader, producer: self.ports.producer, topic, host: host.clone(), settings };
        host.job("import", move |stop| import.run(stop));
        Ok(())
    }

    fn counters(self, host: &Host, file: Option<&Path>) -> anyhow::Result<()> {
        let counters = Counters { deployment: Checkpoints::new(&self.tables), topic: self.settings.topic };
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

    async fn verify_draw(self, host: &Host, drawn: Drawn) -> anyhow::Result<()> {
        let deployment = self.name().context(NAMELESS)?;
        let Self { ports: Ports { reader, .. }, settings, tables, .. } = self;
        let checkpoints = Checkpoints::new(&tables);
        let defined = host.wait_for("counters", Backoff::STORE, || checkpoints.definitions()).await?;
        let records = (Recounts::new(&tables), Claims::new(&tables, host.clock()));
        let open = |topic: &str| reader(topic).context("cannot set up a reader");
        let draw = Draw::of(drawn, &defined, records, deployment, (&settings.topic, &settings.letters()), open)?;
        let clock = host.clock();
        host.job("draw verify", move |stop| async move {
            let found = stop.unless_requested(draw.persist(clock)).await?;
            crate::print::line(&found.to_string())?;
            Ok(found.exit())
        });
        Ok(())
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let command = self.command.clone();
        // An import needs Kafka alone.
        if let Some(Command::Import(import)) = command {
            return self.import(&host, import);
        }
        let shards = Deployment { tables: &self.tables, shards: self.settings.shards }.create(&host).await?;
        match command {
            None => self.consume(&host, shards),
            Some(Command::Dlq(DlqCommand::List { limit })) => self.list_letters(&host, limit),
            Some(Command::Dlq(DlqCommand::Replay { limit, sums, dry_run })) => {
                self.replay_letters(&host, limit, sums, dry_run)
            }
            Some(Command::Counters(CountersCommand::List)) => self.counters(&host, None),
            Some(Command::Counters(CountersCommand::Apply { file })) => self.counters(&host, Some(&file)),
            Some(Command::Draw(DrawCommand::Verify(drawn))) => self.verify_draw(&host, drawn).await,
            Some(Command::Import(_)) => unreachable!("begun above"),
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
