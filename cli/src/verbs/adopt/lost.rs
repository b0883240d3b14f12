//! `tally adopt tables` for a deployment whose table `checkpoints` is lost: writes the configuration, what is known
//! about the topics of events, and the beginning of the log of changes anew.
//!
//! Each topic gets a generation above the versions of all rows, and is read from its start again. Then sets are right;
//! for sums the operator says whether these events count (`--sums`). The log of changes has to be a new, empty topic.
//! It gets a generation above the versions of all counters, since entries below them change nothing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use futures_util::stream::TryStreamExt as _;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::{Checkpoints, Configuration, Remains};
use tally_core::changes::DeploymentId;
use tally_core::definitions::Definitions;
use tally_core::ids::{CounterId, CounterKind, MemberKey, RowKey};
use tally_core::milestone::Ladder;
use tally_core::ports::TopicReader as _;
use tally_core::topic::Offset;

use crate::change::{Changed, Writing};
use crate::desk::{Desk, WHOLE};
use crate::verbs::counters;
use crate::verbs::pause::Settle;
use crate::verbs::topic::{Adoption, Seen, Sums};

/// A deployment whose configuration is lost, and the configuration to write.
pub(super) struct Lost<'a> {
    desk: &'a Desk,
    config: Configuration,
    sums: Option<Sums>,
}

/// What to write, by what the rows and the logs say.
#[derive(Clone, Debug)]
struct Found {
    /// The topics about which nothing is stored.
    topics: Vec<Adoption>,
    log: Config,
}

impl Found {
    fn again(&self) -> u64 {
        self.topics.iter().map(|adoption| adoption.again).sum()
    }
}

impl<'a> Lost<'a> {
    /// Takes the counters from `file`; without a file the deployment has likes alone.
    ///
    /// # Errors
    /// The file cannot be read, or defines no counters.
    pub(super) fn of(desk: &'a Desk, file: Option<&Path>, sums: Option<Sums>) -> anyhow::Result<Self> {
        let definitions = file.map(counters::read).transpose()?.unwrap_or_else(Definitions::likes_alone);
        let config = Configuration { shards: desk.shards, definitions, ladder: Ladder::default() };
        Ok(Self { desk, config, sums })
    }

    /// Writes everything anew, the configuration last: no service starts before. Safe to repeat: what is stored stays.
    pub(super) async fn adopt(&self, writing: &Writing, settle: Settle) -> anyhow::Result<Changed> {
        // Before anything is written, and again after the wait.
        let found = self.found().await?;
        let changed = writing.carry_out(self.desk, "adopt tables", self.plan(&found), async || {
            settle.wait(self.desk).await;
            let found = self.found().await?;
            for adoption in &found.topics {
                adoption.set_group(self.desk).await?;
                adoption.store(self.desk, None).await?;
            }
            let log = self.desk.changes.begin_log(&found.log).await.context("cannot set up the log of changes")?;
            ensure!(log == found.log, "a change-streamer has set up the log of changes meanwhile: stop everything");
            self.write_config().await?;
            let again = found.again();
            Ok(format!("{again} events are read again; start everything, then tally recount --all: no count is exact until then"))
        });
        changed.await
    }

    fn plan(&self, found: &Found) -> Vec<String> {
        let Configuration { shards, definitions, .. } = &self.config;
        let defined = definitions.iter().len();
        let mut plan = vec![format!(
            "write `config` with {shards} shards and {defined} counters; a ladder is raised by --milestones again"
        )];
        plan.extend(found.topics.iter().flat_map(|adoption| adoption.plan(self.desk)));
        plan.push(format!("begin the log of changes in generation {}", found.log.generation));
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
        Ok(Found { topics, log })
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
        let deployment = DeploymentId(format!("{:032x}", self.desk.chance.token()).into());
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
                self.defines(id)?;
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

    fn defines(&self, id: &CounterId) -> anyhow::Result<()> {
        let is_defined = self.config.definitions.named(id.name.as_str()).is_some();
        ensure!(is_defined, "--counters defines no counter `{}`, and there is {id}", id.name);
        Ok(())
    }

    async fn write_config(&self) -> anyhow::Result<()> {
        let put = Checkpoints::new(&self.desk.connection).put_config(&self.config, self.desk.clock.now()).await;
        ensure!(put.context("cannot write `config`")?, "`config` was written by another meanwhile");
        Ok(())
    }
}
