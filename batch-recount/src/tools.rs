//! What every part of a recount works with: the ports, time, the read budget, and how calls are tried again.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use tally_core::Set;
use tally_core::backoff::Backoff;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_core::lineage::Lineage;
use tally_core::ports::{Claimed, Outcome, Page, QueueReason, StreamFault, Worker};
use tally_core::recount::{RowKeyCount, WindowRun};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Stop};
use tokio::time::Instant;

use crate::app::Ports;
use crate::budget::Budget;
use crate::config::Rules;
use crate::cost::{ITEM, Spent};
use crate::room::Room;
use crate::skew::Skew;

/// Between two closing markers of one process.
const BETWEEN_CLOSINGS: Duration = Duration::from_millis(50);

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
    pub(crate) skew: Arc<Skew>,
    pub(crate) room: Arc<Room>,
    /// When the next window may close.
    pub(crate) closing: Arc<Mutex<Instant>>,
    pub(crate) stop: Stop,
}

impl Tools {
    /// A name no other attempt has.
    pub(crate) fn draw_window(&self) -> WindowRun {
        WindowRun::from(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
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
    pub(crate) async fn counter(&self, id: &CounterId) -> anyhow::Result<Option<Counter>> {
        self.stop.unless_requested(self.budget.ready()).await?;
        let counter = self.persist("read a counter", || self.ports.counts.counter(id)).await?;
        self.read_items(1);
        Ok(counter)
    }

    /// Several counters, in the order asked; one that cannot be read is a fault of its own.
    pub(crate) async fn counters(&self, ids: &[CounterId]) -> anyhow::Result<Vec<Outcome<Option<Counter>>>> {
        self.stop.unless_requested(self.budget.ready()).await?;
        let counters = self.persist("read counters", || self.ports.counts.counters(ids)).await?;
        self.read_items(ids.iter().collect::<Set<_>>().len());
        Ok(counters)
    }

    /// How many rows `key` has, and what they weigh.
    pub(crate) async fn count(&self, key: &RowKey) -> anyhow::Result<RowKeyCount> {
        let (mut count, mut after) = (RowKeyCount { key: key.clone(), rows: 0, weight: 0 }, None);
        loop {
            let page = self.page("read rows", || self.ports.rows.weights(key, after.as_ref())).await?;
            count.rows += page.items.len() as u64;
            count.weight += page.items.iter().map(|(_, weight)| i128::from(weight.get())).sum::<i128>();
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
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
        let open = states.iter().filter(|state| !state.checkpoint.closed);
        self.skew.see(open.map(|state| state.checkpoint.at), self.clock.now(), self.rules.guard);
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

    /// Waits for this window's turn to close: each closing marker makes the streamer cut a flush, and many at once would
    /// hold up whatever is written meanwhile.
    pub(crate) async fn closing_turn(&self) -> anyhow::Result<()> {
        let turn = {
            let mut next = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = (*next).max(Instant::now());
            *next = turn + BETWEEN_CLOSINGS;
            turn
        };
        Ok(self.stop.unless_requested(tokio::time::sleep_until(turn)).await?)
    }

    /// Waits for `span`, unless asked to stop.
    pub(crate) async fn wait(&self, span: Duration) -> anyhow::Result<()> {
        Ok(self.stop.unless_requested(self.clock.sleep(span)).await?)
    }

    /// Now, by whichever clock is furthest ahead, ours or a change-streamer's: what was read before was written before.
    pub(crate) fn moment(&self) -> UnixMillis {
        self.clock.now().plus(self.skew.ahead())
    }

    /// Makes every answer about `key` say that it may be wrong, and leaves it to whoever recounts what is queued.
    pub(crate) async fn disown(&self, key: &RowKey) -> anyhow::Result<()> {
        let now = self.clock.now();
        // A counter that cannot be read takes no mark either, and no answer is made of it.
        let mark = || async { unless_poison(self.ports.counts.suspect(key, now).await) };
        self.persist("mark a count as doubtful", mark).await?;
        let enqueue = || self.ports.recounts.enqueue(key, QueueReason::Drift, now);
        self.persist("queue a row key", enqueue).await?;
        self.spent.wrote(2);
        Ok(())
    }

    /// Whether everything written before `time` was seen by the stream's readers, and nothing can still be on its way.
    pub(crate) fn has_passed(&self, lineage: &Lineage, time: UnixMillis) -> bool {
        lineage.as_of().is_some_and(|as_of| as_of > time.plus(self.rules.guard))
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

/// A stream fault as any other: losses are the streamer's business.
fn fault(fault: StreamFault) -> Fault {
    match fault {
        StreamFault::Fault(fault) => fault,
        other => Fault::Transient(other.to_string()),
    }
}
