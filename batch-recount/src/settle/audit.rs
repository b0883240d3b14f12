//! The audit of everything: a cheap pass that scans rows and counters and proves what agrees and did not move, and rounds over
//! the rest. Only an audit puts an end to losses that are open, and to the request for one.

use std::collections::BTreeSet;

use futures_util::stream::TryStreamExt;
use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{Cursor, Segment};
use tally_core::changes::{Body, LossNumber};
use tally_core::register::Replay;
use tally_core::time::UnixMillis;

use super::pass::keys_of;
use super::rounds::Open;
use super::sums::Part;
use super::{Ended, Recount};

/// Why an audit is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Due {
    /// The losses that an audit closes which begins now.
    losses: BTreeSet<LossNumber>,
    /// When an audit was asked for last.
    asked: Option<UnixMillis>,
}

impl Due {
    /// Nothing asks for an audit.
    pub(crate) fn is_empty(&self) -> bool {
        self.losses.is_empty() && self.asked.is_none()
    }
}

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
        let audited = self.audit_once().await?;
        self.rechecked(audited, Some(Part::ALL)).await
    }

    /// The same without the second look at what was corrected; what that is due for.
    pub(crate) async fn audit_once(&self) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut progress, mut corrected, mut before) = (self.progress().await?, Vec::new(), Part::ALL);
        while let Some(part) = progress.parts.last().copied() {
            let pass = Box::pin(self.pass(part, None)).await?;
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
        self.save(&progress).await?;
        Ok((progress.ended, corrected))
    }

    /// Settles the row keys of counters that have changed since; also those that had to be corrected.
    ///
    /// # Errors
    /// As [`audit`](Self::audit).
    pub(crate) async fn changed_since(&self, since: UnixMillis) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut ended, mut corrected, mut keys) = (Ended::default(), Vec::new(), Vec::new());
        let counters = &self.ports.counters;
        let all = Segment { index: 0, of: 1 };
        let page = |after: Option<Cursor>| async move { counters.scan(all, after.as_ref()).await };
        let mut pages = self.calls.pages("scan counters", page);
        loop {
            let page = pages.try_next().await?;
            let is_last = page.is_none();
            for (id, counter) in page.into_iter().flatten() {
                match counter {
                    Ok(counter) if counter.updated_at < since => {}
                    Ok(counter) => {
                        self.findings.so_far().counters += 1;
                        keys.extend(keys_of(&id, &counter));
                    }
                    Err(fault) => {
                        tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
                        ended.left += 1;
                    }
                }
            }
            if keys.len() >= self.rules.keys || is_last {
                let (these, again) = self.settle(std::mem::take(&mut keys), None).await?;
                ended.add(these);
                corrected.extend(again);
            }
            if is_last {
                return Ok((ended, corrected));
            }
        }
    }

    /// How far the audit is; it begins now unless it began before.
    async fn progress(&self) -> anyhow::Result<Progress> {
        let read = || self.ports.recounts.audit_progress(self.run);
        if let Some(stored) = self.calls.read("read how far an audit is", 1, read).await? {
            return Ok(serde_json::from_str(&stored)?);
        }
        let progress = Progress { due: self.due().await?, parts: vec![Part::ALL], ended: Ended::default() };
        self.save(&progress).await?;
        Ok(progress)
    }

    /// Stores how far the audit is. Safe to repeat: what is said last stands, and one that is done stays so.
    async fn save(&self, progress: &Progress) -> anyhow::Result<()> {
        let (stored, now) = (serde_json::to_string(progress)?, self.calls.now());
        let (left, is_done) = (progress.ended.left, progress.parts.is_empty());
        let put = || self.ports.recounts.put_audit_progress(self.run, &stored, left, is_done, now);
        self.calls.write("keep how far an audit is", 1, put).await
    }

    /// Why an audit is due now: what was asked for, and the open losses, but for those of replays that have not passed: rows that
    /// were removed long ago may still come back.
    pub(crate) async fn due(&self) -> anyhow::Result<Due> {
        let losses = self.calls.read("read losses", 1, || self.ports.changes.losses()).await?;
        let mut due = Due::default();
        for (number, loss) in losses.open() {
            let replay = (loss.kind == Replay::LOSS).then(|| loss.what.parse::<Replay>().ok()).flatten();
            let goes_on = match &replay {
                Some(replay) => {
                    let claims = Claims::new(&self.ports.tables, self.calls.clock());
                    let claim = self.calls.read("read a claim", 1, || claims.read(&replay.partition)).await?;
                    replay.goes_on(claim.kept.as_ref())
                }
                None => false,
            };
            due.losses.extend((!goes_on).then_some(number));
        }
        due.asked = self.calls.read("read the queued audit", 1, || self.ports.recounts.audit_queued()).await?;
        Ok(due)
    }

    /// The losses that are open now.
    pub(super) async fn open_losses(&self) -> anyhow::Result<BTreeSet<LossNumber>> {
        let losses = self.calls.read("read losses", 1, || self.ports.changes.losses()).await?;
        Ok(losses.open().map(|(number, _)| number).collect())
    }

    /// An audit that began when this was due has settled every row key. Losses are closed in every partition, behind the audit's
    /// corrections, and then in the table. Safe to repeat: a loss that is repaired never opens again. One that is repaired in
    /// some partitions alone is open in the table still, so the next audit closes it.
    async fn is_done(&self, due: &Due) -> anyhow::Result<()> {
        for number in due.losses.intersection(&self.open_losses().await?) {
            for partition in 0..self.config.partitions {
                self.append(partition, Body::Repaired(*number)).await?;
            }
            let now = self.calls.now();
            self.calls.write("close a loss", 1, || self.ports.changes.close_loss(*number, now)).await?;
            tracing::info!(loss = number.0, "loss closed: every row key was proved or corrected");
            self.findings.loss_closed();
        }
        let Some(asked) = due.asked else { return Ok(()) };
        self.calls.persist("take the audit off the queue", || self.ports.recounts.audit_done(asked)).await
    }
}
