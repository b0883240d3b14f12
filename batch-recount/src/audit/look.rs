//! A look at row keys by themselves: the rows of each counted by a query, between two readings of its counter's version.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::Outcome;
use tally_core::recount::{Finding, Scanned, compare, proved};

use super::Audit;
use crate::summary::{Cause, Drift, clamped};

/// Counters read by one request, and requests at once.
const COUNTERS: usize = 100;
const REQUESTS: usize = 4;

/// What is wrong with a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) cause: Cause,
    pub(super) counted: i64,
    pub(super) weight: i128,
}

impl Wrong {
    /// Compares what a row key's rows weigh with its counter.
    pub(super) fn with(key: &RowKey, weight: i128, counter: Option<&Counter>) -> Option<Self> {
        let tally = counter.and_then(|counter| counter.shards.get(&key.shard));
        let counted = tally.map_or(0, |tally| tally.rows);
        let cause = match compare(weight, counter, key.shard) {
            Finding::Agrees => return None,
            Finding::Differs { .. } if tally.is_none() => Cause::MissingCounter,
            Finding::Differs { weight: 0, .. } => Cause::NoRows,
            Finding::Differs { .. } => Cause::Drift,
            Finding::Negative => Cause::Negative,
            Finding::Suspect => Cause::Suspect,
        };
        Some(Self { cause, counted, weight })
    }

    pub(super) fn drift(self, key: &RowKey) -> Drift {
        Drift { key: key.to_string(), before: self.counted, after: clamped(self.weight), cause: self.cause }
    }
}

/// What a look came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looked {
    /// Rows and counter agreed, and nothing can have made them agree by luck.
    Proved,
    /// They differ, and nothing is on its way that could make up for it.
    Wrong(Wrong),
    /// The counter kept changing, or could not be read. It seems to be wrong by so many likes.
    Unproved(u64),
}

impl Audit {
    /// Looks at `keys`; what it came to, in their order. The wait in the midst of it is one for all.
    pub(super) async fn look(&self, keys: &[RowKey]) -> anyhow::Result<Vec<Looked>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let version =
            |counter: Outcome<Option<&Counter>>| counter.map_or(0, |counter| counter.map_or(0, |c| c.version));
        let before = self.with_counters(keys, |_, counter| version(counter)).await?;
        let weights: Vec<i128> = stream::iter(0..keys.len())
            .map(|at| self.weigh(&keys[at]).boxed())
            .buffered(self.tools.rules.concurrency)
            .try_collect()
            .await?;
        let ended = self.tools.moment();
        let as_of = self.views.past(ended).await?;
        let looked = |at: usize, counter: Outcome<Option<&Counter>>| {
            let Ok(counter) = counter else { return Looked::Unproved(0) };
            let scanned = Scanned { version_before: before[at], ended };
            let version = counter.map_or(0, |counter| counter.version);
            if !proved(&scanned, version, [as_of], self.tools.rules.guard) {
                let counted =
                    counter.and_then(|counter| counter.shards.get(&keys[at].shard)).map_or(0, |tally| tally.rows);
                return Looked::Unproved(u64::try_from(weights[at].abs_diff(counted.into())).unwrap_or(u64::MAX));
            }
            Wrong::with(&keys[at], weights[at], counter).map_or(Looked::Proved, Looked::Wrong)
        };
        self.with_counters(keys, looked).await
    }

    /// What `each` makes of every key's counter, given the key's place, in their order.
    pub(super) async fn with_counters<T>(
        &self,
        keys: &[RowKey],
        each: impl Fn(usize, Outcome<Option<&Counter>>) -> T,
    ) -> anyhow::Result<Vec<T>> {
        let mut made = Vec::with_capacity(keys.len());
        let mut batches = stream::iter((0..keys.len()).step_by(COUNTERS))
            .map(|first| self.counters_of(&keys[first..keys.len().min(first + COUNTERS)]).boxed())
            .buffered(REQUESTS);
        while let Some(counters) = batches.try_next().await? {
            for counter in counters {
                let counter = counter.as_ref().map(Option::as_ref).map_err(Clone::clone);
                made.push(each(made.len(), counter));
            }
        }
        Ok(made)
    }

    async fn counters_of(&self, keys: &[RowKey]) -> anyhow::Result<Vec<Outcome<Option<Counter>>>> {
        let ids: Vec<CounterId> = keys.iter().map(|key| key.counter.clone()).collect();
        self.tools.counters(&ids).await
    }

    async fn weigh(&self, key: &RowKey) -> anyhow::Result<i128> {
        let _turn = self.counts.acquire().await.expect("nobody closes the semaphore");
        Ok(self.tools.count(key).await?.weight)
    }
}
