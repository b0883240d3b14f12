//! Puts together the process that makes lists of what is trending: it builds the adapters, or takes those of the local
//! stack or a test, checks the topics, and starts the tasks.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::Context;
use tally_adapters::dynamodb::changes::{Changes, Config as LogConfig};
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer, TopicReader};
use tally_core::topic::Offset;
use tally_service::metrics::Catalogue;
use tally_service::{Clock, Host, Invalid, Program, Stage, Stop, Task};
use tokio::time::timeout;

use crate::args::{Args, Rules};
use crate::metrics;
use crate::worker::{NOT_SET_UP, Shared, Worker};

/// The flag that names the topic of changes.
const CHANGES: &str = "changes-topic";

/// The flag that names the topic of boards.
const BOARDS: &str = "boards-topic";

/// How many of the last records of each partition of boards the start looks at for one of its own.
const LOOKED_AT: u64 = 1_000;

/// How often the topics are checked.
const EVERY: Duration = Duration::from_secs(60);

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The adapters: where changes come from, and where lists go.
pub struct Ports {
    /// The tables, which are checked and watched.
    pub tables: dynamodb::Connection,
    /// Joins the consumer group. It is called once the store has answered, since the membership must be polled from
    /// then on.
    pub join: Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>,
    /// The log of changes, to look up offsets by time.
    pub changes: NamedReader,
    /// The topic of boards, to look up its partitions.
    pub boards: NamedReader,
    /// Writes boards.
    pub producer: Arc<dyn Producer>,
}

/// A topic, and how it is read.
#[derive(Clone)]
pub struct NamedReader {
    pub name: String,
    pub reader: Arc<dyn TopicReader>,
}

impl NamedReader {
    /// Pairs a topic's name with its reader.
    pub fn new(name: &str, reader: impl TopicReader + 'static) -> Self {
        Self { name: name.to_owned(), reader: Arc::new(reader) }
    }
}

/// The service, ready to start.
pub struct App {
    shards: Option<ShardCount>,
    rules: Rules,
    ports: Ports,
}

impl App {
    /// Builds the service on any adapters.
    ///
    /// `shards` is the number that the deployment must have, if one was given.
    pub fn with_ports(shards: Option<ShardCount>, rules: Rules, ports: Ports) -> Self {
        Self { shards, rules, ports }
    }
}

impl Ports {
    /// Uses the tables of `connection`, and Kafka.
    ///
    /// # Errors
    /// The Kafka client refuses the settings.
    pub fn over(
        connection: &dynamodb::Connection,
        kafka: &kafka::Settings,
        group: &str,
        changes: &str,
        boards: &str,
    ) -> anyhow::Result<Self> {
        let topic = |name: &str| {
            let reader = kafka::TopicReader::new(kafka, group, name).context("cannot set up a reader")?;
            Ok::<_, anyhow::Error>(NamedReader::new(name, reader))
        };
        let producer = kafka::Producer::new(kafka).context("cannot set up a kafka producer")?;
        Ok(Self {
            tables: connection.clone(),
            join: Box::new(kafka::joining(kafka, group, changes, Some(connection))),
            changes: topic(changes)?,
            boards: topic(boards)?,
            producer: Arc::new(producer),
        })
    }
}

/// Waits until the topic exists, and returns its number of partitions.
async fn partitions(host: &Host, NamedReader { name, reader }: &NamedReader) -> anyhow::Result<u32> {
    let look = || async {
        let missing = || Fault::Transient(format!("there is no topic {name}"));
        if reader.exists().await? { reader.logs().await } else { Err(missing()) }
    };
    let logs = host.wait_for("kafka", Backoff::STORE, look).await?;
    Ok(u32::try_from(logs.len()).unwrap_or(u32::MAX))
}

/// Reads the log's configuration, which the deployment's change-streamers have stored. A topic with another number of
/// partitions is refused: either it is another topic, or the changes of a subject are in several of its partitions.
async fn log_of(host: &Host, store: &Changes, topic: &str, found: u32) -> anyhow::Result<LogConfig> {
    let begun = || async { store.config().await?.ok_or_else(|| Fault::Transient(NOT_SET_UP.to_owned())) };
    let config = host.wait_for("log of changes", Backoff::STORE, begun).await?;
    if config.partitions == found {
        return Ok(config);
    }
    let problem =
        format!("topic {topic} has {found} partitions, and the log of changes was begun with {}", config.partitions);
    Err(Invalid::setting(CHANGES, problem).into())
}

/// A task that fails if the topic of changes gets another number of partitions than it had at the start, since a
/// subject's changes then go to another one.
async fn watch_topic(changes: Arc<dyn TopicReader>, partitions: usize, clock: Clock, stop: Stop) -> anyhow::Result<()> {
    while stop.unless_requested(clock.sleep(EVERY)).await.is_ok() {
        let looked = stop.unless_requested(timeout(PATIENCE, changes.logs())).await?;
        if let Ok(Ok(logs)) = looked
            && !logs.is_empty()
            && logs.len() != partitions
        {
            let problem = format!("its topic had {partitions} partitions and has {} now", logs.len());
            return Err(Invalid::setting(CHANGES, problem).into());
        }
    }
    Ok(())
}

/// The topic of boards of the deployment `own`, which has to be its own.
struct OwnBoards {
    boards: NamedReader,
    own: String,
    /// The number of partitions of the log. Their ticks are in as many partitions of the topic, the first ones.
    of: u32,
    host: Host,
}

impl OwnBoards {
    /// Returns the problem if a last record where this deployment writes is of another one.
    async fn look(&self) -> Outcome<Option<String>> {
        let last = kafka::last_records(&*self.boards.reader).await?;
        let here = last.iter().filter(|(partition, _)| partition.index < self.of);
        let mut others = here.filter_map(|(_, records)| records.iter().last()?.foreign(&self.own));
        Ok(others.next().map(|other| kafka::shared(&self.boards.name, &other)))
    }

    /// Returns whether one of the last [`LOOKED_AT`] records of a partition is of this deployment.
    async fn has_own(&self) -> Outcome<bool> {
        let logs = self.boards.reader.logs().await?;
        for (partition, log) in logs.iter().filter(|(partition, _)| partition.index < self.of) {
            let mut from = Offset(log.end.0.saturating_sub(LOOKED_AT)).max(log.start);
            while from < log.end {
                let records = self.boards.reader.read(partition, from, log.end).await?;
                if records.iter().any(|record| record.deployment().is_some_and(|named| named == self.own)) {
                    return Ok(true);
                }
                from = records.last_offset().map_or(log.end, Offset::next);
            }
        }
        Ok(false)
    }

    /// Refuses a topic with boards of another deployment. One that lately had boards of this deployment is not refused:
    /// the other one may have come later.
    async fn require(&self) -> anyhow::Result<()> {
        let look = || async {
            let Some(problem) = self.look().await? else { return Ok(None) };
            Ok((!self.has_own().await?).then_some(problem))
        };
        let problem = self.host.wait_for("kafka", Backoff::STORE, look).await?;
        problem.map_or(Ok(()), |problem| Err(Invalid::setting(BOARDS, problem).into()))
    }
}

impl Task for OwnBoards {
    /// While another deployment writes the topic as well, the process is not ready. It goes on, since readers skip the
    /// boards of other deployments.
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        loop {
            if let Ok(Ok(problem)) = stop.unless_requested(timeout(PATIENCE, self.look())).await? {
                match problem {
                    Some(problem) => {
                        tracing::error!(
                            topic = self.boards.name,
                            problem,
                            "another deployment writes the topic of boards"
                        );
                        self.host.readiness().not_ready(BOARDS, problem);
                    }
                    None => self.host.readiness().forget(BOARDS),
                }
            }
            stop.unless_requested(self.host.clock().sleep(EVERY)).await?;
        }
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, rules, ports } = self;
        let Ports { tables, join, changes, boards, producer } = ports;
        Deployment { tables: &tables, shards }.join(&host).await?;
        let of = partitions(&host, &changes).await?;
        let own = tables.deployment().map(str::to_owned);
        let own = own.map(|own| OwnBoards { boards: boards.clone(), own, of, host: host.clone() });
        let of_boards = partitions(&host, &boards).await?;
        if let Some(own) = &own {
            own.require().await?;
        }
        let store = Arc::new(Changes::new(&tables));
        let log = log_of(&host, &store, &changes.name, of).await?;
        let (watched, clock) = (Arc::clone(&changes.reader), host.clock());
        host.spawn(Stage::Support, "topic", move |stop| watch_topic(watched, of as usize, clock, stop));
        kafka::NeededTopic::watch(&host, "boards", boards.reader, &boards.name, "lists");
        if let Some(own) = own {
            host.spawn(Stage::Support, "own-boards", own);
        }
        let patience = host.patience().on_fault(|_, fault, _| metrics::RETRIES.counter(&[fault.class()]).increment(1));
        let intake = join().context("cannot join the group")?;
        let shared = Arc::new(Shared {
            host: host.clone(),
            rules,
            boards_topic: boards.name,
            changes: changes.reader,
            producer,
            deployment: log.deployment,
            name: tables.deployment().map(str::to_owned),
            store,
            partitions: of,
            boards: of_boards,
            patience,
            held: AtomicUsize::new(0),
        });
        let membership = kafka::Membership::new(intake, host.readiness(), move |log: Arc<dyn OwnedPartition>| {
            let name = format!("partition-{}", log.partition().index);
            shared.host.worker(Stage::Intake, &name, Worker { log, shared: Arc::clone(&shared) });
        });
        let on_fault = metrics::kafka_error;
        // The membership ends after the partitions' workers, which return their partitions to it.
        host.spawn(Stage::Support, "membership", kafka::Membership { on_fault, ..membership });
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(args: Args) -> anyhow::Result<Self> {
        let connection = dynamodb::Connection::open(&dynamodb::Settings::of(&args.store)).await;
        let (kafka, changes) = (args.kafka.settings()?, &args.changes.changes_topic);
        let ports = Ports::over(&connection, &kafka, &args.group(), changes, args.boards_topic()?)?;
        Ok(Self::with_ports(args.store.shards, args.effective_rules(), ports))
    }
}
