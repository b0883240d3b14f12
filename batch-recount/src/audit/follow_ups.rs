//! Follows up row keys that were not proved: carries out what [`FollowUp`] asks for, looks and windows side by side.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, FuturesUnordered, StreamExt, TryStreamExt};
use tally_core::audit::{Candidate, Cause, Doubt, FollowUp, FollowUpEffect, FollowUpInput};
use tally_core::ids::RowKey;
use tally_core::window::Repaired;
use tokio::sync::Semaphore;

use super::Left;
use crate::findings::Findings;
use crate::progress::Progress;
use crate::recounter::Recounter;

/// The follow-ups of one audit.
pub(super) struct FollowUps {
    of: Recounter,
    dry_run: bool,
    findings: Arc<Findings>,
    left: Arc<Left>,
    progress: Arc<Progress>,
    /// Row keys whose rows are counted at once, and row keys recounted by windows.
    counts: Semaphore,
    repairs: Semaphore,
}

/// The answers to what a follow-up has asked for last.
type Answers<'a> = BoxStream<'a, anyhow::Result<FollowUpInput>>;

impl FollowUps {
    pub(super) fn new(
        of: &Recounter,
        dry_run: bool,
        findings: &Arc<Findings>,
        left: &Arc<Left>,
        progress: &Arc<Progress>,
    ) -> Self {
        let [counts, repairs] = [(); 2].map(|()| Semaphore::new(of.rules.concurrency));
        let (findings, left, progress) = (Arc::clone(findings), Arc::clone(left), Arc::clone(progress));
        Self { of: of.clone(), dry_run, findings, left, progress, counts, repairs }
    }

    /// Settles row keys; how many this leaves unsettled.
    pub(super) async fn follow_up(&self, doubts: Vec<(RowKey, Doubt)>) -> anyhow::Result<u64> {
        self.progress.doubted(doubts.len());
        let mut undecided = doubts.len() as u64;
        let mut machine = FollowUp::new(doubts, self.of.rules.guard, self.dry_run);
        let (mut answers, mut repairs): (Answers<'_>, _) = (stream::empty().boxed(), FuturesUnordered::new());
        let (mut input, mut effects) = (FollowUpInput::Begin, Vec::new());
        loop {
            machine.step(self.of.stream.now(), input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    FollowUpEffect::ReadCounters(ids) => {
                        answers = self.of.store.each_counter(&ids).map_ok(FollowUpInput::Counter).boxed();
                    }
                    FollowUpEffect::CountRows(keys) => answers = stream::once(self.weigh(keys)).boxed(),
                    FollowUpEffect::AwaitApplied(past) => {
                        let passed = async move { self.of.stream.passed(past).await };
                        answers = stream::once(passed).map_ok(|as_of| FollowUpInput::Applied(Some(as_of))).boxed();
                    }
                    FollowUpEffect::Proved(proved) => {
                        undecided = undecided.saturating_sub(proved);
                        self.progress.looked(proved);
                        self.findings.proved(proved);
                    }
                    FollowUpEffect::Differs(drift) => self.findings.differs(drift),
                    FollowUpEffect::Repair(keys) => {
                        undecided = undecided.saturating_sub(keys.len() as u64);
                        self.progress.asked(keys.len());
                        repairs.extend(keys.into_iter().map(|key| self.repair(key).boxed()));
                    }
                    FollowUpEffect::End(unsettled) => {
                        // What cannot be read, and what a dry run leaves as it is.
                        self.progress.looked(undecided);
                        return Ok(unsettled);
                    }
                }
            }
            input = tokio::select! {
                biased;
                Some(answer) = answers.next() => answer?,
                Some(repaired) = repairs.next() => FollowUpInput::Repaired(repaired?),
                else => unreachable!("a follow-up that waits for nothing has ended"),
            };
        }
    }

    async fn weigh(&self, keys: Vec<RowKey>) -> anyhow::Result<FollowUpInput> {
        let weighed = stream::iter(keys).map(|key| self.weigh_one(key).boxed()).buffered(self.of.rules.concurrency);
        Ok(FollowUpInput::Rows(weighed.try_collect().await?))
    }

    async fn weigh_one(&self, key: RowKey) -> anyhow::Result<(u64, i128)> {
        let _turn = self.counts.acquire().await.expect("the semaphore is never closed");
        self.of.store.weigh(&key).await
    }

    /// Recounts a row key by windows once it is its turn.
    async fn repair(&self, Candidate { key, wrong }: Candidate) -> anyhow::Result<Repaired> {
        let _turn = self.repairs.acquire().await.expect("the semaphore is never closed");
        let why = wrong.map_or(Cause::Unproved, |wrong| wrong.cause);
        let repaired = self.of.windows.repair(&key, why, &self.findings).await?;
        self.progress.settled();
        if repaired == Repaired::Left {
            self.left.add(key);
        }
        Ok(repaired)
    }
}
