//! Row keys that wait for a recount: posts that were asked for, and what change-streamer and API have flagged.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::audit::{Cause, Drift, Wrong};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey};
use tally_core::ports::{QueueReason, Queued};
use tally_core::window::{Proof, Repaired};

use crate::counters::{chosen, defined};
use crate::findings::Findings;
use crate::progress::Progress;
use crate::recounter::Recounter;
use crate::store::Store;

/// Recounts of row keys by name.
pub(crate) struct ByName<'a> {
    pub(crate) of: &'a Recounter,
    pub(crate) dry_run: bool,
    pub(crate) findings: &'a Findings,
    pub(crate) progress: &'a Progress,
}

impl ByName<'_> {
    /// Recounts everything that is queued now; how many row keys are left unsettled. A key leaves the queue once it is
    /// proved.
    pub(crate) async fn queue(&self) -> anyhow::Result<u64> {
        let (store, mut left, mut cursor) = (&self.of.store, 0, None);
        loop {
            let queued = || store.ports.recounts.queued(cursor.as_ref());
            let page = store.page("read the queue", queued).await?;
            self.progress.asked(page.items.len());
            left += stream::iter(page.items)
                .map(|queued| self.settled(self.queued(queued)).boxed())
                .buffer_unordered(self.of.rules.concurrency)
                .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
                .await?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(left);
            }
        }
    }

    /// Recounts the counters `names` of `posts`, all counters where none is named, every row key of each, by windows; how
    /// many row keys are left unsettled.
    pub(crate) async fn posts(&self, posts: &[PostId], names: &[String]) -> anyhow::Result<u64> {
        let store = &self.of.store;
        let chosen = chosen(&defined(store).await?, names)?;
        let (mut counters, mut keys) = (Vec::new(), Vec::new());
        for post in posts {
            let before = keys.len();
            for of in &chosen {
                let counter = CounterId { post: post.clone(), name: of.name.clone() };
                keys.extend(keys_of(store, &counter).await?);
                counters.push(counter);
            }
            if keys.len() == before {
                tracing::warn!(%post, "this post has none of these counters and never had one");
            }
        }
        self.findings.counters(counters.len() as u64);
        self.progress.asked(keys.len());
        let mut left = stream::iter(keys)
            .map(|key| self.settled(self.asked(key)).boxed())
            .buffer_unordered(self.of.rules.concurrency)
            .try_fold(0, |sum, left| std::future::ready(Ok(sum + left)))
            .await?;
        for counter in &counters {
            left += self.total(counter).await?;
        }
        Ok(left)
    }

    /// What `recount` of one row key comes to, once it is over.
    async fn settled(&self, recount: impl Future<Output = anyhow::Result<u64>>) -> anyhow::Result<u64> {
        let left = recount.await?;
        self.progress.settled();
        Ok(left)
    }

    async fn queued(&self, queued: Queued) -> anyhow::Result<u64> {
        let Queued { key, reason, .. } = &queued;
        if self.dry_run {
            return self.compared(key).await;
        }
        // A person may ask for what never was: a window would make a counter of it.
        let is_used = *reason != QueueReason::Asked || is_used(&self.of.store, key).await?;
        if is_used && self.repair(key, (*reason).into()).await? == Repaired::Left {
            return Ok(1);
        }
        let left = self.total(&key.counter).await?;
        let dequeue = || self.of.store.ports.recounts.dequeue(&queued);
        self.of.store.persist("take a row key off the queue", dequeue).await?;
        self.of.store.wrote(1);
        Ok(left)
    }

    async fn asked(&self, key: RowKey) -> anyhow::Result<u64> {
        if self.dry_run {
            return self.compared(&key).await;
        }
        Ok(u64::from(self.repair(&key, Cause::Asked).await? == Repaired::Left))
    }

    async fn repair(&self, key: &RowKey, why: Cause) -> anyhow::Result<Repaired> {
        self.of.windows.repair(key, why, Proof::Attempt, self.findings).await
    }

    async fn total(&self, id: &CounterId) -> anyhow::Result<u64> {
        let counter = self.of.store.counter(id).await?;
        self.of.windows.mend_total(id, counter, self.dry_run, self.findings).await
    }

    /// What a dry run does instead of a window: rows and counter side by side, which proves nothing while both change.
    async fn compared(&self, key: &RowKey) -> anyhow::Result<u64> {
        let (rows, weight) = self.of.store.weigh(key).await?;
        self.findings.scanned(rows);
        let counter = self.of.store.counter(&key.counter).await?;
        let Some(wrong) = Wrong::with(key, weight, counter.as_ref()) else { return Ok(0) };
        self.findings.differs(Drift { cause: Cause::Drift, ..wrong.drift(key) });
        Ok(1)
    }
}

/// Whether there is anything to count in `key`: it is in its counter, or has a row.
async fn is_used(store: &Store, key: &RowKey) -> anyhow::Result<bool> {
    let counters = store.counters(std::slice::from_ref(&key.counter)).await?;
    // What cannot be read is there.
    let is_counted = |counter: &Option<Counter>| counter.as_ref().is_some_and(|c| c.shards.contains_key(&key.shard));
    if counters.iter().any(|counter| counter.as_ref().map_or(true, is_counted)) {
        return Ok(true);
    }
    // A page of a sum's cells is a request, as one like is.
    if key.counter.name.kind() == CounterKind::Sum {
        let cells = || store.ports.rows.weights(key, None);
        return Ok(!store.page("look for a cell", cells).await?.items.is_empty());
    }
    let first = || store.ports.rows.likes(key, None, Some(1));
    Ok(!store.page("look for a row", first).await?.items.is_empty())
}

/// The row keys of `counter` with anything to count.
async fn keys_of(store: &Store, counter: &CounterId) -> anyhow::Result<Vec<RowKey>> {
    let mut keys = Vec::new();
    for key in store.row_keys(counter).await? {
        if is_used(store, &key).await? {
            keys.push(key);
        }
    }
    Ok(keys)
}
