//! What is lost with the checkpoints: fences and the configuration, from what an operator has kept, the rows and the logs.
//!
//! A fence begins at the start of its log, so that everything is said again: sets converge, since their events are absolute, and a
//! cell takes only what lies behind its own `to`. `cfg` is the time in seconds, above any that there was, so that nothing fits that
//! was made ready under an older fence.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;
use tally_adapters::dynamodb::{Checkpoints, Configuration, Remains};
use tally_consumer::SumsAnew;
use tally_core::definitions::{Definitions, Entry};
use tally_core::fence::{Fence, Fences, Log, Offset, Partition, Reached, Terms};
use tally_core::format::Format;
use tally_core::ids::{CounterId, CounterKind, MemberKey, RowKey, ShardCount};
use tally_core::milestone::Ladder;
use tally_core::ports::{Counts as _, Rows as _, TopicReader as _};

use crate::desk::Desk;
use crate::verbs::weighed::WHOLE;

/// The file that says what the deployment was.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u64,
    shards: u64,
    milestones: Option<String>,
    #[serde(default)]
    counters: Vec<Entry>,
}

/// Reads what the deployment was.
pub(super) fn read(file: &Path) -> anyhow::Result<Configuration> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} is no configuration", file.display()))
}

fn parse(text: &str) -> anyhow::Result<Configuration> {
    let File { format, shards, milestones, counters } = toml::from_str(text)?;
    Format::Number(format).known()?;
    let ladder = milestones.map(|ladder| ladder.parse::<Ladder>()).transpose()?.unwrap_or_default();
    // Likes are in every deployment, and a file of all counters begins with them.
    let others: Vec<Entry> = counters.into_iter().filter(|entry| entry.name != "likes").collect();
    let definitions = if others.is_empty() { Definitions::likes_alone() } else { Definitions::new(&others)? };
    Ok(Configuration { shards: ShardCount::new(shards)?, definitions, ladder, announced: 0 })
}

/// A deployment without checkpoints.
pub(super) struct Lost<'a> {
    pub(super) desk: &'a Desk,
    pub(super) config: Configuration,
    pub(super) sums: Option<SumsAnew>,
}

/// The fence that a partition gets.
#[derive(Clone, Debug)]
pub(super) struct Anew {
    partition: Partition,
    log: Log,
    fence: Fence,
}

/// What everything that is lost is written from.
#[derive(Clone, Debug)]
pub(super) struct Found {
    fences: Vec<Anew>,
    /// Whether a set is under several homes.
    has_maps: bool,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let again: u64 = self.fences.iter().map(|anew| anew.log.end.0.saturating_sub(anew.log.start.0)).sum();
        write!(f, "{again} events of {} partitions are read again", self.fences.len())
    }
}

impl Lost<'_> {
    pub(super) fn plan(&self) -> String {
        let Configuration { shards, definitions, .. } = &self.config;
        format!(
            "write `config` with {shards} shards and {} counters, and every fence at its log's start",
            definitions.iter().len()
        )
    }

    /// The fence of each partition of each topic, from what the rows and the logs say.
    pub(super) async fn found(&self) -> anyhow::Result<Found> {
        let remains = Remains::read(&self.desk.connection).await.context("cannot read rows")?;
        self.fits(&remains).await?;
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
            bail!("a sum has events of {gone}, and no counter of the file is read from there");
        }
        Ok(Found { fences, has_maps: !remains.maps.is_empty() })
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

    /// Whether the file is of this deployment: it has each counter that is there, and rows are where its number of shards puts them.
    async fn fits(&self, remains: &Remains) -> anyhow::Result<()> {
        let defined = |counter: &CounterId| self.config.definitions.named(counter.name.as_str()).is_some();
        let counted = self.desk.counts.scan(WHOLE, None).await.context("cannot read counters")?;
        if let Some((id, _)) = counted.items.iter().find(|(id, _)| !defined(id)) {
            bail!("the file defines no counter `{}`, and there is {id}", id.name);
        }
        if let Some(sum) = remains.sums.iter().find(|name| self.config.definitions.named(name.as_str()).is_none()) {
            bail!("the file defines no counter `{sum}`, and there are rows of it");
        }
        let rows = self.desk.rows.scan(WHOLE, None).await.context("cannot read rows")?;
        for row in rows.items {
            let member = MemberKey::new(&row.sort).filter(|member| !member.is_cell());
            let (Ok(key), Some(member)) = (row.pk.parse::<RowKey>(), member) else { continue };
            let is_set = key.counter.name.kind() == CounterKind::Set && !remains.maps.contains(&key.counter);
            let at_home = RowKey::of(&key.counter, member.as_str(), self.config.shards) == key;
            ensure!(
                !is_set || at_home,
                "a row of {} is not where {} shards put it: is the file of this deployment",
                key.counter,
                self.config.shards
            );
        }
        Ok(())
    }

    /// Puts each fence, in the place of one that a consumer has created since. Safe to repeat: nothing reads from them before the
    /// configuration is there.
    pub(super) async fn write_fences(&self, Found { fences, .. }: &Found) -> anyhow::Result<()> {
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

    pub(super) async fn write_config(&self, found: &Found) -> anyhow::Result<()> {
        // More than was ever announced, so that no process takes it for an old answer.
        let announced = if found.has_maps { self.desk.clock.now().0 / 1_000 } else { 0 };
        let config = Configuration { announced, ..self.config.clone() };
        let put = Checkpoints::new(&self.desk.connection).put_config(&config).await.context("cannot write `config`")?;
        ensure!(put, "`config` was written by another meanwhile");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_was_exported_is_read() {
        let text = "format = 1\nshards = 8\nmilestones = \"10,100\"\n[[counters]]\nname = \"views\"\nkind = \"sum\"\nadd = \"view\"\n";
        let read = parse(text).unwrap();
        assert_eq!(
            (read.shards.get(), read.definitions.iter().len(), read.ladder.to_string()),
            (8, 2, "10,100".to_owned())
        );
        assert!(parse("format = 7\nshards = 8\n").unwrap_err().to_string().contains("format 7"));
        for wrong in ["shards = 8\n", "format = 1\n", "format = 1\nshards = 7\n", "format = 1\nshards = 8\nmore = 1\n"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
