//! An operator's commands on fences: print them with their logs, and move one after an alarm.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use tally_adapters::dynamodb::changes::Changes;
use tally_core::definitions::Definitions;
use tally_core::fence::{self, Alarm, Fence, Log, Offset, Partition, Terms, TopicId, unfit};
use tally_core::ids::{CounterKind, Lane};
use tally_core::ports::{DeploymentConfig, FencedRows, TopicReader};
use tally_service::UnixMillis;

use crate::args::{ResetTo, SumsAnew};
use crate::print;

/// How often a partition's fences are read again whose consumer moves them at the same time. Each try costs a transaction of
/// the consumer's to lose against.
const TRIES: usize = 200;

/// A move that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// `None`: every partition of the topic.
    pub partition: Option<u32>,
    pub to: ResetTo,
    /// The fence may be moved to before where it is.
    pub back: bool,
    /// What becomes of what adds to sums, where offsets begin anew.
    pub sums: Option<SumsAnew>,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

/// The fences of a topic, and the logs they count in.
pub struct Fences {
    pub rows: Arc<dyn FencedRows>,
    pub checkpoints: Arc<dyn DeploymentConfig>,
    pub reader: Arc<dyn TopicReader>,
    pub topic: String,
}

/// A partition: its log, and the fence of each lane, none before a consumer has created one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub partition: Partition,
    pub log: Log,
    pub lanes: Vec<Fence>,
}

/// What a reset makes of the fences of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub partition: Partition,
    pub log: Log,
    pub seen: fence::Fences,
    pub to: fence::Fences,
}

impl Standing {
    /// Why a consumer would leave the partition alone; `None` where it reads on.
    pub fn alarm(&self) -> Option<Alarm> {
        let least = self.lanes.iter().min_by_key(|fence| fence.offset)?;
        let furthest = self.lanes.iter().map(|fence| fence.offset).max()?;
        unfit(&least.topic, least.offset, furthest, &self.log)
    }

    /// How many records no lane has passed; `None` where there is no fence.
    pub fn behind(&self) -> Option<u64> {
        let least = self.lanes.iter().map(|fence| fence.offset).min()?;
        Some(self.log.end.0.saturating_sub(least.0))
    }
}

impl std::fmt::Display for Move {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (offset, topic) = (self.to.least().offset, self.to.topic());
        let (from, behind) = (self.seen.least().offset, self.log.end.0.saturating_sub(offset.0));
        write!(f, "{}: from {from} to {offset} of topic {topic}, {behind} behind", self.partition)
    }
}

impl Fences {
    /// Every partition: its fences and its log.
    ///
    /// # Errors
    /// Either cannot be read.
    pub async fn standing(&self) -> anyhow::Result<Vec<Standing>> {
        let fences = self.rows.fences(&self.topic).await.context("cannot read the fences")?;
        let logs = self.reader.logs().await.context("cannot look at the topic")?;
        let of = |partition: &Partition| {
            let lanes = fences.iter().filter(|(of, _)| of == partition);
            lanes.map(|(_, fence)| fence.clone()).collect()
        };
        Ok(logs.into_iter().map(|(partition, log)| Standing { lanes: of(&partition), partition, log }).collect())
    }

    /// Prints every partition: its fence, its log, and what a consumer would do.
    pub(crate) async fn show(&self) -> anyhow::Result<()> {
        let standing = self.standing().await?;
        print::line("partition\tfence\tcfg\tlog start\tlog end\ttopic id\tstate")?;
        for Standing { partition, log, lanes } in standing {
            if lanes.is_empty() {
                print::line(&described(partition.index, None, &log))?;
            }
            for fence in &lanes {
                print::line(&described(partition.index, Some(fence), &log))?;
            }
        }
        Ok(())
    }

    /// Moves the fences of a partition, or of all, or says what would be moved. A loss is opened before.
    pub(crate) async fn reset(&self, reset: Reset, changes: &Changes, now: UnixMillis) -> anyhow::Result<()> {
        let moves = self.plan(&reset).await?;
        if !reset.dry_run {
            let moved: Vec<String> = moves.iter().map(|planned| planned.partition.to_string()).collect();
            let what = format!("the fence of {} was moved by hand", moved.join(", "));
            changes.open_new_loss(now, "fence_reset", &what).await.context("cannot record the loss")?;
        }
        for planned in moves {
            if reset.dry_run {
                let (offset, topic) = (planned.to.least().offset, planned.to.topic());
                let (from, behind) = (planned.seen.least().offset, planned.log.end.0.saturating_sub(offset.0));
                let partition = &planned.partition;
                print::line(&format!(
                    "{partition}: would be moved from {from} to {offset} of topic {topic}, {behind} behind; nothing was changed"
                ))?;
            } else {
                self.carry_out(&planned).await?;
                report(&planned.partition, &planned.seen, &planned.to)?;
            }
        }
        Ok(())
    }

    /// What a reset would move: the fences of a partition, or of all, each with all its lanes. What is asked for has to be
    /// possible in each of them.
    ///
    /// # Errors
    /// It is not, or something cannot be read.
    pub async fn plan(&self, reset: &Reset) -> anyhow::Result<Vec<Move>> {
        let defined = self.checkpoints.definitions().await.context("cannot read the counters")?;
        let mut seen = BTreeMap::new();
        for (partition, _) in self.logs(reset).await? {
            let Some(fences) = self.rows.lanes(&partition).await.context("cannot read the fences")? else {
                bail!("{partition} has no fence yet: a consumer creates it");
            };
            seen.insert(partition, fences);
        }
        let mut moves = Vec::new();
        // After the fences: of a log that was looked at before, a running consumer may have come past the end.
        for (partition, log) in self.logs(reset).await? {
            let Some(seen) = seen.remove(&partition) else { continue };
            let to = self.resolved(reset.to, &partition, &log).await?;
            let moved = moved(Reset { to, ..*reset }, &seen, &log, &defined);
            let to = moved.with_context(|| format!("{partition} cannot be moved"))?;
            moves.push(Move { partition, log, seen, to });
        }
        if moves.is_empty() {
            let index = reset.partition.map_or("any".to_owned(), |index| index.to_string());
            bail!("`{}` has no partition {index}", self.topic);
        }
        Ok(moves)
    }

    /// Moves the fences of one partition. The caller opens a loss before, so that no count is called exact in between. Safe to
    /// repeat: the fences move only if they still are as they were read.
    ///
    /// # Errors
    /// They are not, or the store takes no write.
    pub async fn carry_out(&self, planned: &Move) -> anyhow::Result<()> {
        let Move { partition, seen, to, .. } = planned;
        let moved = self.rows.replace_fences(partition, seen, to).await.context("cannot move the fence")?;
        if !moved {
            bail!("the fence of {partition} was moved meanwhile: stop the consumers of this partition, or try again");
        }
        Ok(())
    }

    /// The logs of the partitions that are meant.
    async fn logs(&self, reset: &Reset) -> anyhow::Result<Vec<(Partition, Log)>> {
        let logs = self.reader.logs().await.context("cannot look at the topic")?;
        Ok(logs.into_iter().filter(|(of, _)| reset.partition.is_none_or(|index| of.index == index)).collect())
    }

    /// The offset that a time comes to in the log of `partition`.
    async fn resolved(&self, to: ResetTo, partition: &Partition, log: &Log) -> anyhow::Result<ResetTo> {
        let ResetTo::Time(at) = to else { return Ok(to) };
        let found = self.reader.offset_at(partition, at).await.context("cannot find the time in the log")?;
        Ok(found.map_or(ResetTo::End, |offset| ResetTo::Offset(offset.clamp(log.start, log.end).0)))
    }
}

/// What an operator wants of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Going {
    /// No consumer writes.
    Paused,
    /// They go on where they were.
    Resumed,
}

impl Going {
    /// The topic that fences are to count in; `None` where they do already.
    fn topic(self, now: &TopicId) -> Option<TopicId> {
        match (self, now.resumed()) {
            (Self::Paused, None) => Some(now.paused()),
            (Self::Resumed, Some(topic)) => Some(topic),
            _ => None,
        }
    }
}

impl Fences {
    /// The partitions that are not as they are to be: with a fence, and paused or not.
    ///
    /// # Errors
    /// The fences cannot be read, or a partition has none yet.
    pub async fn to_switch(&self, going: Going) -> anyhow::Result<Vec<Partition>> {
        let mut partitions = Vec::new();
        for Standing { partition, lanes, .. } in self.standing().await? {
            let Some(fence) = lanes.first() else { bail!("{partition} has no fence yet: a consumer creates it") };
            if going.topic(&fence.topic).is_some() {
                partitions.push(partition);
            }
        }
        Ok(partitions)
    }

    /// Pauses a partition, or resumes it: in one transaction all its lanes count in another topic, `cfg` is one higher, and no
    /// offset moves. A request that was made ready before fits none of them, however late it lands. Safe to repeat: a partition
    /// that is as it is to be stays.
    ///
    /// # Errors
    /// The store takes no write, or a consumer moves the fences each time.
    pub async fn switch(&self, partition: &Partition, going: Going) -> anyhow::Result<()> {
        for _ in 0..TRIES {
            let seen = self.rows.lanes(partition).await;
            let seen = match seen {
                Err(fault) if fault.is_retryable() => continue,
                seen => seen.context("cannot read the fences")?,
            };
            let seen = seen.with_context(|| format!("{partition} has no fence yet: a consumer creates it"))?;
            let Some(topic) = going.topic(seen.topic()) else { return Ok(()) };
            let to = seen.reset(&topic, seen.terms(), |fence| fence.offset);
            match self.rows.replace_fences(partition, &seen, &to).await {
                Ok(true) => return Ok(()),
                // Read again: it was moved, or it is not known whether this was carried out.
                Ok(false) => {}
                Err(fault) if fault.is_retryable() => {}
                Err(fault) => return Err(fault).context("cannot move the fence"),
            }
        }
        bail!("the fences of {partition} were moved {TRIES} times meanwhile: try again")
    }
}

fn report(partition: &Partition, seen: &fence::Fences, to: &fence::Fences) -> anyhow::Result<()> {
    let (from, to) = (seen.least().offset, to.least().offset);
    print::line(&format!("{partition}: moved from {from} to {to}; counts are inexact until an audit has gone through"))
}

/// The fences as the operator wants them: no lane is moved back unless that is asked for, and then none is moved forward. Sums have
/// no cure for an event that counts twice, so that what was applied before is stated: by `redo` where lanes move back, by a new
/// generation where offsets begin anew.
fn moved(reset: Reset, seen: &fence::Fences, log: &Log, defined: &Definitions) -> anyhow::Result<fence::Fences> {
    let Reset { to, back, sums, .. } = reset;
    if seen.topic().resumed().is_some() {
        bail!("it is paused: resume it first");
    }
    let (least, furthest, terms) = (seen.least().offset, seen.furthest(), seen.terms());
    let anew = *seen.topic() != log.topic || furthest > log.end;
    let asked = target(to, log)?;
    if anew {
        let has_sums = defined.iter().any(|definition| definition.kind() == CounterKind::Sum);
        let sums_from = match sums {
            Some(SumsAnew::Skip) => log.end,
            Some(SumsAnew::Count) => Offset(0),
            None if has_sums => bail!(
                "offsets begin anew, and a sum may have some of these events already: say `--sums skip` to leave out what \
                 is in the log now, or `--sums count` to count it"
            ),
            None => Offset(0),
        };
        let terms = Terms { generation: terms.generation + 1, redo: None, sums_from, ..terms };
        return Ok(seen.reset(&log.topic, terms, |_| asked));
    }
    if back && asked <= furthest {
        // The greatest offset that a lane can ever have had: below it each cell is read, which costs a read and no more. A fence
        // that was moved back by hand does not say how far it was.
        let terms = Terms { redo: terms.redo.max(Some(log.end)), ..terms };
        return Ok(seen.reset(&log.topic, terms, |fence| fence.offset.min(asked)));
    }
    if to != ResetTo::Start && asked < least {
        bail!("the fence is at {least}: to move it back to {asked}, say `--back` as well");
    }
    Ok(seen.reset(&log.topic, terms, |fence| fence.offset.max(asked)))
}

fn target(to: ResetTo, log: &Log) -> anyhow::Result<Offset> {
    match to {
        ResetTo::Start => Ok(log.start),
        ResetTo::End => Ok(log.end),
        ResetTo::Offset(offset) if (log.start.0..=log.end.0).contains(&offset) => Ok(Offset(offset)),
        ResetTo::Time(_) => bail!("a time is an offset once the log was asked"),
        ResetTo::Offset(offset) => bail!("the log goes from {} to {}, without {offset}", log.start, log.end),
    }
}

/// The line of one lane's fence.
fn described(index: u32, fence: Option<&Fence>, log: &Log) -> String {
    let Log { topic, start, end } = log;
    let Some(Fence { lane, offset, cfg, topic: counted, .. }) = fence else {
        return format!("{index}\t-\t-\t{start}\t{end}\t{topic}\tnot read yet");
    };
    let state = match unfit(counted, *offset, *offset, log) {
        None => format!("{} behind", end.0 - offset.0),
        Some(alarm) => format!("{}: {alarm}", alarm.name()),
    };
    let place = if *lane == Lane::FIRST { index.to_string() } else { format!("{index}/{lane}") };
    format!("{place}\t{offset}\t{cfg}\t{start}\t{end}\t{topic}\t{state}")
}

#[cfg(test)]
mod tests;
