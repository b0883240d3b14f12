//! What is lost with the checkpoints, written anew: the configuration, the fences, and where the log of changes begins.
//!
//! A fence begins at the start of its log, so that everything is said again: sets converge, since their events are absolute, and
//! a cell takes only what lies behind its own `to`. `cfg` is the time in seconds, above any that there was, so that nothing fits
//! that was made ready under an older fence. The log of changes has to be a new topic, in a generation above the versions of all
//! counters: what lies before its version changes no counter.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::{Checkpoints, Configuration, Remains};
use tally_consumer::{SumsAnew, counters};
use tally_core::changes::DeploymentId;
use tally_core::definitions::Definitions;
use tally_core::fence::{Fence, Fences, Log, Offset, Partition, Reached, Terms};
use tally_core::ids::{CounterId, CounterKind, MemberKey, RowKey};
use tally_core::milestone::Ladder;
use tally_core::ports::{Rows as _, TopicReader as _};

use crate::change::{Changed, Writing};
use crate::desk::Desk;
use crate::verbs::weighed::WHOLE;

/// A deployment without configuration.
pub(super) struct Lost<'a> {
    desk: &'a Desk,
    config: Configuration,
    sums: Option<SumsAnew>,
}

/// The fence that a partition gets.
#[derive(Clone, Debug)]
struct Anew {
    partition: Partition,
    log: Log,
    fence: Fence,
}

/// What everything that is lost is written from.
#[derive(Clone, Debug)]
struct Found {
    fences: Vec<Anew>,
    /// Whether a set is under several homes.
    has_maps: bool,
    /// The log of changes.
    log: Config,
}

impl Found {
    /// How many events are read again.
    fn again(&self) -> u64 {
        self.fences.iter().map(|anew| anew.log.end.0.saturating_sub(anew.log.start.0)).sum()
    }
}

impl<'a> Lost<'a> {
    /// # Errors
    /// The file defines no counters.
    pub(super) fn of(desk: &'a Desk, file: Option<&Path>, sums: Option<SumsAnew>) -> anyhow::Result<Self> {
        let definitions = file.map(counters::read).transpose()?.unwrap_or_else(Definitions::likes_alone);
        let config = Configuration { shards: desk.shards, definitions, ladder: Ladder::default(), announced: 0 };
        Ok(Self { desk, config, sums })
    }

    /// Writes everything anew, the configuration last: nothing starts before.
    pub(super) async fn adopt(&self, writing: &Writing, settle: Duration) -> anyhow::Result<Changed> {
        // Looked for before anything is written, and again behind the wait.
        let found = self.found().await?;
        let changed = writing.carry_out(self.desk, "adopt tables", self.plan(&found), async || {
            self.desk.clock.sleep(settle).await;
            let found = self.found().await?;
            self.write_fences(&found).await?;
            let log = self.desk.changes.begin_log(&found.log).await.context("cannot set up the log of changes")?;
            ensure!(log == found.log, "a change-streamer has set up the log of changes meanwhile: stop everything");
            self.write_config(&found).await?;
            let again = found.again();
            Ok(format!("{again} events are read again; start everything, then tally recount --all: no count is exact until then"))
        });
        changed.await
    }

    fn plan(&self, found: &Found) -> Vec<String> {
        let Configuration { shards, definitions, .. } = &self.config;
        let defined = definitions.iter().len();
        vec![
            format!(
                "write `config` with {shards} shards and {defined} counters; a ladder is raised by --milestones again"
            ),
            format!("write {} fences, each at its log's start: {} events", found.fences.len(), found.again()),
            format!("begin the log of changes in generation {}", found.log.generation),
        ]
    }

    /// The fence of each partition of each topic, from what the rows and the logs say.
    async fn found(&self) -> anyhow::Result<Found> {
        let remains = Remains::read(&self.desk.connection).await.context("cannot read rows")?;
        let generation = self.fits(&remains).await?;
        let mut fences = Vec::new();
        for topic in self.topics() {
            let logs = self.desk.reader(&topic)?.logs().await.with_context(|| format!("cannot look at `{topic}`"))?;
            for (partition, log) in logs {
                let fence = self.fence(&log, remains.reached.get(&partition).copied());
                let fence = fence.with_context(|| format!("{partition} cannot be read again"))?;
                fences.push(Anew { partition, log, fence });
            }
        }
        let known: BTreeSet<&Partition> = fences.iter().map(|anew| &anew.partition).collect();
        if let Some(gone) = remains.reached.keys().find(|partition| !known.contains(partition)) {
            bail!("a sum has events of {gone}, and no counter of --counters is read from there");
        }
        let log = self.log(generation.checked_add(1).context("there is no further generation of a log")?).await?;
        Ok(Found { fences, has_maps: !remains.maps.is_empty(), log })
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

    fn fence(&self, log: &Log, reached: Option<Reached>) -> anyhow::Result<Fence> {
        let Reached { to, generation } = reached.unwrap_or(Reached { to: Offset(0), generation: 0 });
        let defs =
            u32::try_from(self.config.definitions.iter().len()).context("there are more counters than can be")?;
        let terms = Terms { defs, generation, redo: Some(log.end), ..Terms::default() };
        let terms = match (to > log.end, self.sums) {
            (false, _) => terms,
            (true, Some(sums)) => {
                let sums_from = if sums == SumsAnew::Skip { log.end } else { Offset(0) };
                Terms { generation: generation + 1, redo: None, sums_from, ..terms }
            }
            (true, None) => bail!(
                "a sum has events up to {to}, and the log ends at {}, so offsets begin anew: say `--sums skip` to leave out what is \
                 in the log now, or `--sums count` to count it",
                log.end
            ),
        };
        Ok(Fence { terms, ..Fence::new(log.start, self.desk.clock.now().0 / 1_000, log.topic.clone()) })
    }

    /// Whether what was said of the deployment is so: it has each counter that is there, and rows are where its number of shards
    /// puts them. The greatest generation of a version.
    async fn fits(&self, remains: &Remains) -> anyhow::Result<u16> {
        if let Some(sum) = remains.sums.iter().find(|name| self.config.definitions.named(name.as_str()).is_none()) {
            bail!("--counters defines no counter `{sum}`, and there are rows of it");
        }
        let rows = self.desk.rows.scan(WHOLE, None).await.context("cannot read rows")?;
        for row in rows.items {
            let member = MemberKey::new(&row.sort).filter(|member| !member.is_cell());
            let (Ok(key), Some(member)) = (row.pk.parse::<RowKey>(), member) else { continue };
            let is_set = key.counter.name.kind() == CounterKind::Set && !remains.maps.contains(&key.counter);
            let at_home = RowKey::of(&key.counter, member.as_str(), self.config.shards) == key;
            let (counter, shards) = (&key.counter, self.config.shards);
            ensure!(!is_set || at_home, "a row of {counter} is not where {shards} shards put it: is --shards right");
        }
        let (mut generation, mut after) = (0, None);
        loop {
            let page = self.desk.counters.scan(WHOLE, after.as_ref()).await.context("cannot read counters")?;
            for (id, counter) in &page.items {
                self.defines(id)?;
                // One that cannot be read is of no generation: the fold names it, and an operator mends it.
                let version = counter.as_ref().map_or(0, |counter| counter.version.generation());
                generation = generation.max(version);
            }
            after = page.next;
            if after.is_none() {
                return Ok(generation);
            }
        }
    }

    fn defines(&self, id: &CounterId) -> anyhow::Result<()> {
        let is_defined = self.config.definitions.named(id.name.as_str()).is_some();
        ensure!(is_defined, "--counters defines no counter `{}`, and there is {id}", id.name);
        Ok(())
    }

    /// Puts each fence, in the place of one that a consumer has created since. Safe to repeat: nothing reads from them before the
    /// configuration is there.
    async fn write_fences(&self, Found { fences, .. }: &Found) -> anyhow::Result<()> {
        for topic in self.topics() {
            let partitions = fences.iter().filter(|anew| *anew.partition.topic == *topic).count();
            let partitions = u32::try_from(partitions).context("there are more partitions than can be")?;
            self.desk.likes.first_seen(&topic, partitions).await.context("cannot note the partitions")?;
        }
        for Anew { partition, fence, .. } in fences {
            let written = match self.desk.likes.lanes(partition).await.context("cannot read the fences")? {
                None => self.desk.likes.create_fence(partition, fence).await.map(|()| true),
                Some(seen) => self.desk.likes.replace_fences(partition, &seen, &Fences::from(fence.clone())).await,
            };
            ensure!(
                written.context("cannot write a fence")?,
                "the fence of {partition} was moved meanwhile: a consumer runs, stop it"
            );
        }
        Ok(())
    }

    async fn write_config(&self, found: &Found) -> anyhow::Result<()> {
        let now = self.desk.clock.now();
        // More than was ever announced, so that no process takes it for an old answer.
        let announced = if found.has_maps { now.0 / 1_000 } else { 0 };
        let config = Configuration { announced, ..self.config.clone() };
        let put = Checkpoints::new(&self.desk.connection).put_config(&config, now).await;
        ensure!(put.context("cannot write `config`")?, "`config` was written by another meanwhile");
        Ok(())
    }
}
