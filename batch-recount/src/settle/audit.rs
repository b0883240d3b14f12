//! The audit of everything: a cheap pass that scans rows and counters and proves what agrees and did not move, and rounds over
//! the rest.

use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::{AuditSegment, Cursor, Segment};
use tally_core::time::UnixMillis;

use super::pass::{Pass, keys_of};
use super::rounds::Open;
use super::sums::Part;
use super::{Due, Ended, Recount};

/// How far an audit is. A process that was killed is continued from here: what it had settled of a part is proved by the scan
/// then.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// What was due when the audit began.
    due: Due,
    /// The parts that are not done.
    parts: Vec<Part>,
    ended: Ended,
}

impl Recount {
    /// Settles every row key, and puts an end to what was due when the audit began, if none is left. Continues the audit of the
    /// same run where a process was killed.
    ///
    /// # Errors
    /// A recount cannot begin, the log does not go on, or a store refuses what it is asked.
    pub async fn audit(&self) -> anyhow::Result<Ended> {
        let (mut progress, corrected) = self.settle_all().await?;
        progress.ended.add(self.recheck(corrected, Some(Part::ALL)).await?);
        self.save(&progress).await?;
        Ok(progress.ended)
    }

    /// The same without the second look at what was corrected; what that is due for.
    pub(crate) async fn audit_once(&self) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (progress, corrected) = self.settle_all().await?;
        self.save(&progress).await?;
        Ok((progress.ended, corrected))
    }

    async fn settle_all(&self) -> anyhow::Result<(Progress, Vec<Open>)> {
        let (mut progress, mut corrected, mut before) = (self.progress().await?, Vec::new(), Part::ALL);
        while let Some(part) = progress.parts.last().copied() {
            let pass = Box::pin(Pass::over(self, part, None)).await?;
            let (ended, these) = self.settle(pass.doubts, Some(part)).await?;
            progress.ended.left += pass.unreadable;
            progress.ended.add(ended);
            progress.parts.pop();
            progress.parts.extend(pass.rest);
            if !progress.parts.is_empty() {
                self.save(&progress).await?;
            }
            // Only what one part had is kept.
            progress.ended.add(self.recheck(std::mem::replace(&mut corrected, these), Some(before)).await?);
            before = part;
        }
        if progress.ended.left == 0 && !self.rules.dry_run {
            self.is_done(&progress.due).await?;
        }
        Ok((progress, corrected))
    }

    /// Settles the row keys of counters that have changed since.
    ///
    /// # Errors
    /// As [`audit`](Self::audit).
    pub(crate) async fn changed_since(&self, since: UnixMillis) -> anyhow::Result<Ended> {
        let (mut ended, mut corrected, mut keys) = (Ended::default(), Vec::new(), Vec::new());
        for index in 0..self.rules.segments {
            let (segment, mut after) = (Segment { index, of: self.rules.segments }, None);
            loop {
                let scan = || self.ports.counters.scan(segment, after.as_ref());
                let page = self.calls.page("scan counters", scan).await?;
                for (id, counter) in page.items {
                    match counter {
                        Ok(counter) if counter.updated_at < since => {}
                        Ok(counter) => {
                            self.findings.counters(1);
                            keys.extend(keys_of(&id, &counter));
                        }
                        Err(fault) => {
                            tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
                            ended.left += 1;
                        }
                    }
                }
                after = page.next;
                let is_last = after.is_none() && index + 1 == self.rules.segments;
                if keys.len() >= self.rules.keys || is_last {
                    let (these, again) = self.settle(std::mem::take(&mut keys), None).await?;
                    ended.add(these);
                    corrected.extend(again);
                }
                if after.is_none() {
                    break;
                }
            }
        }
        ended.add(self.recheck(corrected, None).await?);
        Ok(ended)
    }

    /// How far the audit is; it begins now unless it began before.
    async fn progress(&self) -> anyhow::Result<Progress> {
        let segments =
            self.calls.persist("read how far an audit is", || self.ports.recounts.segments(self.run)).await?;
        self.calls.read_items(1);
        if let Some(Cursor(stored)) = segments.into_iter().find_map(|segment| segment.cursor) {
            return Ok(serde_json::from_str(&stored)?);
        }
        let due = self.due().await?;
        let progress = Progress { due, parts: vec![Part::ALL], ended: Ended::default() };
        self.save(&progress).await?;
        Ok(progress)
    }

    /// Stores how far the audit is. Safe to repeat: what is said last stands, and one that is done stays so.
    async fn save(&self, progress: &Progress) -> anyhow::Result<()> {
        let segment = AuditSegment {
            index: 0,
            cursor: Some(Cursor(serde_json::to_string(progress)?)),
            unsettled: progress.ended.left,
            done: progress.parts.is_empty(),
        };
        let now = self.calls.clock().now();
        let put = || self.ports.recounts.put_segment(self.run, &segment, now);
        self.calls.persist("keep how far an audit is", put).await?;
        self.calls.wrote(1);
        Ok(())
    }
}
