//! The composition root: which adapter serves which port, and which task does what.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::{ChangeStream, Checkpoints, Intake, Outcome, Producer, TopicReader};
use tally_service::metrics::Catalogue;
use tally_service::{Host, Invalid, Patience, Program, Stage};
use tokio::sync::watch;

use crate::args::Args;
use crate::config::{Config, Rules, Topics};
use crate::follow::FollowLedger;
use crate::membership::Membership;
use crate::metrics;
use crate::saved;
use crate::worker::Shared;

/// The setting of the topic that is read.
const CHANGES: &str = "changes-topic";
/// The setting of the topic that is written.
const BOARDS: &str = "boards-topic";

/// What lists are made from, and where they go.
pub struct Ports {
    /// How far the ledger is written, and what it lacks.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// The likes table's stream: which one it has.
    pub stream: Arc<dyn ChangeStream>,
    /// Joins the group. Called once the store has answered: from then on the membership has to be polled.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// The ledger, to be asked for times.
    pub changes: Arc<dyn TopicReader>,
    /// The topic of boards, to be asked for its partitions.
    pub boards: Arc<dyn TopicReader>,
    /// Writes boards.
    pub producer: Arc<dyn Producer>,
}

/// The service, wired.
pub struct App {
    shards: Option<ShardCount>,
    topics: Topics,
    rules: Rules,
    state_dir: Option<PathBuf>,
    ports: Ports,
    /// The tables to check at the start; `None` where the ports are not over tables.
    tables: Option<dynamodb::Connection>,
}

impl App {
    /// Over DynamoDB and Kafka. Nothing is connected yet.
    ///
    /// # Errors
    /// Settings that a client does not take, such as a certificate that does not load.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let Config { table_prefix, shards, kafka, group, topics, rules, state_dir } = config;
        if let Some(folder) = &state_dir {
            let unfit = |error| Invalid::setting("state-dir", format!("{} takes no files: {error}", folder.display()));
            saved::try_folder(folder).map_err(unfit)?;
        }
        let connection =
            dynamodb::Connection::open(&dynamodb::Settings { table_prefix, ..dynamodb::Settings::default() }).await;
        let ports = Ports::over(&connection, &kafka, &group, &topics)?;
        Ok(Self { shards, tables: Some(connection), state_dir, ..Self::with_ports(topics, rules, ports) })
    }

    /// Over any ports.
    pub fn with_ports(topics: Topics, rules: Rules, ports: Ports) -> Self {
        Self { shards: None, topics, rules, state_dir: None, ports, tables: None }
    }

    /// Keeps sums of the log in a folder.
    #[must_use]
    pub fn keeping(self, folder: PathBuf) -> Self {
        Self { state_dir: Some(folder), ..self }
    }
}

impl Ports {
    /// The tables of `connection`, and Kafka.
    ///
    /// # Errors
    /// Settings that the client does not take.
    pub fn over(
        connection: &dynamodb::Connection,
        kafka: &kafka::Settings,
        group: &str,
        topics: &Topics,
    ) -> anyhow::Result<Self> {
        let reader = |topic: &str| kafka::TopicReader::new(kafka, group, topic).context("cannot set up a reader");
        let producer = kafka::Producer::new(kafka).context("cannot set up a kafka producer")?;
        let join = {
            let (settings, group, topic) = (kafka.clone(), group.to_owned(), topics.changes.clone());
            let connection = connection.clone();
            move || {
                let source = kafka::Source::new(&settings, &group, &topic)?;
                // The tables are checked by now, which says what they are.
                Ok(Box::new(match connection.deployment() {
                    Some(deployment) => source.of_deployment(deployment),
                    None => source,
                }) as Box<dyn Intake>)
            }
        };
        Ok(Self {
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            stream: Arc::new(dynamodb::Streams::new(connection)),
            join: Box::new(join),
            changes: Arc::new(reader(&topics.changes)?),
            boards: Arc::new(reader(&topics.boards)?),
            producer: Arc::new(producer),
        })
    }
}

/// How many partitions the topic that `setting` names has.
async fn partitions(host: &Host, reader: &dyn TopicReader, setting: &str, topic: &str) -> anyhow::Result<u32> {
    if !host.wait_for("kafka", Backoff::STORE, || reader.exists()).await? {
        return Err(Invalid::setting(setting, format!("there is no topic {topic}")).into());
    }
    let logs = host.wait_for("kafka", Backoff::STORE, || reader.logs()).await?;
    Ok(u32::try_from(logs.len()).unwrap_or(u32::MAX))
}

/// Refuses a topic of another number of partitions than the ledger was begun with: it is another one, or a subject's changes
/// are in several of its partitions.
async fn check_ledger(host: &Host, checkpoints: &dyn Checkpoints, topic: &str, found: u32) -> anyhow::Result<()> {
    let begun = || async {
        let none = || Fault::Transient("no change-streamer has begun the ledger of changes yet".to_owned());
        checkpoints.changes().await?.ok_or_else(none)
    };
    let terms = host.wait_for("ledger", Backoff::STORE, begun).await?;
    if terms.partitions == found {
        return Ok(());
    }
    let problem =
        format!("topic {topic} has {found} partitions, and the ledger of changes was begun with {}", terms.partitions);
    Err(Invalid::setting(CHANGES, problem).into())
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, topics, rules, state_dir, ports, tables } = self;
        let checkpoints = Arc::clone(&ports.checkpoints);
        Deployment { tables: tables.as_ref(), checkpoints, shards }.join(&host).await?;
        let of = partitions(&host, &*ports.changes, CHANGES, &topics.changes).await?;
        let boards = partitions(&host, &*ports.boards, BOARDS, &topics.boards).await?;
        check_ledger(&host, &*ports.checkpoints, &topics.changes, of).await?;
        let Ports { checkpoints, stream, join, changes, producer, .. } = ports;
        let (told, standing) = watch::channel(Default::default());
        let (clock, partitions) = (host.clock(), of as usize);
        let follow = FollowLedger { checkpoints, stream, changes: Arc::clone(&changes), partitions, clock, told };
        host.spawn(Stage::Support, "ledger", follow);
        let patience = Patience::new(clock, host.chance().clone()).on_fault(|_, fault, _| metrics::retried(fault));
        let intake = join().context("cannot join the group")?;
        let held = AtomicUsize::new(0);
        let shared = Shared {
            host: host.clone(),
            rules,
            state_dir,
            topics,
            changes,
            producer,
            standing,
            partitions: of,
            boards,
            patience,
            held,
        };
        // The membership outlives the partitions' workers, which give their partitions back to it.
        host.spawn(Stage::Support, "membership", Membership { intake, shared: Arc::new(shared) });
        Ok(())
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
}
