//! The tables as a recount uses them: reads keep to a budget, and all that is spent is counted.

use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tally_core::Set;
use tally_core::audit::Cost;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::homes::CounterMap;
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_core::ports::{Outcome, Page, QueueReason};
use tally_core::time::UnixMillis;

use crate::app::Ports;
use crate::budget::Budget;
use crate::calls::Calls;
use crate::cost::{ITEM, Spent};

/// Counters read by one request, and requests at once.
const COUNTERS: usize = 100;
const REQUESTS: usize = 4;

/// The tables. Clones are the same.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) ports: Ports,
    pub(crate) shards: ShardCount,
    pub(crate) calls: Calls,
    budget: Arc<Budget>,
    spent: Arc<Spent>,
}

impl Store {
    /// The tables behind `ports`, of a deployment of so many shards, read inside `budget`.
    pub(crate) fn new(ports: Ports, shards: ShardCount, calls: Calls, budget: Arc<Budget>) -> Self {
        Self { ports, shards, calls, budget, spent: Arc::default() }
    }

    /// The wall time.
    pub(crate) fn now(&self) -> UnixMillis {
        self.calls.clock().now()
    }

    /// What was spent so far.
    pub(crate) fn cost(&self) -> Cost {
        self.spent.so_far()
    }

    /// Takes note of so many write units.
    pub(crate) fn wrote(&self, units: u64) {
        self.spent.wrote(units);
    }

    /// Takes note of a read outside the budget.
    pub(crate) fn paid(&self, half_units: u64) {
        self.spent.read(half_units);
    }

    /// Takes note of `items` read one by one.
    pub(crate) fn read_items(&self, items: usize) {
        let half_units = ITEM * items as u64;
        self.budget.spend(half_units);
        self.spent.read(half_units);
    }

    /// What `call` answers once it does ([`Calls::persist`]).
    pub(crate) async fn persist<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        self.calls.persist(what, call).await
    }

    /// One page of a long answer, inside the budget.
    pub(crate) async fn page<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<Page<T>>
    where
        Fut: Future<Output = Outcome<Page<T>>>,
    {
        self.calls.unless_stopped(self.budget.ready()).await?;
        let page = self.persist(what, call).await?;
        self.budget.spend(page.half_units);
        self.spent.read(page.half_units);
        Ok(page)
    }

    /// One counter.
    pub(crate) async fn counter(&self, id: &CounterId) -> anyhow::Result<Option<Counter>> {
        self.calls.unless_stopped(self.budget.ready()).await?;
        let counter = self.persist("read a counter", || self.ports.counts.counter(id)).await?;
        self.read_items(1);
        Ok(counter)
    }

    /// Some counters, in the order asked; one that cannot be read is a fault of its own.
    pub(crate) async fn counters(&self, ids: &[CounterId]) -> anyhow::Result<Vec<Outcome<Option<Counter>>>> {
        self.calls.unless_stopped(self.budget.ready()).await?;
        let counters = self.persist("read counters", || self.ports.counts.counters(ids)).await?;
        self.read_items(ids.iter().collect::<Set<_>>().len());
        Ok(counters)
    }

    /// Any number of counters, in the order asked, a few requests at a time.
    pub(crate) fn each_counter(&self, ids: &[CounterId]) -> BoxStream<'_, anyhow::Result<Outcome<Option<Counter>>>> {
        let requests: Vec<Vec<CounterId>> = ids.chunks(COUNTERS).map(<[_]>::to_vec).collect();
        let answers = stream::iter(requests).map(move |ids| async move { self.counters(&ids).await }.boxed());
        answers.buffered(REQUESTS).map_ok(|counters| stream::iter(counters).map(Ok)).try_flatten().fuse().boxed()
    }

    /// The maps of distinct `counters`, in the order asked.
    pub(crate) async fn maps(&self, counters: &[CounterId]) -> anyhow::Result<Vec<Option<CounterMap>>> {
        self.calls.unless_stopped(self.budget.ready()).await?;
        let maps = self.persist("read maps", || self.ports.maps.maps(counters)).await?;
        self.read_items(counters.len());
        Ok(maps)
    }

    /// Every row key that `counter` may have rows in.
    pub(crate) async fn row_keys(&self, counter: &CounterId) -> anyhow::Result<Vec<RowKey>> {
        let map = self.maps(std::slice::from_ref(counter)).await?.into_iter().next().flatten();
        Ok(map.unwrap_or_else(|| CounterMap::absent(self.shards)).row_keys(counter).collect())
    }

    /// How many rows `key` has, and what they weigh as far as that is readable.
    pub(crate) async fn weigh(&self, key: &RowKey) -> anyhow::Result<(u64, i128)> {
        let (mut rows, mut weight, mut after) = (0, 0, None);
        loop {
            let page = self.page("read rows", || self.ports.rows.weights(key, after.as_ref())).await?;
            rows += page.items.len() as u64;
            weight += page.items.iter().filter_map(|(_, weight)| Some(i128::from((*weight)?.get()))).sum::<i128>();
            after = page.next;
            if after.is_none() {
                return Ok((rows, weight));
            }
        }
    }

    /// Makes every answer about `key` say that it may be wrong, and queues it for the next recount. Safe to repeat, as
    /// both writes are.
    pub(crate) async fn disown(&self, key: &RowKey) -> anyhow::Result<()> {
        let now = self.now();
        // A counter that cannot be read takes no mark either, and no answer is made of it.
        let mark = || async { unless_poison(self.ports.counts.suspect(key, now).await) };
        self.persist("mark a count as doubtful", mark).await?;
        let enqueue = || self.ports.recounts.enqueue(key, QueueReason::Drift, now);
        self.persist("queue a row key", enqueue).await?;
        self.wrote(2);
        Ok(())
    }
}

fn unless_poison(outcome: Outcome<()>) -> Outcome<()> {
    match outcome {
        Err(Fault::Poison(reason)) => {
            tracing::error!(reason, "the store refuses to mark a count as doubtful");
            Ok(())
        }
        outcome => outcome,
    }
}
