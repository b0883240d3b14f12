//! Opens the deployment that a verb (subcommand) of `tally` works on. `Desk` checks its tables, holds what reads and
//! writes them, and knows how to reach Kafka where brokers are named. Nearly every verb begins with [`Desk::open`].

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use futures_util::stream::BoxStream;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Cursor, ScannedRow, Segment, Usual};
use tally_adapters::{dynamodb, kafka};
use tally_batch_recount::Calls;
use tally_consumer::{TopicArgs, replay_group};
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, MemberKey, RowKey, ShardCount};
use tally_core::ports::{Outcome, TopicReader as _};
use tally_core::weight::Weight;
use tally_service::{Clock, Host, Patience, StoreArgs, Until, parse_duration};

use crate::ended::Usage;
use crate::health::say;

/// The flags that say which deployment is meant. Flatten them last, unless each flag names its heading: flags behind
/// them would stand under their headings.
#[derive(Args, Clone, Debug)]
pub(crate) struct Where {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) kafka: kafka::KafkaArgs,

    #[command(flatten)]
    pub(crate) topics: TopicArgs,

    #[command(flatten)]
    pub(crate) changes: kafka::ChangesTopic,

    /// How long a verb that reads on and on waits for tables or Kafka that do not answer, before it exits with 69
    #[arg(long, env = "TALLY_PATIENCE", default_value = "5m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Pace")]
    pub(crate) patience: Duration,
}

/// A deployment. [`Desk::open`] has checked that its tables are there, and have a form and a format that this build
/// knows.
pub(crate) struct Desk {
    pub(crate) connection: dynamodb::Connection,
    pub(crate) shards: ShardCount,
    pub(crate) checkpoints: dynamodb::Checkpoints,
    pub(crate) recounts: dynamodb::Recounts,
    /// The table `like_counts`.
    pub(crate) counters: Counters,
    /// What `checkpoints` has about the log of changes.
    pub(crate) changes: Changes,
    pub(crate) rows: dynamodb::Rows,
    pub(crate) stream: dynamodb::Streams,
    /// What `checkpoints` has about the topics that events come from.
    pub(crate) claims: Claims,
    kafka: Option<kafka::Settings>,
    pub(crate) topic: String,
    /// The Kafka group of the consumers.
    pub(crate) group: String,
    pub(crate) dead_letter_topic: String,
    pub(crate) changes_topic: String,
    pub(crate) clock: Clock,
    pub(crate) patience: Duration,
    /// The surroundings of a service (chance, patience, stop), for verbs that do what a service does. The stop is never
    /// requested: a command that is interrupted ends as in a crash, and every write is safe to repeat.
    pub(crate) host: Host,
    /// Repeats calls to a store that does not answer, for `patience`. For verbs that read on and on.
    pub(crate) calls: Calls,
}

/// The pages of a long read.
pub(crate) type Pages<'a, T> = BoxStream<'a, anyhow::Result<Vec<T>>>;

/// All of a table, as one segment.
pub(crate) const WHOLE: Segment = Segment { index: 0, of: 1 };

impl Desk {
    /// Opens the deployment and checks its tables and its configuration.
    ///
    /// # Errors
    /// Settings or tables are not as they have to be, the store does not answer, the configuration is lost or has an
    /// unknown format.
    pub(crate) async fn open(of: Where) -> anyhow::Result<Self> {
        let (desk, is_lost) = Box::pin(Self::open_unconfigured(of)).await?;
        if is_lost {
            return Err(unconfigured(&desk).await);
        }
        Ok(desk)
    }

    /// Opens the deployment as [`Self::open`] does, also if its configuration is lost. Then the number of shards is
    /// that of `--shards`. Returns also whether the configuration is lost.
    ///
    /// # Errors
    /// Those of [`Self::open`]. But a lost configuration is one only without `--shards`.
    pub(crate) async fn open_unconfigured(of: Where) -> anyhow::Result<(Self, bool)> {
        let told = of.store.shards;
        let mut desk = Self::reach(of).await?;
        if let Err(fault) = dynamodb::check_tables(&desk.connection).await {
            return Err(unusable(&desk.connection, fault).await);
        }
        let deployed = deployed(&desk.checkpoints).await?;
        let Some(shards) = deployed.or(told) else { return Err(unconfigured(&desk).await) };
        desk.shards = shards;
        if let Some(told) = told.filter(|told| *told != desk.shards) {
            bail!(Fault::Fatal(format!("--shards is {told}, but this deployment was created with {}", desk.shards)));
        }
        Ok((desk, deployed.is_none()))
    }

    /// Sets up the connections and checks no table: there may be none.
    ///
    /// # Errors
    /// Settings are invalid.
    pub(crate) async fn reach(of: Where) -> anyhow::Result<Self> {
        let mut invalid = dynamodb::environment();
        let kafka = invalid.gather(of.kafka.optional()).flatten();
        if !invalid.is_empty() {
            return Err(invalid.into());
        }
        let connection = dynamodb::Connection::open(&dynamodb::Settings::of(&of.store)).await;
        if let Some(missing) = connection.missing().await? {
            return Err(missing.into());
        }
        let host = Host::new("tally").giving_up_after(Some(of.patience));
        host.clock().correct_by(connection.store_clock());
        Ok(Self {
            shards: of.store.shards.unwrap_or(ShardCount::DEFAULT),
            checkpoints: dynamodb::Checkpoints::new(&connection),
            recounts: dynamodb::Recounts::new(&connection),
            counters: Counters::new(&connection),
            changes: Changes::new(&connection),
            rows: dynamodb::Rows::new(&connection),
            stream: dynamodb::Streams::new(&connection),
            claims: Claims::new(&connection, host.clock()),
            group: of.topics.group(&of.store.table_prefix),
            connection,
            kafka,
            dead_letter_topic: of.topics.letters(),
            topic: of.topics.likes.topic,
            changes_topic: of.changes.changes_topic,
            clock: host.clock(),
            patience: of.patience,
            calls: Calls::new(None, host.patience(), host.stop()),
            host,
        })
    }

    /// Reads every row, consistently and in pages. The rows of one row key follow each other.
    pub(crate) fn every_row(&self) -> Pages<'_, ScannedRow> {
        let rows = &self.rows;
        let page = move |after: Option<Cursor>| async move { rows.scan(WHOLE, after.as_ref()).await };
        self.calls.pages("read rows", page)
    }

    /// Reads every counter, consistently and in pages.
    pub(crate) fn every_counter(&self) -> Pages<'_, (CounterId, Outcome<Counter>)> {
        let counters = &self.counters;
        let page = move |after: Option<Cursor>| async move { counters.scan(WHOLE, after.as_ref()).await };
        self.calls.pages("read counters", page)
    }

    /// Reads the weight of each row of a row key, in pages: 1 for a member of a set, the amount of a sum's cell. `None`
    /// is a weight that cannot be read.
    pub(crate) fn weights<'a>(&'a self, key: &'a RowKey) -> Pages<'a, (MemberKey, Option<Weight>)> {
        let rows = &self.rows;
        let page = move |after: Option<Cursor>| async move { rows.weights(key, after.as_ref()).await };
        self.calls.pages("read rows", page)
    }

    pub(crate) fn has_kafka(&self) -> bool {
        self.kafka.is_some()
    }

    /// The same deployment without its Kafka, which does not answer.
    pub(crate) fn without_kafka(self) -> Self {
        Self { kafka: None, ..self }
    }

    /// Returns the topic of the counters whose definition names none: the stored one or, before a consumer has begun, that
    /// of `--topic`.
    ///
    /// # Errors
    /// Another one is stored than `--topic` says.
    pub(crate) async fn usual_topic(&self) -> anyhow::Result<String> {
        let usual = self.checkpoints.usual().await.context("cannot read the counters")?;
        self.told(usual)
    }

    /// Returns the topic of `--topic`, if counters have their events from it: the usual one, or one that a definition
    /// names.
    ///
    /// # Errors
    /// No counter has events from it.
    pub(crate) async fn counted_topic(&self) -> anyhow::Result<String> {
        let usual = self.checkpoints.usual().await.context("cannot read the counters")?;
        if usual.definitions.name_topic(&self.topic) { Ok(self.topic.clone()) } else { self.told(usual) }
    }

    fn told(&self, usual: Usual) -> anyhow::Result<String> {
        match usual.topic {
            Some(usual) if usual != self.topic => Err(Usage(format!(
                "the events of counters without a topic come from `{usual}`, and --topic is `{}`: say --topic {usual}",
                self.topic
            ))
            .into()),
            _ => Ok(self.topic.clone()),
        }
    }

    /// Waits until Kafka answers about a topic, for `patience`, and says what it waits for.
    ///
    /// # Errors
    /// No brokers are named, Kafka does not answer, or there is no such topic.
    pub(crate) async fn await_topic(&self, topic: &str) -> anyhow::Result<()> {
        let (reader, patience, stop) = (self.reader(topic)?, speaking(self.host.patience()), self.host.stop());
        let what = format!("look at the topic `{topic}`");
        let mut asked = pin!(patience.persist(&what, Until::Requested(&stop), || reader.logs()));
        if let Ok(logs) = tokio::time::timeout(SOON, &mut asked).await {
            return logs.map(drop);
        }
        say(&format!("waiting for Kafka, to {what}: for up to {:?}, which --patience sets", self.patience));
        asked.await.map(drop)
    }

    /// Returns how Kafka is reached.
    ///
    /// # Errors
    /// No brokers are named.
    pub(crate) fn kafka(&self) -> anyhow::Result<&kafka::Settings> {
        self.kafka.as_ref().ok_or_else(|| Usage("say --brokers (TALLY_BROKERS): this is in Kafka".to_owned()).into())
    }

    /// Returns a reader of `topic`, whose bookmarks (committed offsets) are those of replays of dead letters.
    pub(crate) fn reader(&self, topic: &str) -> anyhow::Result<kafka::TopicReader> {
        self.reader_of(&self.replays(), topic)
    }

    /// Returns the group that keeps the bookmarks of replays. Replays also use this name for their transactions.
    pub(crate) fn replays(&self) -> String {
        replay_group(&self.connection.tables().prefix)
    }

    /// Returns the name that the deployment has in what it writes: the ARN of its table `likes`.
    pub(crate) fn deployment(&self) -> anyhow::Result<&str> {
        self.connection.deployment().context("the store does not say which table `likes` is")
    }

    /// Returns a reader of `topic`, whose bookmarks are the offsets that its consumers have committed.
    pub(crate) fn consumers_of(&self, topic: &str) -> anyhow::Result<kafka::TopicReader> {
        self.reader_of(&self.group, topic)
    }

    /// Returns a reader of `topic`, whose bookmarks are those of `group`.
    pub(crate) fn reader_of(&self, group: &str, topic: &str) -> anyhow::Result<kafka::TopicReader> {
        kafka::TopicReader::new(self.kafka()?, group, topic).context("cannot set up a reader")
    }

    /// Names the deployment, for people.
    pub(crate) fn name(&self) -> String {
        tables_of(&self.connection)
    }
}

/// Returns the same patience, which says what it waits for: after the first failed attempt, and then ever more rarely.
pub(crate) fn speaking(patience: Patience) -> Patience {
    patience.on_fault(|what, fault, tries| {
        if tries.is_power_of_two() {
            say(&format!("cannot {what}, trying again: {fault}"));
        }
    })
}

/// Returns the Kafka group of the change-streamers, as `tally_change_streamer::group_of` does.
pub(crate) fn folds_of(table_prefix: &str) -> String {
    format!("{table_prefix}tally-change-streamer")
}

/// Names the tables of a deployment, for people.
fn tables_of(connection: &dynamodb::Connection) -> String {
    let region = connection.region().unwrap_or("no region");
    match connection.tables().prefix.as_str() {
        "" => format!("tables without a prefix in {region}"),
        prefix => format!("tables with the prefix `{prefix}` in {region}"),
    }
}

/// How long Kafka may take to answer before an operator hears what is waited for.
const SOON: Duration = Duration::from_secs(2);

/// How many tables a deployment has.
pub(crate) const TABLES: usize = 4;

/// Returns an error that says why the tables cannot be used and, if some are gone, which ones and what to do, or if none is there, which prefixes have tables.
pub(crate) async fn unusable(connection: &dynamodb::Connection, fault: Fault) -> anyhow::Error {
    let tables = tables_of(connection);
    if !fault.to_string().contains("ResourceNotFoundException") {
        return anyhow::Error::from(fault).context(format!("cannot use the {tables}"));
    }
    // A service would wait for the tables. This command ends, with the exit code of a wrong configuration.
    let fatal = anyhow::Error::from(Fault::Fatal(fault.to_string()));
    let missing = match dynamodb::missing_tables(connection).await {
        Ok(missing) => missing,
        Err(other) => return fatal.context(format!("cannot use the {tables}: {other}")),
    };
    if (1..TABLES).contains(&missing.len()) {
        let missing = missing.join(", ");
        return fatal.context(format!(
            "of the {tables}, {missing} is gone, and others are there: restore it; or create it empty with \
             tally prepare --yes, and then run tally adopt tables: see \"When something is lost\" in docs/operate.md"
        ));
    }
    let known = connection.prefixes().await.unwrap_or_default();
    let quoted = |prefix: &String| if prefix.is_empty() { "none".to_owned() } else { format!("`{prefix}`") };
    let known: Vec<String> = known.iter().map(quoted).collect();
    let hint = match known.as_slice() {
        [] => "no deployment is there: tally prepare creates one, or is it another AWS_REGION or account".to_owned(),
        prefixes => format!("deployments are there with the table prefix {}", prefixes.join(", ")),
    };
    fatal.context(format!("there are no {tables}; {hint}"))
}

/// Returns an error that says why there is no configuration, and what to do about it.
pub(crate) async fn unconfigured(desk: &Desk) -> anyhow::Error {
    let why = match is_empty(desk).await {
        Ok(true) => "no service has started yet: tally prepare prints the lines that start them",
        Ok(false) => "it is lost, since other tables have items: tally adopt tables --shards N",
        Err(fault) => return anyhow::Error::from(fault).context("cannot tell whether the configuration is lost"),
    };
    Fault::Fatal(format!("the checkpoints table has no `config`: {why}")).into()
}

/// Returns whether there are neither rows nor counters.
async fn is_empty(desk: &Desk) -> Outcome<bool> {
    let (rows, counters) = (desk.rows.scan(WHOLE, None).await?, desk.counters.scan(WHOLE, None).await?);
    Ok(rows.items.is_empty() && rows.next.is_none() && counters.items.is_empty() && counters.next.is_none())
}

/// Returns how many shards the deployment was created with, or `None` if its configuration is lost.
///
/// # Errors
/// The configuration cannot be read, or has a format that is not known.
pub(crate) async fn deployed(checkpoints: &dynamodb::Checkpoints) -> anyhow::Result<Option<ShardCount>> {
    if let Some(stated) = checkpoints.format().await.context("cannot read the configuration")? {
        stated.known()?;
    }
    checkpoints.deployed().await.context("cannot read the configuration")
}
