//! Row keys by name: those of posts that were named, and those that wait in the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::Queued;
use tally_core::audit::QueueReason;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, Shard};
use tally_core::ports::Outcome;

use super::look::WRITES;
use super::rounds::Open;
use super::{Ended, Recount};
use crate::counters::{chosen, defined, row_keys};

/// Row keys of the queue that are settled together: so few that all of them are remembered if they are left.
const QUEUED: usize = 4_096;
/// How long before a row key of the queue is looked at again that was left.
const LEFT_AGAIN: Duration = Duration::from_secs(60);

/// Row keys that were left in the queue and wait there for a while, unless they are asked for again.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeMap<RowKey, (u64, Duration)>);

impl Waiting {
    /// Whether this is to be settled now.
    fn is_due(&self, queued: &Queued, now: Duration) -> bool {
        self.0.get(&queued.key).is_none_or(|(asked, until)| *asked != queued.asked || *until <= now)
    }
}

impl Recount {
    /// Settles the counters `names` of `posts`, all of their counters where none is named.
    ///
    /// # Errors
    /// A counter that there is none of, and as [`keys`](Self::keys).
    pub(crate) async fn posts(&self, posts: &[PostId], names: &[String]) -> anyhow::Result<Ended> {
        let chosen = chosen(&defined(&self.calls, &self.ports.deployment).await?, names)?;
        self.findings.counters((posts.len() * chosen.len()) as u64);
        let keys = self.used(row_keys(posts, &chosen, self.shards)).await?;
        let met: BTreeSet<&PostId> = keys.iter().map(|key| &key.counter.post).collect();
        for post in posts.iter().filter(|post| !met.contains(post)) {
            tracing::warn!(%post, "this post has none of these counters and never had one");
        }
        self.keys(keys).await
    }

    /// Whether anything is queued that does not wait.
    pub(crate) async fn is_queued(&self, waiting: &Waiting) -> anyhow::Result<bool> {
        let (now, mut after) = (self.calls.clock().reading().at, None);
        loop {
            let page = self.calls.page("read the queue", || self.ports.recounts.queued(after.as_ref())).await?;
            if page.items.iter().any(|queued| waiting.is_due(queued, now)) {
                return Ok(true);
            }
            after = page.next;
            if after.is_none() {
                return Ok(false);
            }
        }
    }

    /// Settles what is queued now and does not wait. A row key leaves the queue once a look has found it equal; those that had
    /// to be corrected are to be looked at once more.
    pub(crate) async fn queue(&self, waiting: &mut Waiting) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut ended, mut corrected, mut after) = (Ended::default(), Vec::new(), None);
        loop {
            let page = self.calls.page("read the queue", || self.ports.recounts.queued(after.as_ref())).await?;
            let now = self.calls.clock().reading().at;
            let due: Vec<Queued> = page.items.into_iter().filter(|queued| waiting.is_due(queued, now)).collect();
            for queued in due.chunks(QUEUED) {
                let keys = queued.iter().map(|queued| queued.key.clone()).collect();
                let (these, again) = self.settle(self.used(keys).await?, None).await?;
                ended.add(these);
                corrected.extend(again);
                self.take_off(queued, waiting).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok((ended, corrected));
            }
        }
    }

    /// Queues row keys, so that a watching process looks at them again. Safe to repeat: a key is queued once.
    pub(crate) async fn enqueue(&self, keys: Vec<RowKey>) -> anyhow::Result<()> {
        if self.rules.dry_run {
            return Ok(());
        }
        let enqueue = |key| {
            async move {
                let now = self.calls.now();
                let enqueue = || self.ports.recounts.enqueue(&key, QueueReason::Drift, now);
                self.calls.persist("queue a row key", enqueue).await?;
                self.calls.wrote(1);
                anyhow::Ok(())
            }
            .boxed()
        };
        stream::iter(keys).map(enqueue).buffer_unordered(WRITES).try_collect().await
    }

    /// Takes what is settled off the queue. Safe to repeat: what was asked for again stays.
    async fn take_off(&self, queued: &[Queued], waiting: &mut Waiting) -> anyhow::Result<()> {
        let left: BTreeSet<RowKey> = self.left().into_iter().collect();
        let until = self.calls.clock().reading().at + LEFT_AGAIN;
        let (left, settled): (Vec<_>, Vec<_>) = queued.iter().partition(|queued| left.contains(&queued.key));
        waiting.0.extend(left.into_iter().map(|queued| (queued.key.clone(), (queued.asked, until))));
        for queued in &settled {
            waiting.0.remove(&queued.key);
        }
        if self.rules.dry_run {
            return Ok(());
        }
        let dequeue = |queued: &Queued| {
            let queued = queued.clone();
            async move {
                let dequeue = || self.ports.recounts.dequeue(&queued);
                self.calls.persist("take a row key off the queue", dequeue).await?;
                self.calls.wrote(1);
                anyhow::Ok(())
            }
            .boxed()
        };
        stream::iter(settled).map(dequeue).buffer_unordered(WRITES).try_collect().await
    }

    /// Those of `keys` with anything to count: in their counters, or a row. A look at others would put markers where nothing
    /// is.
    async fn used(&self, keys: Vec<RowKey>) -> anyhow::Result<Vec<RowKey>> {
        let ids: BTreeSet<&CounterId> = keys.iter().map(|key| &key.counter).collect();
        let ids: Vec<CounterId> = ids.into_iter().cloned().collect();
        self.calls.allowed().await?;
        let read = || self.ports.counters.read(&ids, Consistency::Strong);
        let counters = self.calls.persist("read counters", read).await?.counters;
        self.calls.read_items(ids.len());
        let is_counted = |key: &RowKey| counters.get(&key.counter).is_some_and(|counter| has(counter, key.shard));
        let (mut used, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_counted);
        let with_rows = stream::iter(others)
            .map(|key| async move { anyhow::Ok(self.has_a_row(&key).await?.then_some(key)) }.boxed())
            .buffer_unordered(WRITES);
        used.extend(with_rows.try_collect::<Vec<_>>().await?.into_iter().flatten());
        Ok(used)
    }

    async fn has_a_row(&self, key: &RowKey) -> anyhow::Result<bool> {
        let rows = &self.ports.rows;
        // A page of a sum's cells is a request, as one like is.
        if key.counter.name.kind() == CounterKind::Sum {
            return Ok(!self.calls.page("look for a cell", || rows.weights(key, None)).await?.items.is_empty());
        }
        let mut after = None;
        loop {
            let page = self.calls.page("look for a row", || rows.likes(key, after.as_ref(), Some(1))).await?;
            after = page.next;
            // Tombstones alone count for nothing.
            if !page.items.is_empty() || after.is_none() {
                return Ok(!page.items.is_empty());
            }
        }
    }
}

/// Whether a counter has something of a shard, or cannot be read. One without any shard is looked at by its first.
fn has(counter: &Outcome<Counter>, shard: Shard) -> bool {
    let Ok(counter) = counter else { return true };
    let is_bare = counter.parts.is_empty() && !counter.adds_up() && shard == Shard::FIRST;
    is_bare || counter.parts.contains_key(&shard) || counter.doubt.contains(&shard)
}
