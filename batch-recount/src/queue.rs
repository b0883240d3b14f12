//! Row keys that wait for a recount: posts that were asked for, and what streamer and API have flagged.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::ids::{PostId, RowKey};
use tally_core::ports::QueueReason;
use tally_core::recount::{Finding, compare};

use crate::repair::{Repaired, repair};
use crate::summary::{Cause, Drift, Findings};
use crate::tools::Tools;
use crate::totals::mend;

/// Recounts everything that is queued now; how many row keys are left unsettled. A key leaves the queue once it is
/// proved.
pub(crate) async fn drain(tools: &Tools, dry_run: bool, findings: &Findings) -> anyhow::Result<u64> {
    let (mut left, mut cursor) = (0, None);
    loop {
        let queued = || tools.ports.recounts.queued(cursor.as_ref());
        let page = tools.page("read the queue", queued).await?;
        left += stream::iter(page.items)
            .map(|(key, reason)| one(tools, key, reason, dry_run, findings).boxed())
            .buffer_unordered(tools.rules.concurrency)
            .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
            .await?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(left);
        }
    }
}

async fn one(
    tools: &Tools,
    key: RowKey,
    reason: QueueReason,
    dry_run: bool,
    findings: &Findings,
) -> anyhow::Result<u64> {
    if dry_run {
        return Ok(1);
    }
    if repair(tools, &key, reason.into(), findings).await? == Repaired::Left {
        return Ok(1);
    }
    let mut left = 0;
    if let Some(counter) = tools.counter(&key.post).await? {
        left += mend(tools, &key.post, &counter, dry_run, findings).await?;
    }
    tools.persist("take a row key off the queue", || tools.ports.recounts.dequeue(&key)).await?;
    tools.spent.wrote(1);
    flagged_again(tools, &key).await?;
    Ok(left)
}

/// Queues `key` again where its counter says so: a flag raised after the verdict found the key still queued, and what
/// was taken off the queue was that flag's, too.
async fn flagged_again(tools: &Tools, key: &RowKey) -> anyhow::Result<()> {
    let counter = tools.counter(&key.post).await?;
    let reason = match compare(0, counter.as_ref(), key.shard) {
        Finding::Negative => QueueReason::Negative,
        Finding::Suspect => QueueReason::Suspect,
        Finding::Agrees | Finding::Differs { .. } => return Ok(()),
    };
    enqueue(tools, key, reason).await
}

/// Queues `key`. Safe to repeat.
pub(crate) async fn enqueue(tools: &Tools, key: &RowKey, reason: QueueReason) -> anyhow::Result<()> {
    let now = tools.clock.now();
    tools.persist("queue a row key", || tools.ports.recounts.enqueue(key, reason, now)).await?;
    tools.spent.wrote(1);
    Ok(())
}

/// Recounts `posts`, every row key of each, by windows; how many row keys are left unsettled.
pub(crate) async fn posts(tools: &Tools, posts: &[PostId], dry_run: bool, findings: &Findings) -> anyhow::Result<u64> {
    let mut keys = Vec::new();
    for post in posts {
        keys.extend(keys_of(tools, post).await?);
        findings.counters(1);
    }
    let mut left = stream::iter(keys)
        .map(|key| asked(tools, key, dry_run, findings).boxed())
        .buffer_unordered(tools.rules.concurrency)
        .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
        .await?;
    for post in posts {
        if let Some(counter) = tools.counter(post).await? {
            left += mend(tools, post, &counter, dry_run, findings).await?;
        }
    }
    Ok(left)
}

/// The row keys of `post` with anything to count: a window on a key that nobody ever used would make a counter of it.
async fn keys_of(tools: &Tools, post: &PostId) -> anyhow::Result<Vec<RowKey>> {
    let counter = tools.counter(post).await?;
    let mut keys = Vec::new();
    for shard in tools.shards.all() {
        let key = RowKey { post: post.clone(), shard };
        let is_counted = counter.as_ref().is_some_and(|counter| counter.shards.contains_key(&shard));
        let first = || tools.ports.rows.likes(&key, None, Some(1));
        if is_counted || !tools.page("look for a row", first).await?.items.is_empty() {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        tracing::warn!(%post, "nobody likes this post, and nobody ever did");
    }
    Ok(keys)
}

async fn asked(tools: &Tools, key: RowKey, dry_run: bool, findings: &Findings) -> anyhow::Result<u64> {
    if dry_run {
        return compared(tools, &key, findings).await;
    }
    let repaired = repair(tools, &key, Cause::Asked, findings).await?;
    Ok(u64::from(repaired == Repaired::Left))
}

/// What a dry run does instead of a window: rows and counter side by side, which proves nothing while both change.
async fn compared(tools: &Tools, key: &RowKey, findings: &Findings) -> anyhow::Result<u64> {
    let (mut rows, mut after) = (0, None);
    loop {
        let page = tools.page("read rows", || tools.ports.rows.users(key, after.as_ref())).await?;
        rows += page.items.len() as u64;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    findings.scanned(rows);
    let counter = tools.counter(&key.post).await?;
    if compare(rows, counter.as_ref(), key.shard) == Finding::Agrees {
        return Ok(0);
    }
    let before = counter.and_then(|counter| counter.shards.get(&key.shard).map(|tally| tally.rows)).unwrap_or(0);
    let after = i64::try_from(rows).unwrap_or(i64::MAX);
    findings.differs(Drift { key: key.to_string(), before, after, cause: Cause::Drift });
    Ok(1)
}
