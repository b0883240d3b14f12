//! Recounts as they become due: audits that gaps have queued, and beside them row keys that were flagged.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::try_join;
use tally_service::Exit;

use crate::config::Scope;
use crate::findings::Findings;
use crate::gaps::{self, Remainder};
use crate::recounter::Recounter;
use crate::run::{Finished, Run};

/// How long before an audit is tried again that has left row keys which are not known by name, and before a queue is that
/// kept something.
const AUDIT_AGAIN: Duration = Duration::from_secs(600);
const QUEUE_AGAIN: Duration = Duration::from_secs(60);

/// What keeps two watchers from running the same thing twice.
const CLAIM: &str = "watch";

/// Watches until asked to stop.
pub(crate) async fn watch(of: &Recounter) -> anyhow::Result<Exit> {
    // Another watcher at work is as good as this one.
    of.claims.wait_for(CLAIM, of.rules.watch).await?;
    let work = try_join(Box::pin(queues(of)), Box::pin(audits(of)));
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
