//! Recounts as they become due: audits that gaps have queued, and beside them row keys that were flagged.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::try_join3;
use tally_core::audit::{RunRecord, RunScope};
use tally_core::time::UnixMillis;
use tally_service::Exit;

use crate::config::Scope;
use crate::findings::Findings;
use crate::gaps::{self, Remainder};
use crate::metrics;
use crate::recounter::Recounter;
use crate::run::{Finished, Run};

/// How long before an audit is tried again that has left row keys which are not known by name, and before a queue is that
/// kept something.
const AUDIT_AGAIN: Duration = Duration::from_secs(600);
const QUEUE_AGAIN: Duration = Duration::from_secs(60);

/// How often it is shown when the last audit ended, and among how many runs it is looked for.
const LAST_AUDIT_EVERY: Duration = Duration::from_secs(600);
const RUNS_LOOKED_THROUGH: u32 = 1_000;

/// What keeps two watchers from running the same thing twice.
const CLAIM: &str = "watch";

/// Watches until asked to stop.
pub(crate) async fn watch(of: &Recounter) -> anyhow::Result<Exit> {
    // Another watcher at work is as good as this one.
    of.claims.wait_for(CLAIM, of.rules.watch).await?;
    let work = try_join3(Box::pin(queues(of)), Box::pin(audits(of)), Box::pin(shows_last_audit(of)));
    let worked = of.claims.with_heartbeat(CLAIM, work).await;
    of.claims.settle(CLAIM, false).await?;
    match worked? {}
}

/// Drains the queue when there is something in it.
async fn queues(of: &Recounter) -> anyhow::Result<Infallible> {
    loop {
        let left = is_queued(of).await? && !once(of, &Scope::Queue).await?.exit.is_clean();
        of.store.calls.wait(if left { QUEUE_AGAIN } else { of.rules.watch }).await?;
    }
}

/// Runs an audit when there is something that only an audit closes. What one has left is in the queue: once it is settled
/// there, the audit is as good as one that left nothing.
async fn audits(of: &Recounter) -> anyhow::Result<Infallible> {
    let mut remainder: Option<Remainder> = None;
    loop {
        if let Some(settled) = take_settled(of, &mut remainder).await? {
            settled.close(&of.store, &Findings::default()).await?;
        }
        let known = remainder.as_ref().map(|remainder| remainder.open.clone()).unwrap_or_default();
        let mut wait = of.rules.watch;
        if gaps::is_outdated(&of.store, &known).await? {
            let Finished { exit, remainder: left } = once(of, &Scope::Audit).await?;
            if !exit.is_clean() && left.is_none() {
                tracing::warn!(again = ?AUDIT_AGAIN, "the audit has left row keys unproved: gaps stay open");
                wait = AUDIT_AGAIN;
            }
            remainder = left;
        }
        of.store.calls.wait(wait).await?;
    }
}

/// Shows when the last audit ended well, since the process that ran it may be gone.
async fn shows_last_audit(of: &Recounter) -> anyhow::Result<Infallible> {
    loop {
        let recounts = &of.store.ports.recounts;
        let runs = of.store.persist("read earlier runs", || recounts.runs(RUNS_LOOKED_THROUGH)).await?;
        if let Some(ended) = last_audit(&runs) {
            metrics::succeeded(RunScope::Audit.label(), ended);
        }
        of.store.calls.wait(LAST_AUDIT_EVERY).await?;
    }
}

/// When the last audit ended that corrected what it found and left nothing.
fn last_audit(runs: &[RunRecord]) -> Option<UnixMillis> {
    let is_good = |run: &&RunRecord| run.scope == RunScope::Audit && !run.dry_run && run.summary.left == 0;
    runs.iter().filter(is_good).filter_map(|run| run.ended).max()
}

async fn take_settled(of: &Recounter, remainder: &mut Option<Remainder>) -> anyhow::Result<Option<Remainder>> {
    Ok(match remainder {
        Some(waiting) if waiting.is_settled(&of.store).await? => remainder.take(),
        _ => None,
    })
}

async fn is_queued(of: &Recounter) -> anyhow::Result<bool> {
    let page = of.store.page("read the queue", || of.store.ports.recounts.queued(None)).await?;
    Ok(!page.items.is_empty())
}

async fn once(of: &Recounter, scope: &Scope) -> anyhow::Result<Finished> {
    Run::begin(of, scope, false, true).await?.finish().await
}

#[cfg(test)]
mod tests {
    use tally_core::audit::{AuditRun, Summary};

    use super::*;

    fn ended(at: u64) -> RunRecord {
        RunRecord {
            run: AuditRun::beginning(UnixMillis(1), at),
            began: UnixMillis(1),
            ended: Some(UnixMillis(at)),
            scope: RunScope::Audit,
            dry_run: false,
            audit: None,
            summary: Summary::default(),
        }
    }

    #[test]
    fn the_last_audit_is_one_of_everything_that_ended_and_left_nothing() {
        let others = [
            RunRecord { ended: None, ..ended(60) },
            RunRecord { dry_run: true, ..ended(61) },
            RunRecord { scope: RunScope::Since, ..ended(62) },
            RunRecord { scope: RunScope::Queue, ..ended(63) },
            RunRecord { summary: Summary { left: 1, ..Summary::default() }, ..ended(64) },
        ];
        assert_eq!(last_audit(&others), None);
        let runs: Vec<RunRecord> = others.into_iter().chain([ended(40), ended(50), ended(30)]).collect();
        assert_eq!(last_audit(&runs), Some(UnixMillis(50)));
    }
}
