//! What is lost with the checkpoints, written anew: the configuration, the topics of events, and where the log of changes begins.
//!
//! A topic is adopted in a generation above every row's version, from its start, so that everything is said again: sets converge,
//! and sums take what an operator says. The log of changes has to be a new topic, in a generation above the versions of all
//! counters: what lies before its version changes no counter.

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

/// A deployment without configuration.
pub(super) struct Lost<'a> {
    desk: &'a Desk,
    config: Configuration,
    sums: Option<Sums>,
}

/// What everything that is lost is written from.
#[derive(Clone, Debug)]
struct Found {
    /// The topics of which nothing is known.
    topics: Vec<Adoption>,
    /// The log of changes.
    log: Config,
}

impl Found {
    /// How many events are read again.
    fn again(&self) -> u64 {
        self.topics.iter().map(|adoption| adoption.again).sum()
    }
}

impl<'a> Lost<'a> {
    /// # Errors
    /// The file defines no counters.
    pub(super) fn of(desk: &'a Desk, file: Option<&Path>, sums: Option<Sums>) -> anyhow::Result<Self> {
        let definitions = file.map(counters::read).transpose()?.unwrap_or_else(Definitions::likes_alone);
        let config = Configuration { shards: desk.shards, definitions, ladder: Ladder::default() };
        Ok(Self { desk, config, sums })
    }

    /// Writes everything anew, the configuration last: nothing starts before.
    pub(super) async fn adopt(&self, writing: &Writing, settle: Settle) -> anyhow::Result<Changed> {
        // Looked for before anything is written, and again behind the wait.
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

    /// What is known of each topic, from what the rows and the logs say. One that an attempt before this has stored stays.
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

    /// The log of changes as it is stored, by an attempt before this one too. Where it is not, the topic has to be empty: what it
    /// has is of a deployment whose positions are lost.
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

    /// Whether what was said of the deployment is so: it has each counter that is there, and rows are where its number of shards
    /// puts them. The greatest generation of a counter's version.
    async fn fits(&self, remains: &Remains) -> anyhow::Result<u16> {
        if let Some(sum) = remains.sums.iter().find(|name| self.config.definitions.named(name.as_str()).is_none()) {
            bail!("--counters defines no counter `{sum}`, and there are rows of it");
        }
        self.rows_fit().await?;
        let (mut generation, mut pages) = (0, self.desk.every_counter());
        while let Some(counters) = pages.try_next().await? {
            for (id, counter) in &counters {
                self.defines(id)?;
                // One that cannot be read is of no generation: the fold names it, and an operator mends it.
                let version = counter.as_ref().map_or(0, |counter| counter.version.generation());
                generation = generation.max(version);
            }
        }
        Ok(generation)
    }

    /// Looks at some rows alone: under another number of shards most of them would be elsewhere.
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
