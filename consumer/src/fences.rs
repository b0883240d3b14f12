//! An operator's commands on fences: print them with their logs, and move one after an alarm.

use std::sync::Arc;

use anyhow::{Context, bail};
use tally_core::definitions::Definitions;
use tally_core::fence::{Fence, Load, Log, Offset, Partition, Terms, load};
use tally_core::ids::CounterKind;
use tally_core::lineage::Loss;
use tally_core::ports::{Checkpoints, FencedRows, TopicReader};
use tally_service::UnixMillis;

use crate::args::{ResetTo, SumsAnew};
use crate::print;

/// A move that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    pub partition: u32,
    pub to: ResetTo,
    /// The fence may be moved to before where it is.
    pub back: bool,
    /// What becomes of what adds to sums, where offsets begin anew.
    pub sums: Option<SumsAnew>,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
}

/// The fences of a topic, and the logs they count in.
pub(crate) struct Fences {
    pub(crate) rows: Arc<dyn FencedRows>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) reader: Arc<dyn TopicReader>,
    pub(crate) topic: String,
}

impl Fences {
    /// Prints every partition: its fence, its log, and what a consumer would do.
    pub(crate) async fn show(&self) -> anyhow::Result<()> {
        let fences = self.rows.fences(&self.topic).await.context("cannot read the fences")?;
        print::line("partition\tfence\tcfg\tlog start\tlog end\ttopic id\tstate")?;
        for (partition, log) in self.reader.logs().await.context("cannot look at the topic")? {
            let fence = fences.iter().find(|(found, _)| *found == partition).map(|(_, fence)| fence);
            print::line(&described(partition.index, fence, &log))?;
        }
        Ok(())
    }

    /// Moves the fence of a partition. The loss is recorded first, so that no count is called exact in between. Safe to
    /// repeat: the fence moves only if it still is as it was read, and a loss recorded twice is one.
    pub(crate) async fn reset(&self, reset: Reset, now: UnixMillis) -> anyhow::Result<()> {
        let Reset { partition: index, dry_run, .. } = reset;
        let logs = self.reader.logs().await.context("cannot look at the topic")?;
        let Some((partition, log)) = logs.into_iter().find(|(partition, _)| partition.index == index) else {
            bail!("`{}` has no partition {index}", self.topic);
        };
        let Some(seen) = self.rows.fence(&partition).await.context("cannot read the fence")? else {
            bail!("{partition} has no fence yet: a consumer creates it");
        };
        let defined = self.checkpoints.definitions().await.context("cannot read the counters")?;
        let fence = moved(reset, &seen, &log, &defined)?;
        if dry_run {
            let Fence { offset, topic, .. } = &fence;
            let (from, behind) = (seen.offset, log.end.0.saturating_sub(offset.0));
            return print::line(&format!(
                "{partition}: would be moved from {from} to {offset} of topic {topic}, {behind} behind; nothing was changed"
            ));
        }
        let loss = Loss::FenceReset(partition.to_string().into());
        self.checkpoints.open_gap(&loss, now).await.context("cannot record the loss")?;
        let moved = self.rows.reset_fence(&partition, &seen, &fence).await.context("cannot move the fence")?;
        if !moved {
            bail!("the fence of {partition} was moved meanwhile: stop the consumers of this partition, or try again");
        }
        report(&partition, &seen, &fence)
    }
}

fn report(partition: &Partition, seen: &Fence, to: &Fence) -> anyhow::Result<()> {
    let (from, to) = (seen.offset, to.offset);
    print::line(&format!("{partition}: moved from {from} to {to}; counts are inexact until an audit has gone through"))
}

/// The fence as the operator wants it. Sums have no cure for an event that counts twice, so that what was applied before is
/// stated: by `redo` where the fence moves back, by a new generation where offsets begin anew.
fn moved(reset: Reset, seen: &Fence, log: &Log, defined: &Definitions) -> anyhow::Result<Fence> {
    let Reset { to, back, sums, .. } = reset;
    let anew = seen.topic != log.topic || seen.offset > log.end;
    let asked = target(to, log)?;
    let (offset, terms) = if anew {
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
        (asked, Terms { generation: seen.terms.generation + 1, redo: None, sums_from, ..seen.terms })
    } else if to == ResetTo::Start && !back {
        (asked.max(seen.offset), seen.terms)
    } else if back && asked <= seen.offset {
        // The greatest offset that it can ever have had: below it each cell is read, which costs a read and no more. A fence
        // that was moved back by hand does not say how far it was.
        (asked, Terms { redo: seen.terms.redo.max(Some(log.end)), ..seen.terms })
    } else if asked < seen.offset {
        bail!("the fence is at {}: to move it back to {asked}, say `--back` as well", seen.offset)
    } else {
        (asked, seen.terms)
    };
    Ok(Fence { offset, topic: log.topic.clone(), terms, ..seen.clone() })
}

fn target(to: ResetTo, log: &Log) -> anyhow::Result<Offset> {
    match to {
        ResetTo::Start => Ok(log.start),
        ResetTo::End => Ok(log.end),
        ResetTo::Offset(offset) if (log.start.0..=log.end.0).contains(&offset) => Ok(Offset(offset)),
        ResetTo::Offset(offset) => bail!("the log goes from {} to {}, without {offset}", log.start, log.end),
    }
}

fn described(index: u32, fence: Option<&Fence>, log: &Log) -> String {
    let (offset, cfg) =
        fence.map_or(("-".to_owned(), "-".to_owned()), |fence| (fence.offset.to_string(), fence.cfg.to_string()));
    let state = match load(fence.cloned(), log) {
        Load::Create => "not read yet".to_owned(),
        Load::Resume(fence) => format!("{} behind", log.end.0 - fence.offset.0),
        Load::Halt(alarm) => format!("{}: {alarm}", alarm.name()),
    };
    let Log { topic, start, end } = log;
    format!("{index}\t{offset}\t{cfg}\t{start}\t{end}\t{topic}\t{state}")
}

#[cfg(test)]
mod tests;
