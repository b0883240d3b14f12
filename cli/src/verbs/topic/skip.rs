//! `tally topic skip`: has consumers go on at an offset of a partition, leaves out the events before it, and opens a
//! loss, a record because of which no count is exact until everything was recounted.
//!
//! Normally it only stores the new position in the partition's claim (`store`). If the log has lost its tail, so that
//! offsets are used a second time, it begins a new generation as well (`begin_anew`).

use anyhow::{Context, bail, ensure};
use tally_core::register::{Kept, Standstill, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use super::seen::{Part, Seen, commit};
use crate::change::Changing;
use crate::desk::Desk;
use crate::ended::Usage;
use crate::said::Answer;
use crate::verbs::audit::CLOSES;
use crate::verbs::pause::{SKIP, Settle, replace, while_paused};

/// What follows a skip.
const AFTERWARDS: &str = "then counts agree with their rows; the events that were left out are in neither";

/// The kind of the loss that a skip opens.
const SKIPPED: &str = "skipped";

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The partition, by its number
    #[arg(long, value_name = "N")]
    partition: u32,

    /// The first record that is read
    #[arg(long, value_name = "OFFSET")]
    to: u64,

    #[command(flatten)]
    settle: Settle,

    #[command(flatten)]
    change: Changing,
}

/// A partition that goes on at another offset.
struct Skip<'a> {
    desk: &'a Desk,
    topic: &'a Topic,
    part: &'a Part,
    /// What is stored about its rows.
    kept: Kept,
    to: Offset,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self { partition, to, settle, change: Changing { writing, of } } = self;
        let desk = Desk::open(of).await?;
        let seen = Seen::look(&desk, &desk.topic).await?;
        let Some(topic) = &seen.topic else { bail!("no consumer has read `{}` yet", seen.name) };
        let skip = Skip::of(&desk, &seen, topic, (partition, Offset(to)))?;
        let changed = writing.carry_out(&desk, SKIP, skip.plan(), async || {
            skip.set_group().await?;
            let opened = desk.changes.open_new_loss(desk.clock.now(), SKIPPED, &skip.what()).await;
            opened.context("cannot record the loss")?;
            if skip.is_cut() {
                skip.begin_anew(settle).await?;
            } else {
                skip.store(topic).await?;
            }
            let part = &skip.part.partition;
            Ok(format!("{part} goes on at {to}; {CLOSES}; {AFTERWARDS}"))
        });
        Ok(changed.await?.into())
    }
}

impl<'a> Skip<'a> {
    fn of(desk: &'a Desk, seen: &'a Seen, topic: &'a Topic, (index, to): (u32, Offset)) -> anyhow::Result<Self> {
        let part = seen.parts.iter().find(|part| part.partition.index == index);
        let part = part.ok_or_else(|| Usage(format!("`{}` has no partition {index}", seen.name)))?;
        if let Some(Err(
            standstill @ (Standstill::OtherTopic { .. }
            | Standstill::TopicReplaced { .. }
            | Standstill::FewerPartitions { .. }
            | Standstill::NewPartition { .. }),
        )) = &part.start
        {
            bail!("{}: {standstill}", part.partition);
        }
        let (log, begin) = (&part.log, topic.begin_of(index).context("the partition is not known")?);
        ensure!(log.start <= to && to <= log.end, Usage(format!("the log is from {} to {}", log.start, log.end)));
        let before = part.claim.kept.as_ref().map_or(UnixMillis(0), |kept| kept.at);
        let first = || Kept { at: before, ..Kept::first(topic, begin) };
        let kept = seen.kept(part).cloned().unwrap_or_else(first);
        let skip = Self { desk, topic, part, kept, to };
        ensure!(
            skip.is_cut() || to > skip.kept.safe,
            "everything before {} is done: to have it read once more, set back group {} with Kafka's own tools",
            skip.kept.safe,
            desk.group
        );
        Ok(skip)
    }

    /// Returns whether the log has lost its tail: rows have offsets that other records get now.
    fn is_cut(&self) -> bool {
        let has_regrown = matches!(self.part.start, Some(Err(Standstill::LogRegrown { .. })));
        self.kept.greatest > self.part.log.end || has_regrown
    }

    /// Says what is lost.
    fn what(&self) -> String {
        let (Kept { safe, greatest, .. }, to, partition) = (&self.kept, self.to, &self.part.partition);
        if self.is_cut() {
            return format!("{partition} has lost records up to {greatest}, and goes on at {to}");
        }
        format!("{} records of {partition} were left out: {safe} to {to}", to.0 - safe.0)
    }

    /// Returns whether the group has committed an offset from which a consumer would not begin at `to`.
    fn is_group_elsewhere(&self) -> bool {
        self.part.committed.is_some_and(|committed| committed.max(self.part.log.start) != self.to)
    }

    fn plan(&self) -> Vec<String> {
        let mut plan = vec![format!("open a loss: {}", self.what())];
        if self.is_group_elsewhere() {
            plan.push(format!("set what group {} has committed to {}", self.desk.group, self.to));
        }
        if self.is_cut() {
            plan.push("begin the next generation there, and at the end of each other partition".to_owned());
        }
        plan.push(format!("go on at {}", self.to));
        plan
    }

    async fn set_group(&self) -> anyhow::Result<()> {
        if !self.is_group_elsewhere() {
            return Ok(());
        }
        let consumers = self.desk.consumers_of(&self.desk.topic)?;
        commit(self.desk, &consumers, &self.part.partition, self.to).await
    }

    /// Stores in the partition's claim where it goes on. Safe to repeat.
    async fn store(&self, topic: &Topic) -> anyhow::Result<()> {
        let (partition, claims) = (&self.part.partition, &self.desk.claims);
        let (claim, _) = claims.raise(partition).await.context("cannot raise the claim")?;
        let kept = claim.kept.filter(|kept| kept.topic == topic.id).unwrap_or_else(|| self.kept.clone());
        let kept = kept.skipped_to(self.to, self.part.log.end, claims.time().latest);
        let stored = claims.keep(partition, claim.n, &kept).await.context("cannot store the claim")?;
        ensure!(stored.is_some(), "a consumer has claimed {partition} meanwhile: again");
        Ok(())
    }

    /// Goes on with a log that has lost its tail. From `to` on its records have offsets that rows have already, but
    /// need greater versions. So a new generation begins at `to`, and at the end of each other partition.
    async fn begin_anew(&self, settle: Settle) -> anyhow::Result<()> {
        let begun = while_paused(self.desk, self.topic, settle, async |paused| {
            let seen = Seen::look(self.desk, &self.desk.topic).await?;
            let index = self.part.partition.index;
            let begin = |part: &Part| if part.partition.index == index { self.to } else { part.log.end };
            // New partitions wait until the topic is adopted.
            let known = seen.parts.iter().take(self.topic.current().begins.len());
            let mut to = self.topic.continued(known.map(begin).collect());
            let to = to.as_mut().context("there is no further generation")?;
            if let Some(from) = to.sums_from.get_mut(index as usize) {
                *from = self.to.min(*from);
            }
            self.store(to).await?;
            replace(self.desk, paused, to).await
        });
        begun.await
    }
}
