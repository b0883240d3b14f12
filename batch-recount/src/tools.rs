//! What every part of a recount works with: the ports, time, the read budget, and how calls are tried again.

use std::future::Future;
use std::sync::Arc;

use anyhow::anyhow;
use tally_core::backoff::Backoff;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{PostId, ShardCount};
use tally_core::lineage::Lineage;
use tally_core::ports::{Claimed, Outcome, Page, StreamFault, Worker};
use tally_core::recount::RunId;
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Stop};

use crate::app::Ports;
use crate::budget::Budget;
use crate::config::Rules;
use crate::cost::{ITEM, Spent};

/// Shared by everything that one process recounts. Clones are the same.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) ports: Ports,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    /// This process, on claims and on the ledger.
    pub(crate) me: Worker,
    pub(crate) rules: Rules,
    pub(crate) shards: ShardCount,
    pub(crate) budget: Arc<Budget>,
    pub(crate) spent: Arc<Spent>,
    pub(crate) stop: Stop,
}

impl Tools {
    /// A name no other attempt has.
    pub(crate) fn draw_run(&self) -> RunId {
        RunId::from(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
    }

    /// What `call` answers once it does, asked again for as long as its fault is worth it. Only for calls that are safe
    /// to repeat.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming `what`; [`Stopped`](tally_service::Stopped) on request.
    pub(crate) async fn persist<T, Fut>(&self, what: &str, mut call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        let mut tries = 0;
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.is_retryable() => self.pause(what, &fault, &mut tries).await?,
                Err(fault) => return Err(anyhow!(fault).context(format!("cannot {what}"))),
            }
        }
    }

    /// Waits before the next try.
    pub(crate) async fn pause(&self, what: &str, fault: &Fault, tries: &mut u32) -> anyhow::Result<()> {
        crate::metrics::faulted(fault);
        tracing::debug!(what, error = %fault, tries, "trying again");
        if matches!(fault, Fault::Throttled(_)) {
            self.budget.throttled();
        }
        let wait = Backoff::STORE.wait(*tries, self.chance.fraction());
        *tries = tries.saturating_add(1);
        Ok(self.stop.unless_requested(self.clock.sleep(wait)).await?)
    }

    /// One page of a long answer, inside the budget.
    pub(crate) async fn page<T, Fut>(&self, what: &str, mut call: impl FnMut() -> Fut) -> anyhow::Result<Page<T>>
    where
        Fut: Future<Output = Outcome<Page<T>>>,
    {
        self.stop.unless_requested(self.budget.ready()).await?;
        let page = self.persist(what, &mut call).await?;
        self.budget.spend(page.half_units);
        self.spent.read(page.half_units);
        Ok(page)
    }

    /// One counter.
    pub(crate) async fn counter(&self, post: &PostId) -> anyhow::Result<Option<Counter>> {
        self.stop.unless_requested(self.budget.ready()).await?;
        let counter = self.persist("read a counter", || self.ports.counts.counter(post)).await?;
        self.read_items(1);
        Ok(counter)
    }

    /// Several counters, in the order asked.
    pub(crate) async fn counters(&self, posts: &[PostId]) -> anyhow::Result<Vec<Option<Counter>>> {
        self.stop.unless_requested(self.budget.ready()).await?;
        let counters = self.persist("read counters", || self.ports.counts.counters(posts)).await?;
        self.read_items(posts.len());
        Ok(counters)
    }

    /// Takes note of `items` read one by one.
    pub(crate) fn read_items(&self, items: usize) {
        let half_units = ITEM * items as u64;
        self.budget.spend(half_units);
        self.spent.read(half_units);
    }

    /// What the stream and its checkpoints say now. The checkpoints are read first: where they say that a shard is
    /// closed, a listing read later has its children.
    pub(crate) async fn lineage(&self) -> anyhow::Result<Lineage> {
        let Ports { stream, checkpoints, .. } = &self.ports;
        let info = self.persist("look at the stream", || async { stream.info().await.map_err(fault) }).await?;
        let label = &info.label;
        let states = self.persist("read checkpoints", || checkpoints.shards(label)).await?;
        let registry = self.persist("read the registry", || checkpoints.registry(label)).await?;
        let listing = || async { stream.shards(label).await.map_err(fault) };
        let listing = self.persist("list stream shards", listing).await?;
        let floor = registry.and_then(|registry| registry.floor);
        Ok(Lineage::new(states.into_iter().map(|state| state.checkpoint), listing, floor))
    }

    /// Claims `what`, or renews our claim of it. A courtesy: a claim that cannot be had is no reason to stop.
    pub(crate) async fn claim(&self, what: &str) -> anyhow::Result<Claimed> {
        let now = self.clock.now();
        let stale = now.minus(self.rules.claim);
        let claim = || self.ports.recounts.claim(what, &self.me, now, stale);
        let claimed = self.persist("claim work", claim).await?;
        self.spent.wrote(1);
        Ok(claimed)
    }

    /// Gives `what` back, or says that it is done.
    pub(crate) async fn settle(&self, what: &str, done: bool) -> anyhow::Result<()> {
        self.persist("give a claim back", || self.ports.recounts.settle(what, &self.me, done)).await?;
        self.spent.wrote(1);
        Ok(())
    }

    /// Waits for `span`, unless asked to stop.
    pub(crate) async fn wait(&self, span: std::time::Duration) -> anyhow::Result<()> {
        Ok(self.stop.unless_requested(self.clock.sleep(span)).await?)
    }

    /// Whether everything written before `time` was seen by the stream's readers, and nothing can still be on its way.
    pub(crate) fn has_passed(&self, lineage: &Lineage, time: UnixMillis) -> bool {
        lineage.as_of().is_some_and(|as_of| as_of > time.plus(self.rules.guard))
    }
}

/// A stream fault as any other: losses are the streamer's business.
fn fault(fault: StreamFault) -> Fault {
    match fault {
        StreamFault::Fault(fault) => fault,
        other => Fault::Transient(other.to_string()),
    }
}
