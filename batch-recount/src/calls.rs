//! Calls that are repeated while their fault is worth it, reads inside a budget, and waits: all of them end when the process is
//! asked to stop, and what is spent is counted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::Page;
use tally_core::audit::Cost;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Patience, Stop, Until};

use crate::budget::Budget;
use crate::cost::{ITEM, Spent};
use crate::metrics;

/// How this process calls, reads and waits. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    patience: Patience,
    stop: Stop,
    budget: Arc<Budget>,
    spent: Arc<Spent>,
}

impl Calls {
    /// Reads at most so many units a second, until `stop` is requested.
    pub(crate) fn new(read_units: Option<u32>, (clock, chance): (Clock, Chance), stop: Stop) -> Self {
        let budget = Arc::new(Budget::new(read_units, clock));
        let throttled = Arc::clone(&budget);
        let patience = Patience::new(clock, chance).on_fault(move |_, fault, _| {
            metrics::faulted(fault);
            throttled.failed(fault);
        });
        Self { patience, stop, budget, spent: Arc::default() }
    }

    /// The same with nothing spent yet; the budget is shared.
    pub(crate) fn anew(&self) -> Self {
        Self { spent: Arc::default(), ..self.clone() }
    }

    /// The clock waited by.
    pub(crate) fn clock(&self) -> Clock {
        self.patience.clock()
    }

    /// The wall time.
    pub(crate) fn now(&self) -> UnixMillis {
        self.clock().now()
    }

    /// What `call` answers once it does. Only for calls that are safe to repeat.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming `what`; [`Stopped`](tally_service::Stopped) on request.
    pub(crate) async fn persist<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        self.patience.persist(what, Until::Requested(&self.stop), call).await
    }

    /// Waits after a fault; `tries` counts them.
    ///
    /// # Errors
    /// `fault` itself if waiting does not mend it; [`Stopped`](tally_service::Stopped) on request.
    pub(crate) async fn pause(&self, what: &str, fault: Fault, tries: &mut u32) -> anyhow::Result<()> {
        self.patience.pause(what, fault, tries, Until::Requested(&self.stop)).await
    }

    /// Waits for `span`.
    pub(crate) async fn wait(&self, span: Duration) -> anyhow::Result<()> {
        self.unless_stopped(self.clock().sleep(span)).await
    }

    /// What `wait` comes to; only for what may be dropped half-way.
    pub(crate) async fn unless_stopped<T>(&self, wait: impl Future<Output = T> + Send) -> anyhow::Result<T> {
        Ok(self.stop.unless_requested(wait).await?)
    }

    /// Waits until the budget allows a read.
    pub(crate) async fn allowed(&self) -> anyhow::Result<()> {
        self.unless_stopped(self.budget.ready()).await
    }

    /// One page of a long answer, inside the budget.
    pub(crate) async fn page<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<Page<T>>
    where
        Fut: Future<Output = Outcome<Page<T>>>,
    {
        self.allowed().await?;
        let page = self.persist(what, call).await?;
        self.paid(page.half_units);
        Ok(page)
    }

    /// Takes note of `items` that were read one by one.
    pub(crate) fn read_items(&self, items: usize) {
        self.paid(ITEM * items as u64);
    }

    /// Takes note of so many write units.
    pub(crate) fn wrote(&self, units: u64) {
        self.spent.wrote(units);
    }

    /// What was spent so far.
    pub(crate) fn cost(&self) -> Cost {
        self.spent.so_far()
    }

    fn paid(&self, half_units: u64) {
        self.budget.spend(half_units);
        self.spent.read(half_units);
    }
}
