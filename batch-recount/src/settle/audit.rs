//! The audit: a recount of all counters. A cheap pass scans rows and counters and proves those right that agree and did
//! not change meanwhile. The others are read again in rounds until each is proved, corrected or left. Only an audit
//! closes *losses*, faults after which changes may be missing in the counters, and fulfils the request for one.
//! `changed_since` recounts only the counters that changed lately, without a pass.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::TryStreamExt;
use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{Cursor, Segment};
use tally_core::changes::{Body, LossNumber};
use tally_core::register::Replay;
use tally_core::time::UnixMillis;

use super::pass::{Part, keys_of};
use super::rounds::Open;
use super::{Ended, Recount};

/// Why an audit is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Due {
    /// The losses that an audit closes if it begins now.
    losses: BTreeSet<LossNumber>,
    /// When an audit was asked for last.
    asked: Option<UnixMillis>,
}

impl Due {
    /// Returns whether nothing asks for an audit.
    pub(crate) fn is_empty(&self) -> bool {
        self.losses.is_empty() && self.asked.is_none()
    }
}

/// How far an audit is, as it is stored. A process that continues it scans an unfinished part again, which proves what
/// was settled of it.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// What was due when the audit began.
    due: Due,
    /// The losses that were open in each partition of the log when the first part began.
    #[serde(default)]
    open: BTreeMap<u32, BTreeSet<LossNumber>>,
    /// The parts of the posts that are not done.
    parts: Vec<Part>,
    ended: Ended,
}

impl Recount {
    /// Settles every row key. If none is left, closes what was due when the audit began. Continues the audit of the
    /// same run if a process was killed.
    ///
    /// # Errors
    /// A recount cannot begin, the log does not go on, or a store refuses what it is asked.
    pub async fn audit(&self) -> anyhow::Result<Ended> {
        let audited = self.audit_once().await?;
        self.rechecked(audited, Some(Part::ALL)).await
    }

    /// Audits, but does not check the corrections of the last part again. Also returns the row keys still to check.
    pub(crate) async fn audit_once(&self) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut progress, mut corrected, mut before) = (self.progress().await?, Vec::new(), Part::ALL);
        while let Some(part) = progress.parts.last().copied() {
            let pass = Box::pin(self.pass(part, None)).await?;
            if part == Part::ALL {
                progress.open = pass.open;
            }
            let (ended, these) = self.settle(pass.doubts, Some(part)).await?;
            progress.ended.left += pass.unreadable;
            progress.ended.add(ended);
            progress.parts.pop();
            progress.parts.extend(pass.rest);
            if !progress.parts.is_empty() {
                self.save(&progress).await?;
            }
            // Looks once more at what the part before has corrected, so that only one part's corrections are held.
            progress.ended.add(self.recheck(std::mem::replace(&mut corrected, these), Some(before)).await?);
            before = part;
        }
        if progress.ended.left == 0 && !self.rules.dry_run {
            self.close(&progress).await?;
        }
        self.save(&progress).await?;
        Ok((progress.ended, corrected))
    }

    /// Settles the row keys of counters that have changed since. Also returns those that had to be corrected.
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

    /// Returns how far the audit is. Begins it now unless it began before.
    async fn progress(&self) -> anyhow::Result<Progress> {
        let read = || self.ports.recounts.audit_progress(self.run);
        if let Some(stored) = self.calls.read("read how far an audit is", 1, read).await? {
            return Ok(serde_json::from_str(&stored)?);
        }
        let progress =
            Progress { due: self.due().await?, open: BTreeMap::new(), parts: vec![Part::ALL], ended: Ended::default() };
        self.save(&progress).await?;
        Ok(progress)
    }

    /// Stores how far the audit is. Safe to repeat: the last write wins, and an audit that is done stays done.
    async fn save(&self, progress: &Progress) -> anyhow::Result<()> {
        let (stored, now) = (serde_json::to_string(progress)?, self.calls.now());
        let (left, is_done) = (progress.ended.left, progress.parts.is_empty());
        let put = || self.ports.recounts.put_audit_progress(self.run, &stored, left, is_done, now);
        self.calls.write("keep how far an audit is", 1, put).await
    }

    /// Returns why an audit is due now: the request for one, and the open losses. Replays that still go on are no
    /// reason: rows that were removed long ago may still come back.
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

    /// Returns the losses that are open now.
    pub(super) async fn open_losses(&self) -> anyhow::Result<BTreeSet<LossNumber>> {
        let losses = self.calls.read("read losses", 1, || self.ports.changes.losses()).await?;
        Ok(losses.open().map(|(number, _)| number).collect())
    }

    /// Closes what was due when the audit began, after it has settled every row key: each loss in every partition,
    /// behind the audit's corrections, and then in the table. Safe to repeat: a repaired loss never opens again. One
    /// that is repaired in some partitions only is still open in the table, so the next audit closes it.
    ///
    /// A fold that had to skip a part of the log may have missed a repair: then the loss is closed in the table, and
    /// still open in that fold's partition. This audit began after that loss was announced there, so it covers the loss,
    /// and says so there once more. An audit that was not due for a loss never closes it in the table.
    async fn close(&self, Progress { due, open: known, .. }: &Progress) -> anyhow::Result<()> {
        let open = self.open_losses().await?;
        for (partition, known) in known {
            for number in known.difference(&open) {
                self.append(*partition, Body::Repaired(*number)).await?;
                tracing::info!(loss = number.0, partition, "loss repaired again: the fold had missed it");
            }
        }
        for number in due.losses.intersection(&open) {
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
