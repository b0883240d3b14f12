//! Recounts some counters alone: those of named posts, and those that wait in the queue. It works on *row keys*, each
//! the partition key of the rows of one shard of a counter.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, TryStreamExt};
use tally_adapters::dynamodb::{Cursor, Queued};
use tally_core::audit::QueueReason;
use tally_core::definitions::{Definition, Definitions};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount};

use super::look::WRITES;
use super::pass::keys_of;
use super::rounds::Open;
use super::{Ended, Recount};
use crate::calls::at_once;

/// How many queued row keys are settled together: so few that all of them are remembered if they are left.
const QUEUED: usize = 4_096;
/// How long a queued row key that was left waits before it is looked at again.
const LEFT_AGAIN: Duration = Duration::from_secs(60);

/// Row keys that were left in the queue, and until when each waits there, unless it is asked for again.
#[derive(Debug, Default)]
pub(crate) struct Waiting(BTreeMap<RowKey, (u64, Duration)>);

impl Waiting {
    /// Returns whether a queued row key is to be settled now.
    fn is_due(&self, queued: &Queued, now: Duration) -> bool {
        self.0.get(&queued.key).is_none_or(|(asked, until)| *asked != queued.asked || *until <= now)
    }
}

impl Recount {
    /// Settles the counters `names` of `posts`, or all of their counters if none is named.
    ///
    /// # Errors
    /// A name that no counter has, and as [`keys`](Self::keys).
    pub(crate) async fn posts(&self, posts: &[PostId], names: &[String]) -> anyhow::Result<Ended> {
        let defined = self.calls.read("read the counters", 1, || self.ports.deployment.definitions()).await?;
        let chosen = chosen(&defined, names)?;
        self.findings.so_far().counters += (posts.len() * chosen.len()) as u64;
        let keys = self.used(row_keys(posts, &chosen, self.shards)).await?;
        let met: BTreeSet<&PostId> = keys.iter().map(|key| &key.counter.post).collect();
        for post in posts.iter().filter(|post| !met.contains(post)) {
            tracing::warn!(%post, "this post has none of these counters and never had one");
        }
        self.keys(keys).await
    }

    /// Returns what is queued now, page by page.
    fn queued(&self) -> BoxStream<'_, anyhow::Result<Vec<Queued>>> {
        let page = move |after: Option<Cursor>| async move { self.ports.recounts.queued(after.as_ref()).await };
        self.calls.pages("read the queue", page)
    }

    /// Returns whether anything is queued that does not wait.
    pub(crate) async fn is_queued(&self, waiting: &Waiting) -> anyhow::Result<bool> {
        let (mut pages, now) = (self.queued(), self.calls.after(Duration::ZERO));
        while let Some(page) = pages.try_next().await? {
            if page.iter().any(|queued| waiting.is_due(queued, now)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Settles what is queued now and does not wait. A row key leaves the queue once a look has found it equal. Returns
    /// those that had to be corrected, which are to be looked at once more.
    pub(crate) async fn queue(&self, waiting: &mut Waiting) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut ended, mut corrected, mut pages) = (Ended::default(), Vec::new(), self.queued());
        while let Some(page) = pages.try_next().await? {
            let now = self.calls.after(Duration::ZERO);
            let due: Vec<Queued> = page.into_iter().filter(|queued| waiting.is_due(queued, now)).collect();
            for queued in due.chunks(QUEUED) {
                let keys = queued.iter().map(|queued| queued.key.clone()).collect();
                let (these, again) = self.settle(self.used(keys).await?, None).await?;
                ended.add(these);
                corrected.extend(again);
                self.take_off(queued, waiting).await?;
            }
        }
        Ok((ended, corrected))
    }

    /// Queues row keys, so that a watching process looks at them again. Safe to repeat: a key is queued once.
    pub(crate) async fn enqueue(&self, keys: Vec<RowKey>) -> anyhow::Result<()> {
        if self.rules.dry_run {
            return Ok(());
        }
        let enqueue = |key| async move {
            let now = self.calls.now();
            let enqueue = || self.ports.recounts.enqueue(&key, QueueReason::Drift, now);
            self.calls.write("queue a row key", 1, enqueue).await
        };
        at_once(WRITES, keys.into_iter().map(|key| enqueue(key).boxed())).await.map(|_| ())
    }

    /// Takes settled row keys off the queue; those that were left wait. Safe to repeat: what was asked for again stays.
    async fn take_off(&self, queued: &[Queued], waiting: &mut Waiting) -> anyhow::Result<()> {
        let left: BTreeSet<RowKey> = self.left().into_iter().collect();
        let until = self.calls.after(LEFT_AGAIN);
        let (left, settled): (Vec<_>, Vec<_>) = queued.iter().partition(|queued| left.contains(&queued.key));
        waiting.0.extend(left.into_iter().map(|queued| (queued.key.clone(), (queued.asked, until))));
        for queued in &settled {
            waiting.0.remove(&queued.key);
        }
        if self.rules.dry_run {
            return Ok(());
        }
        let dequeue = |queued| async move {
            self.calls.write("take a row key off the queue", 1, || self.ports.recounts.dequeue(queued)).await
        };
        at_once(WRITES, settled.into_iter().map(|queued| dequeue(queued).boxed())).await.map(|_| ())
    }

    /// Returns those of `keys` that have anything to count: a part of their counter, or a row. A look at others would
    /// put markers where nothing is.
    async fn used(&self, keys: Vec<RowKey>) -> anyhow::Result<Vec<RowKey>> {
        let counters = self.counters(keys.iter()).await?;
        let is_counted = |key: &RowKey| match counters.get(&key.counter) {
            Some(Ok(counter)) => keys_of(&key.counter, counter).any(|counted| counted == *key),
            Some(Err(_)) => true,
            None => false,
        };
        let (mut used, others): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_counted);
        let with_rows = |key: RowKey| async move { anyhow::Ok(self.has_a_row(&key).await?.then_some(key)) };
        used.extend(at_once(WRITES, others.into_iter().map(|key| with_rows(key).boxed())).await?.into_iter().flatten());
        Ok(used)
    }

    async fn has_a_row(&self, key: &RowKey) -> anyhow::Result<bool> {
        let page = |after: Option<Cursor>| async move { self.ports.rows.weights(key, after.as_ref()).await };
        // Tombstones alone count for nothing.
        let mut pages = self.calls.pages("look for a row", page).try_filter(|page| ready(!page.is_empty()));
        Ok(pages.try_next().await?.is_some())
    }
}

/// Returns every row key of the counters `named` of `posts`, each once.
pub(crate) fn row_keys(posts: &[PostId], named: &[Definition], shards: ShardCount) -> Vec<RowKey> {
    let counters = posts.iter().flat_map(|post| named.iter().map(|of| (post.clone(), of.name.clone())));
    let counters: BTreeSet<CounterId> = counters.map(|(post, name)| CounterId { post, name }).collect();
    counters.iter().flat_map(|counter| RowKey::all(counter, shards)).collect()
}

/// Returns the counters of these `names`, or all if none is named.
///
/// # Errors
/// A name that no counter has.
pub fn chosen(defined: &Definitions, names: &[String]) -> anyhow::Result<Vec<Definition>> {
    if names.is_empty() {
        return Ok(defined.iter().cloned().collect());
    }
    names
        .iter()
        .map(|name| defined.named(name).cloned().with_context(|| format!("there is no counter {name}")))
        .collect()
}
