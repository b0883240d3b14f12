//! Recounts as they become due: audits that gaps have queued, and row keys that were flagged.

use std::time::Duration;

use tally_core::ports::Claimed;
use tally_service::Exit;
use tokio::time::Instant;

use crate::config::Scope;
use crate::run::Run;
use crate::tools::Tools;

/// How long before an audit is tried again that could not prove everything, and before a queue is that kept something.
const AUDIT_AGAIN: Duration = Duration::from_secs(600);
const QUEUE_AGAIN: Duration = Duration::from_secs(60);

/// What keeps two watchers from running the same thing twice.
const CLAIM: &str = "watch";

/// When either may be tried again.
struct NotBefore {
    audit: Instant,
    queue: Instant,
}

/// Watches until asked to stop.
pub(crate) async fn watch(tools: &Tools) -> anyhow::Result<Exit> {
    let mut not_before = NotBefore { audit: Instant::now(), queue: Instant::now() };
    loop {
        // Another watcher at work is as good as this one.
        if tools.claim(CLAIM).await? == Claimed::Claimed {
            let work = crate::repair::with_heartbeat(tools, CLAIM, Box::pin(due(tools, &mut not_before)));
            let worked = work.await;
            tools.settle(CLAIM, false).await?;
            worked?;
        }
        tools.wait(tools.rules.watch).await?;
    }
}

/// Does what is due now.
async fn due(tools: &Tools, not_before: &mut NotBefore) -> anyhow::Result<()> {
    if Instant::now() >= not_before.queue && is_queued(tools).await? && !once(tools, &Scope::Queue).await?.is_clean() {
        not_before.queue = Instant::now() + QUEUE_AGAIN;
    }
    if Instant::now() >= not_before.audit && is_audit_due(tools).await? && !once(tools, &Scope::Audit).await?.is_clean()
    {
        tracing::warn!(again = ?AUDIT_AGAIN, "the audit has left row keys unproved: gaps stay open");
        not_before.audit = Instant::now() + AUDIT_AGAIN;
    }
    Ok(())
}

async fn is_queued(tools: &Tools) -> anyhow::Result<bool> {
    let page = tools.page("read the queue", || tools.ports.recounts.queued(None)).await?;
    Ok(!page.items.is_empty())
}

async fn is_audit_due(tools: &Tools) -> anyhow::Result<bool> {
    let asked = tools.persist("read the queued audit", || tools.ports.recounts.audit_queued()).await?;
    let gaps = tools.persist("read gaps", || tools.ports.checkpoints.gaps()).await?;
    tools.read_items(2);
    Ok(asked.is_some() || !gaps.is_empty())
}

async fn once(tools: &Tools, scope: &Scope) -> anyhow::Result<Exit> {
    let run = Run::begin(tools, scope, false, true).await?;
    Ok(run.finish().await?.0)
}
