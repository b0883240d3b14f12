//! Recounts row keys by windows: carries out what [`Repair`] asks for, under a claim that keeps other processes away.

use std::sync::Arc;
use std::time::Duration;

use tally_core::audit::{Cause, Drift};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_core::window::{
    AttemptRules, Ending, Judgement, Proof, Repair, RepairEffect, RepairInput, Repaired, WindowRun,
};
use tally_service::Chance;

use crate::claims::Claims;
use crate::findings::Findings;
use crate::metrics;
use crate::row_budget::RowBudget;
use crate::store::Store;
use crate::stream_view::StreamView;
use crate::turns::Turns;
use crate::window::Window;

/// Waits between attempts that came to nothing.
const BETWEEN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };

/// The windows of one process. Clones are the same.
#[derive(Clone)]
pub(crate) struct Windows {
    pub(crate) store: Store,
    pub(crate) claims: Claims,
    pub(crate) stream: Arc<StreamView>,
    pub(crate) rules: WindowRules,
    pub(crate) rows: Arc<RowBudget>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) chance: Chance,
}

/// How row keys are recounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowRules {
    pub(crate) attempt: AttemptRules,
    /// Attempts at one row key that may come to nothing before it is left as it is.
    pub(crate) attempts: u32,
}

impl Windows {
    /// A name no other attempt has.
    pub(crate) fn draw_run(&self) -> WindowRun {
        WindowRun::from(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
    }

    /// Recounts `key` exactly, and writes down in `findings` what it came to. A row key that is left is marked, so that
    /// every answer says that it may be wrong, and queued.
    pub(crate) async fn repair(
        &self,
        key: &RowKey,
        why: Cause,
        proof: Proof,
        findings: &Findings,
    ) -> anyhow::Result<Repaired> {
        let claim = format!("repair/{key}");
        self.claims.wait_for(&claim, self.claims.pace()).await?;
        let repaired = self.claims.with_heartbeat(&claim, self.repaired(key, why, proof, findings)).await;
        // Also after a failure, so that no other process has to wait for the claim to grow stale.
        let given_back = self.claims.settle(&claim, false).await;
        let repaired = unless_poison(key, repaired)?;
        given_back?;
        if repaired == Repaired::Left {
            self.store.disown(key).await?;
        }
        Ok(repaired)
    }

    async fn repaired(&self, key: &RowKey, why: Cause, proof: Proof, findings: &Findings) -> anyhow::Result<Repaired> {
        let mut repair = Repair::new(self.rules.attempts, self.counted(key).await?, proof);
        let mut changed = false;
        let mut effects = Vec::new();
        repair.step(RepairInput::Begin, &mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    RepairEffect::Attempt(expected) => {
                        let ending = self.attempt(key, expected, why, findings).await?;
                        repair.step(RepairInput::Ended(ending), &mut effects);
                    }
                    RepairEffect::Rest(failed) => {
                        self.store.calls.wait(BETWEEN.wait(failed, self.chance.fraction())).await?;
                        repair.step(RepairInput::Rested, &mut effects);
                    }
                    RepairEffect::Corrected { judgement, alarm } => {
                        changed = true;
                        corrected(key, why, judgement, alarm, findings);
                    }
                    RepairEffect::Withheld(judgement) => withheld(key, why, judgement, findings),
                    RepairEffect::GivenUp { failed, corrections } => {
                        tracing::error!(%key, failed, corrections, "a row key could not be recounted and is left as it is");
                    }
                    RepairEffect::End(repaired) => {
                        metrics::keys(outcome(repaired, changed), 1);
                        return Ok(repaired);
                    }
                }
            }
        }
    }

    async fn attempt(&self, key: &RowKey, expected: u64, why: Cause, findings: &Findings) -> anyhow::Result<Ending> {
        let run = self.draw_run();
        let ending = Window::new(self, key, run, why).ended(expected).await?;
        metrics::window(ending.label());
        findings.window(matches!(ending, Ending::Again(_)));
        tracing::debug!(%key, %run, outcome = ending.label(), "window ended");
        Ok(ending)
    }

    /// About how many rows there are, as far as the counter knows.
    async fn counted(&self, key: &RowKey) -> anyhow::Result<u64> {
        let counter = self.store.counter(&key.counter).await?;
        let rows = counter.and_then(|counter| counter.shards.get(&key.shard).map(|tally| tally.rows));
        Ok(rows.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0))
    }
}

/// One item that cannot be read is left, and stops nothing else.
fn unless_poison(key: &RowKey, repaired: anyhow::Result<Repaired>) -> anyhow::Result<Repaired> {
    match repaired {
        Err(error) if matches!(error.downcast_ref(), Some(Fault::Poison(_))) => {
            tracing::error!(%key, error = format!("{error:#}"), "a row key cannot be recounted");
            metrics::keys("left", 1);
            Ok(Repaired::Left)
        }
        repaired => repaired,
    }
}

/// What became of a row key, as a metric label: only what was changed was repaired.
fn outcome(repaired: Repaired, changed: bool) -> &'static str {
    match repaired {
        Repaired::Proved if changed => "repaired",
        Repaired::Corrected => "repaired",
        Repaired::Proved => "proved",
        Repaired::Left => "left",
    }
}

fn corrected(key: &RowKey, why: Cause, judgement: Judgement, alarm: bool, findings: &Findings) {
    let Judgement { before, after, suspect } = judgement;
    if alarm {
        findings.alarm();
        tracing::error!(%key, before, after, "a second window disagrees with the first: records may be lost or out of order");
    } else {
        tracing::info!(%key, before, after, why = why.label(), "corrected");
    }
    let cause = if suspect { Cause::Suspect } else { why.when_it_differs() };
    findings.corrected(Drift { key: key.to_string(), before, after, cause });
}

fn withheld(key: &RowKey, why: Cause, judgement: Judgement, findings: &Findings) {
    let Judgement { before, after, .. } = judgement;
    tracing::warn!(%key, before, after, "a large correction was withheld: run with --force");
    findings.withheld(Drift { key: key.to_string(), before, after, cause: why.when_it_differs() });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_changed_was_repaired() {
        let outcomes =
            [(Repaired::Proved, false), (Repaired::Proved, true), (Repaired::Left, false), (Repaired::Left, true)]
                .map(|(repaired, changed)| outcome(repaired, changed));
        assert_eq!(outcomes, ["proved", "repaired", "left", "left"]);
    }
}
