//! Row keys that wait for a recount: posts that were asked for, and what streamer and API have flagged.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, PostId, RowKey};
use tally_core::ports::{QueueReason, Queued};
use tally_core::recount::{Finding, compare};

use crate::repair::{Repaired, repair};
use crate::summary::{Cause, Drift, Findings, clamped};
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
            .map(|queued| one(tools, queued, dry_run, findings).boxed())
            .buffer_unordered(tools.rules.concurrency)
            .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
            .await?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(left);
        }
    }
}

async fn one(tools: &Tools, queued: Queued, dry_run: bool, findings: &Findings) -> anyhow::Result<u64> {
    let Queued { key, reason, .. } = &queued;
    if dry_run {
        return compared(tools, key, findings).await;
    }
    // Whoever asked may have asked for what never was: a window would make a counter of it.
    let is_used = *reason != QueueReason::Asked || is_used(tools, key).await?;
    if is_used && repair(tools, key, (*reason).into(), findings).await? == Repaired::Left {
        return Ok(1);
    }
    let mut left = 0;
    if let Some(counter) = tools.counter(&key.counter).await? {
        left += mend(tools, &key.counter, &counter, dry_run, findings).await?;
    }
    tools.persist("take a row key off the queue", || tools.ports.recounts.dequeue(&queued)).await?;
    tools.spent.wrote(1);
    Ok(left)
}

/// Recounts `posts`, every row key of each, by windows; how many row keys are left unsettled.
pub(crate) async fn posts(tools: &Tools, posts: &[PostId], dry_run: bool, findings: &Findings) -> anyhow::Result<u64> {
    let mut keys = Vec::new();
    let ids: Vec<CounterId> = posts.iter().cloned().map(CounterId::likes).collect();
    for id in &ids {
        keys.extend(keys_of(tools, id).await?);
        findings.counters(1);
    }
    let mut left = stream::iter(keys)
        .map(|key| asked(tools, key, dry_run, findings).boxed())
        .buffer_unordered(tools.rules.concurrency)
        .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
        .await?;
    for id in &ids {
        if let Some(counter) = tools.counter(id).await? {
            left += mend(tools, id, &counter, dry_run, findings).await?;
        }
    }
    Ok(left)
}

/// Whether there is anything to count in `key`: it is in its counter, or has a row.
async fn is_used(tools: &Tools, key: &RowKey) -> anyhow::Result<bool> {
    let counters = tools.counters(std::slice::from_ref(&key.counter)).await?;
    // What cannot be read is there.
    let is_counted = |counter: &Option<Counter>| counter.as_ref().is_some_and(|c| c.shards.contains_key(&key.shard));
    if counters.iter().any(|counter| counter.as_ref().map_or(true, is_counted)) {
        return Ok(true);
    }
    let first = || tools.ports.rows.likes(key, None, Some(1));
    Ok(!tools.page("look for a row", first).await?.items.is_empty())
}

/// The row keys of `id` with anything to count.
async fn keys_of(tools: &Tools, id: &CounterId) -> anyhow::Result<Vec<RowKey>> {
    let mut keys = Vec::new();
    for shard in tools.shards.all() {
        let key = RowKey { counter: id.clone(), shard };
        if is_used(tools, &key).await? {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        tracing::warn!(counter = %id, "it counts nothing, and never did");
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
    let found = tools.count(key).await?;
    findings.scanned(found.rows);
    let counter = tools.counter(&key.counter).await?;
    if compare(found.weight, counter.as_ref(), key.shard) == Finding::Agrees {
        return Ok(0);
    }
    let before = counter.and_then(|counter| counter.shards.get(&key.shard).map(|tally| tally.rows)).unwrap_or(0);
    let after = clamped(found.weight);
    findings.differs(Drift { key: key.to_string(), before, after, cause: Cause::Drift });
    Ok(1)
}
