//! `tally adopt tables`: has a deployment go on after a table was replaced, or after its configuration was lost
//! (`Lost`).
//!
//! A table that was deleted and created anew has the same name and other contents. Processes notice by its id, and stop
//! until an operator runs this. It first opens a loss, a record that counts may be wrong. So no count is exact until an
//! audit, which recounts everything, has ended.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Subcommand;
use futures_util::stream::TryStreamExt as _;
use serde_json::json;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::{Configuration, Remains, SeenTables};
use tally_core::changes::DeploymentId;
use tally_core::definitions::Definitions;
use tally_core::ids::{CounterKind, MemberKey, RowKey};
use tally_core::milestone::Ladder;
use tally_core::ports::{Outcome, TopicReader as _};
use tally_core::topic::Offset;

use crate::change::{Changed, Changing, Writing};
use crate::desk::{Desk, WHOLE};
use crate::said::{Answer, Table, add, or_dash};
use crate::verbs::audit::CLOSES;
use crate::verbs::counters;
use crate::verbs::pause::Settle;
use crate::verbs::topic::{Adoption, Seen, Sums};

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Goes on with the tables that are there, where they are others than before, and counts inexactly until an audit has passed
    ///
    /// Where the configuration is lost with `checkpoints`: stop everything, create the log of changes anew, and say --shards,
    /// --brokers and, where there are more counters than likes, --counters. Kafka is read again from its start then.
    Tables {
        /// Where the configuration is lost: the file that `tally counters apply` was given
        #[arg(long, value_name = "FILE")]
        counters: Option<PathBuf>,

        /// Where the configuration is lost: what becomes of events that add to sums and are in the topic by now
        #[arg(long, value_enum, value_name = "WHAT")]
        sums: Option<Sums>,

        #[command(flatten)]
        settle: Settle,

        #[command(flatten)]
        change: Box<Changing>,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self::Tables { counters, sums, settle, change } = self;
        let Changing { writing, of } = *change;
        let (desk, is_lost) = Desk::open_unconfigured(of).await?;
        let seen = desk.checkpoints.seen_tables().await.context("cannot look at the tables")?;
        let change = if is_lost {
            Lost::of(&desk, counters.as_deref(), sums)?.adopt(&writing, settle).await?
        } else {
            let plan = seen.problem().map(|problem| format!("open a loss and go on: {problem}")).into_iter().collect();
            let changed = writing.carry_out(&desk, "adopt tables", plan, async || {
                let adopted = desk.checkpoints.adopt_tables(&seen, desk.clock.now()).await;
                ensure!(
                    adopted.context("cannot adopt the tables")?,
                    "tables or configuration changed meanwhile: look again"
                );
                Ok(format!("adopted: {CLOSES}"))
            });
            changed.await?
        };
        let lacks = lacks(&desk.connection.tables().likes, desk.connection.tombstones_expire().await);
        Ok(adopted(&seen, lacks, &change))
    }
}

/// Lists every table whose id is stored, or that is there, by its name without the prefix.
fn adopted(seen: &SeenTables, lacks: Option<String>, change: &Changed) -> Answer {
    let stored = seen.stored.clone().unwrap_or_default().0;
    let (mut table, mut tables) = (Table::headed(["table", "stored id", "id of the table there", ""]), Vec::new());
    for name in stored.keys().chain(seen.present.0.keys()).collect::<BTreeSet<_>>() {
        let (stored, present) = (stored.get(name), seen.present.0.get(name));
        let state = match (stored, present) {
            (_, None) => "gone",
            (None, Some(_)) => "not stored",
            (Some(stored), Some(present)) if stored == present => "the same",
            (Some(_), Some(_)) => "another one",
        };
        table.row([name, &or_dash(stored), &or_dash(present), &state]);
        tables.push(json!({"table": name, "stored": stored, "present": present}));
    }
    let mut json = json!(change);
    json["tables"] = json!(tables);
    add(&mut json, "lacks", lacks.as_ref());
    let lacks = lacks.map(|lacks| format!("{lacks}\n")).unwrap_or_default();
    Answer::new(json, format!("{table}\n{lacks}{}", change.text()))
}

/// Returns a warning unless `expire` says that tombstones expire in the table `likes`.
fn lacks(likes: &str, expire: Outcome<bool>) -> Option<String> {
    match expire {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "table {likes}: nothing expires by `gone`, so tombstones stay for ever: aws dynamodb update-time-to-live \
             --table-name {likes} --time-to-live-specification Enabled=true,AttributeName=gone"
        )),
        Err(fault) => Some(format!("table {likes}: cannot tell whether items expire by `gone`: {fault}")),
    }
}

/// A deployment whose table `checkpoints` is lost, and the configuration to write. What is known about the topics of events,
/// and the beginning of the log of changes, is written anew, too.
///
/// Each topic gets a generation above the versions of all rows, and is read from its start again. Then sets are right;
/// for sums the operator says whether these events count (`--sums`). The log of changes has to be a new, empty topic.
/// It gets a generation above the versions of all counters, since entries below them change nothing.
struct Lost<'a> {
    desk: &'a Desk,
    config: Configuration,
    sums: Option<Sums>,
}

/// What to write, by what the rows and the logs say: the topics about which nothing is stored, and the log of changes.
type Found = (Vec<Adoption>, Config);

impl<'a> Lost<'a> {
    /// Takes the counters from `file`; without a file the deployment has likes alone.
    ///
    /// # Errors
    /// The file cannot be read, or defines no counters.
    fn of(desk: &'a Desk, file: Option<&Path>, sums: Option<Sums>) -> anyhow::Result<Self> {
        let definitions = file.map(counters::read).transpose()?.unwrap_or_else(Definitions::likes_alone);
        let (ladder, topic) = (Ladder::default(), desk.topic.clone());
        let config = Configuration { shards: desk.shards, definitions, ladder, topic };
        Ok(Self { desk, config, sums })
    }

    /// Writes everything anew, the configuration last: no service starts before. Safe to repeat: what is stored stays.
    async fn adopt(&self, writing: &Writing, settle: Settle) -> anyhow::Result<Changed> {
        // Before anything is written, and again after the wait.
        let found = self.found().await?;
        let changed = writing.carry_out(self.desk, "adopt tables", self.plan(&found), async || {
            settle.wait(self.desk).await;
            let (topics, config) = self.found().await?;
            for adoption in &topics {
                adoption.set_group(self.desk).await?;
                adoption.store(self.desk, None).await?;
            }
            let log = self.desk.changes.begin_log(&config).await.context("cannot set up the log of changes")?;
            ensure!(log == config, "a change-streamer has set up the log of changes meanwhile: stop everything");
            let put = self.desk.checkpoints.put_config(&self.config, self.desk.clock.now()).await;
            ensure!(put.context("cannot write `config`")?, "`config` was written by another meanwhile");
            let again: u64 = topics.iter().map(|adoption| adoption.again).sum();
            Ok(format!("{again} events are read again; start everything, then tally recount --all: no count is exact until then"))
        });
        changed.await
    }

    fn plan(&self, (topics, log): &Found) -> Vec<String> {
        let Configuration { shards, definitions, .. } = &self.config;
        let defined = definitions.iter().len();
        let mut plan = vec![format!(
            "write `config` with {shards} shards and {defined} counters; a ladder is raised by --milestones again"
        )];
        plan.push(format!("name `{}` as the topic of counters that name none: --topic", self.config.topic));
        plan.extend(topics.iter().flat_map(|adoption| adoption.plan(self.desk)));
        plan.push(format!("begin the log of changes in generation {}", log.generation));
        plan
    }

    /// Finds out what to write from the rows and the logs. Leaves out topics that an earlier attempt has stored.
    async fn found(&self) -> anyhow::Result<Found> {
        let remains = Remains::read(&self.desk.connection).await.context("cannot read rows")?;
        let generation = self.fits(&remains).await?;
        let (mut topics, own) = (Vec::new(), self.topics());
        for name in &own {
            let seen = Seen::look(self.desk, name).await?;
            if seen.topic.is_some() {
                continue;
            }
            let said = self.config.definitions.said_in(name);
            let has_sums = said.iter().any(|definition| definition.kind() == CounterKind::Sum);
            topics.push(Adoption::anew(
                &seen,
                remains.generation,
                "nothing is known of it any more",
                has_sums,
                self.sums,
            )?);
        }
        if let Some(gone) = remains.added.iter().find(|partition| !own.contains(&*partition.topic)) {
            bail!("a sum has events of {gone}, and no counter of --counters is read from there");
        }
        let log = self.log(generation.checked_add(1).context("there is no further generation of a log")?).await?;
        Ok((topics, log))
    }

    /// Returns the configuration of the log of changes: the stored one, for example by an earlier attempt, or a new
    /// one. For a new one the topic has to be empty: no item says which of its messages were counted.
    async fn log(&self, generation: u16) -> anyhow::Result<Config> {
        if let Some(stands) = self.desk.changes.config().await.context("cannot read the configuration of the log")? {
            return Ok(stands);
        }
        let name = &self.desk.changes_topic;
        let logs = self.desk.reader(name)?.logs().await.with_context(|| format!("cannot look at `{name}`"))?;
        let Some((_, first)) = logs.first() else { bail!("there is no topic `{name}`: create it") };
        ensure!(
            logs.iter().all(|(_, log)| log.end == Offset(0)),
            "`{name}` has messages whose positions are lost with the configuration: delete the topic and create it anew"
        );
        let deployment = DeploymentId(format!("{:032x}", self.desk.host.chance().token()).into());
        let partitions = u32::try_from(logs.len()).context("there are more partitions than can be")?;
        Ok(Config { deployment, partitions, topic: first.topic.clone(), generation })
    }

    fn topics(&self) -> BTreeSet<String> {
        let own =
            self.config.definitions.iter().filter_map(|definition| definition.topic.as_deref().map(str::to_owned));
        own.chain([self.desk.topic.clone()]).collect()
    }

    /// Checks that `--counters` defines every counter that has rows or counts, and that the rows are where `--shards`
    /// puts them. Returns the greatest generation in the counters' versions.
    async fn fits(&self, remains: &Remains) -> anyhow::Result<u16> {
        if let Some(sum) = remains.sums.iter().find(|name| self.config.definitions.named(name.as_str()).is_none()) {
            bail!("--counters defines no counter `{sum}`, and there are rows of it");
        }
        self.rows_fit().await?;
        let (mut generation, mut pages) = (0, self.desk.every_counter());
        while let Some(counters) = pages.try_next().await? {
            for (id, counter) in &counters {
                let is_defined = self.config.definitions.named(id.name.as_str()).is_some();
                ensure!(is_defined, "--counters defines no counter `{}`, and there is {id}", id.name);
                // A counter that cannot be read has no generation. The fold will name it, and an operator mends it.
                let version = counter.as_ref().map_or(0, |counter| counter.version.generation());
                generation = generation.max(version);
            }
        }
        Ok(generation)
    }

    /// Checks the first page of rows: with another number of shards most of them would be elsewhere.
    async fn rows_fit(&self) -> anyhow::Result<()> {
        let rows = self.desk.rows.scan(WHOLE, None).await.context("cannot read rows")?;
        for row in rows.items {
            let member = MemberKey::new(&row.sort).filter(|member| !member.is_cell());
            let (Ok(key), Some(member)) = (row.pk.parse::<RowKey>(), member) else { continue };
            let is_set = key.counter.name.kind() == CounterKind::Set;
            let at_home = RowKey::of(&key.counter, member.as_str(), self.config.shards) == key;
            let (counter, shards) = (&key.counter, self.config.shards);
            ensure!(!is_set || at_home, "a row of {counter} is not where {shards} shards put it: is --shards right");
        }
        Ok(())
    }
}
