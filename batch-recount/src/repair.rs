//! The repair of one row key: windows until one of them finds nothing to correct, under a claim that keeps other runs
//! away out of courtesy.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::{CounterKind, RowKey};
use tally_core::ports::Claimed;

use crate::metrics;
use crate::summary::{Cause, Drift, Findings};
use crate::tools::Tools;
use crate::window::{Again, Ending, Judgement, Window};

/// Waits between attempts that came to nothing.
const BETWEEN: Backoff = Backoff { base: Duration::from_millis(500), cap: Duration::from_secs(10) };

/// Corrections of one row key before it is left alone: each after the first is an alarm.
const CORRECTIONS: u32 = 3;

/// What became of a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repaired {
    /// A window has proved the count, after corrections or without.
    Proved,
    /// It may be wrong still: a correction was withheld, windows kept failing, or a second one disagreed. Answers say so
    /// from now on, and it is queued.
    Left,
}

/// Recounts `key` exactly, and writes down in `findings` what it came to.
pub(crate) async fn repair(tools: &Tools, key: &RowKey, why: Cause, findings: &Findings) -> anyhow::Result<Repaired> {
    let claim = format!("repair/{key}");
    while tools.claim(&claim).await? != Claimed::Claimed {
        tools.wait(tools.rules.claim / 10).await?;
    }
    let repaired = with_heartbeat(tools, &claim, windows(tools, key, why, findings)).await;
    // Also after a failure: nobody has to wait for the claim to grow stale.
    let given_back = tools.settle(&claim, false).await;
    let repaired = unless_poison(key, repaired)?;
    given_back?;
    if repaired == Repaired::Left {
        tools.disown(key).await?;
    }
    metrics::keys(if repaired == Repaired::Proved { "repaired" } else { "left" }, 1);
    Ok(repaired)
}

/// One item that cannot be read is left, and stops nothing else.
fn unless_poison(key: &RowKey, repaired: anyhow::Result<Repaired>) -> anyhow::Result<Repaired> {
    match repaired {
        Err(error) if matches!(error.downcast_ref(), Some(Fault::Poison(_))) => {
            tracing::error!(%key, error = format!("{error:#}"), "a row key cannot be recounted");
            Ok(Repaired::Left)
        }
        repaired => repaired,
    }
}

/// `work`, its claim renewed meanwhile. A heartbeat that fails is no reason to stop: nothing relies on the claim.
pub(crate) async fn with_heartbeat<T>(tools: &Tools, claim: &str, work: impl Future<Output = T>) -> T {
    let beat = async {
        loop {
            tools.clock.sleep(tools.rules.claim / 4).await;
            if let Err(error) = tools.claim(claim).await {
                tracing::debug!(claim, %error, "the claim was not renewed");
            }
        }
    };
    match select(pin!(work), pin!(beat)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => never,
    }
}

async fn windows(tools: &Tools, key: &RowKey, why: Cause, findings: &Findings) -> anyhow::Result<Repaired> {
    let (mut corrections, mut failed) = (0, 0);
    let mut rows = counted(tools, key).await?;
    while failed < tools.rules.windows && corrections <= CORRECTIONS {
        let ending = Window::new(tools, key).attempt(why, rows).await?;
        findings.window(matches!(ending, Ending::Again(_)));
        match ending {
            Ending::Judged(judgement) if judgement.correction() == 0 => {
                return Ok(if corrections > 1 { Repaired::Left } else { Repaired::Proved });
            }
            Ending::Judged(judgement) => {
                corrections += 1;
                corrected(key, why, judgement, corrections, findings);
            }
            Ending::Withheld(judgement) => {
                withheld(key, why, judgement, findings);
                return Ok(Repaired::Left);
            }
            Ending::Again(again) => {
                if let Again::NoRoom(read) = again {
                    rows = read.saturating_mul(2);
                }
                tools.wait(BETWEEN.wait(failed, tools.chance.fraction())).await?;
                failed += 1;
            }
        }
    }
    tracing::error!(%key, windows = failed, corrections, "a row key could not be recounted and is left as it is");
    Ok(Repaired::Left)
}

/// About how many rows there are, as far as the counter knows. A sum has few, whatever it comes to.
async fn counted(tools: &Tools, key: &RowKey) -> anyhow::Result<u64> {
    if key.counter.name.kind() == CounterKind::Sum {
        return Ok(0);
    }
    let counter = tools.counter(&key.counter).await?;
    let rows = counter.and_then(|counter| counter.shards.get(&key.shard).map(|tally| tally.rows));
    Ok(rows.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0))
}

fn corrected(key: &RowKey, why: Cause, judgement: Judgement, corrections: u32, findings: &Findings) {
    let Judgement { before, after, .. } = judgement;
    if corrections > 1 {
        metrics::alarm();
        findings.alarm();
        tracing::error!(%key, before, after, "a second window disagrees with the first: records may be lost or out of order");
    } else {
        tracing::info!(%key, before, after, why = why.label(), "corrected");
    }
    let cause = if judgement.suspect { Cause::Suspect } else { why.when_it_differs() };
    findings.corrected(Drift { key: key.to_string(), before, after, cause });
}

fn withheld(key: &RowKey, why: Cause, judgement: Judgement, findings: &Findings) {
    let Judgement { before, after, .. } = judgement;
    tracing::warn!(%key, before, after, "a large correction was withheld: run with --force");
    findings.withheld(Drift { key: key.to_string(), before, after, cause: why.when_it_differs() });
}
