//! Recounts as they become due: audits that gaps have queued, and beside them row keys that were flagged.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::try_join;
use tally_core::ports::Claimed;
use tally_service::Exit;

use crate::closing::Remainder;
use crate::config::Scope;
use crate::repair::with_heartbeat;
use crate::run::{Finished, Run};
use crate::summary::Findings;
use crate::tools::Tools;

/// How long before an audit is tried again that has left something nobody knows by name, and before a queue is that
/// kept something.
const AUDIT_AGAIN: Duration = Duration::from_secs(600);
const QUEUE_AGAIN: Duration = Duration::from_secs(60);

/// What keeps two watchers from running the same thing twice.
const CLAIM: &str = "watch";

/// Watches until asked to stop.
pub(crate) async fn watch(tools: &Tools) -> anyhow::Result<Exit> {
    // Another watcher at work is as good as this one.
    while tools.claim(CLAIM).await? != Claimed::Claimed {
        tools.wait(tools.rules.watch).await?;
    }
    let work = try_join(Box::pin(queues(tools)), Box::pin(audits(tools)));
    let worked = with_heartbeat(tools, CLAIM, work).await;
    tools.settle(CLAIM, false).await?;
    match worked? {}
}

/// Drains the queue whenever there is something in it.
async fn queues(tools: &Tools) -> anyhow::Result<Infallible> {
    loop {
        let left = is_queued(tools).await? && !once(tools, &Scope::Queue).await?.exit.is_clean();
        tools.wait(if left { QUEUE_AGAIN } else { tools.rules.watch }).await?;
    }
}

/// Runs an audit whenever there is something that only an audit closes. What one has left is in the queue: once it is
/// settled there, the audit is as good as one that left nothing.
async fn audits(tools: &Tools) -> anyhow::Result<Infallible> {
    let mut remainder: Option<Remainder> = None;
    loop {
        if let Some(settled) = take_settled(tools, &mut remainder).await? {
            settled.closing.close(tools, 0, &Findings::default()).await?;
        }
        let known = remainder.as_ref().map(|remainder| remainder.closing.clone()).unwrap_or_default();
        let mut wait = tools.rules.watch;
        if known.is_outdated(tools).await? {
            let Finished { exit, remainder: left } = once(tools, &Scope::Audit).await?;
            if !exit.is_clean() && left.is_none() {
                tracing::warn!(again = ?AUDIT_AGAIN, "the audit has left row keys unproved: gaps stay open");
                wait = AUDIT_AGAIN;
            }
            remainder = left;
        }
        tools.wait(wait).await?;
    }
}

async fn take_settled(tools: &Tools, remainder: &mut Option<Remainder>) -> anyhow::Result<Option<Remainder>> {
    Ok(match remainder {
        Some(waiting) if waiting.is_settled(tools).await? => remainder.take(),
        _ => None,
    })
}

async fn is_queued(tools: &Tools) -> anyhow::Result<bool> {
    let page = tools.page("read the queue", || tools.ports.recounts.queued(None)).await?;
    Ok(!page.items.is_empty())
}

async fn once(tools: &Tools, scope: &Scope) -> anyhow::Result<Finished> {
    Run::begin(tools, scope, false, true).await?.finish().await
}
