//! The audit of everything: a cheap pass that scans rows and counters and proves what agrees and did not move, and rounds over
//! the rest.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use tally_core::audit::AuditRun;
use tally_core::changes::LossNumber;
use tally_core::ports::{AuditSegment, AuditSegments as _, Cursor};

use super::pass::Pass;
use super::sums::Part;
use super::{Ended, Recount};

/// How far an audit is. A process that was killed is continued from here: what it had settled of a part is proved by the scan
/// then.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// The losses that were open when the audit began.
    losses: BTreeSet<LossNumber>,
    /// The parts that are not done.
    parts: Vec<Part>,
    ended: Ended,
}

impl Recount {
    /// Settles every row key, and closes the losses that were open when the audit began, if none is left. Continues the audit
    /// `run` where a process was killed.
    ///
    /// # Errors
    /// A recount cannot begin, the log does not go on, or a store refuses what it is asked.
    pub async fn audit(&self, run: AuditRun) -> anyhow::Result<Ended> {
        let mut progress = self.progress(run).await?;
        let mut corrected = Vec::new();
        while let Some(part) = progress.parts.last().copied() {
            let pass = Box::pin(Pass::over(self, part)).await?;
            let (ended, these) = self.settle(pass.doubts).await?;
            progress.ended.left += pass.unreadable;
            progress.ended.add(ended);
            progress.parts.pop();
            progress.parts.extend(pass.rest);
            if !progress.parts.is_empty() {
                self.save(run, &progress).await?;
            }
            corrected.push(these);
            if corrected.len() > 1 {
                progress.ended.add(self.recheck(corrected.remove(0)).await?);
            }
        }
        if progress.ended.left == 0 && !self.rules.dry_run {
            self.close_losses(&progress.losses).await?;
        }
        for these in corrected {
            progress.ended.add(self.recheck(these).await?);
        }
        self.save(run, &progress).await?;
        Ok(progress.ended)
    }

    /// How far the audit is; it begins now unless it began before.
    async fn progress(&self, run: AuditRun) -> anyhow::Result<Progress> {
        let segments = self.calls.persist("read how far an audit is", || self.stores.progress.segments(run)).await?;
        self.read_items(1);
        if let Some(Cursor(stored)) = segments.into_iter().find_map(|segment| segment.cursor) {
            return Ok(serde_json::from_str(&stored)?);
        }
        let losses = self.open_losses().await?;
        let progress = Progress { losses, parts: vec![Part::ALL], ended: Ended::default() };
        self.save(run, &progress).await?;
        Ok(progress)
    }

    /// Stores how far the audit is. Safe to repeat: what is said last stands, and one that is done stays so.
    async fn save(&self, run: AuditRun, progress: &Progress) -> anyhow::Result<()> {
        let segment = AuditSegment {
            index: 0,
            cursor: Some(Cursor(serde_json::to_string(progress)?)),
            unsettled: progress.ended.left,
            done: progress.parts.is_empty(),
        };
        let now = self.calls.clock().now();
        let put = || self.stores.progress.put_segment(run, &segment, now);
        self.calls.persist("keep how far an audit is", put).await?;
        self.spent.wrote(1);
        Ok(())
    }
}
