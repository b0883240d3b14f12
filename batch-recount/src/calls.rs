//! How a recount calls the tables and Kafka. [`Calls`] repeats calls while waiting may mend their fault, keeps reads
//! inside a budget, and counts what is spent. All of it ends when the process is asked to stop.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use parking_lot::{Mutex, MutexGuard};
use tally_adapters::dynamodb::{Cursor, Page, Segment};
use tally_core::audit::Cost;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Patience, Seldom, Stop, Until};

use crate::metrics;

/// Half read units of one item of up to 4 KB that is read consistently.
const ITEM: u64 = 2;

/// How often the log says what a recount waits for. Throttled calls are part of its work and say so only after some.
const SOME_TRIES: u32 = 4;
const SAID_EVERY: Duration = Duration::from_secs(10);

/// How a recount calls, reads and waits. Clones share the budget and what is spent.
#[derive(Clone, Debug)]
pub struct Calls {
    patience: Patience,
    stop: Stop,
    budget: Arc<Budget>,
    /// Half read units spent, and write units.
    spent: Arc<[AtomicU64; 2]>,
}

impl Calls {
    /// Returns calls that read at most so many units a second, until `stop` is requested.
    pub fn new(read_units: Option<u32>, patience: Patience, stop: Stop) -> Self {
        let budget = Arc::new(Budget::new(read_units, patience.clock()));
        let throttled = Arc::clone(&budget);
        let said = Seldom::default();
        let patience = patience.on_fault(move |what, fault, tries| {
            metrics::FAULTS.counter(&[fault.class()]).increment(1);
            if (tries >= SOME_TRIES || !matches!(fault, Fault::Throttled(_))) && said.is_due(SAID_EVERY) {
                tracing::warn!(error = %fault, tries, "cannot {what} yet");
            }
            throttled.failed(fault);
        });
        Self { patience, stop, budget, spent: Arc::default() }
    }

    /// Returns calls that have spent nothing yet, with the same budget.
    pub fn anew(&self) -> Self {
        Self { spent: Arc::default(), ..self.clone() }
    }

    /// Returns the clock that waits go by.
    pub fn clock(&self) -> Clock {
        self.patience.clock()
    }

    /// Returns the wall time.
    pub fn now(&self) -> UnixMillis {
        self.clock().now()
    }

    /// Returns the time when `span` will be over, by the clock that only moves forward.
    pub fn after(&self, span: Duration) -> Duration {
        self.clock().reading().at + span
    }

    /// Returns whether a time by that clock has come.
    pub fn is_past(&self, deadline: Duration) -> bool {
        self.clock().reading().at >= deadline
    }

    /// Repeats `call` until it answers, and returns the answer. Only for calls that are safe to repeat.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming `what`; [`GivenUp`](tally_service::GivenUp);
    /// [`Stopped`](tally_service::Stopped) on request.
    pub async fn persist<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        self.patience.persist(what, Until::Requested(&self.stop), call).await
    }

    /// Waits after a fault.
    ///
    /// # Errors
    /// `fault` itself if waiting does not mend it; [`Stopped`](tally_service::Stopped) on request.
    pub async fn pause(&self, what: &str, fault: Fault) -> anyhow::Result<()> {
        self.patience.pause(what, fault, &mut 0, Until::Requested(&self.stop)).await
    }

    /// Waits for `span`.
    pub async fn wait(&self, span: Duration) -> anyhow::Result<()> {
        Ok(self.stop.unless_requested(self.clock().sleep(span)).await?)
    }

    /// Waits until the budget allows a read.
    pub async fn allowed(&self) -> anyhow::Result<()> {
        Ok(self.stop.unless_requested(self.budget.ready()).await?)
    }

    /// Repeats `call`, which reads so many items one by one, and returns its answer.
    pub async fn read<T, Fut>(&self, what: &str, items: usize, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        let answer = self.persist(what, call).await?;
        self.paid(ITEM * items as u64);
        Ok(answer)
    }

    /// Repeats `call`, which writes so many units, and returns its answer.
    pub async fn write<T, Fut>(&self, what: &str, units: u64, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        let answer = self.persist(what, call).await?;
        self.spent[1].fetch_add(units, Ordering::Relaxed);
        metrics::UNITS.counter(&["write"]).increment(units);
        Ok(answer)
    }

    /// Returns the pages of a long answer, one after the other, inside the budget.
    pub fn pages<'a, T, Fut>(
        &'a self,
        what: &'a str,
        call: impl Fn(Option<Cursor>) -> Fut + Copy + Send + Sync + 'a,
    ) -> BoxStream<'a, anyhow::Result<Vec<T>>>
    where
        T: Send + 'a,
        Fut: Future<Output = Outcome<Page<T>>> + Send + 'a,
    {
        let page = move |next: Option<Option<Cursor>>| async move {
            let Some(after) = next else { return Ok(None) };
            self.allowed().await?;
            let Page { items, next, half_units } = self.persist(what, || call(after.clone())).await?;
            self.paid(half_units);
            Ok(Some((items, next.map(Some))))
        };
        stream::try_unfold(Some(None), page).boxed()
    }

    /// Returns the pages of a scan by so many segments at once, in any order.
    pub fn scan<'a, T, Fut>(
        &'a self,
        what: &'a str,
        segments: u32,
        call: impl Fn(Segment, Option<Cursor>) -> Fut + Copy + Send + Sync + 'a,
    ) -> BoxStream<'a, anyhow::Result<Vec<T>>>
    where
        T: Send + 'a,
        Fut: Future<Output = Outcome<Page<T>>> + Send + 'a,
    {
        let segments = (0..segments).map(move |index| Segment { index, of: segments });
        let pages = segments.map(move |segment| self.pages(what, move |after| call(segment, after)));
        stream::select_all(pages).boxed()
    }

    /// Returns what was spent so far.
    pub fn cost(&self) -> Cost {
        let [half_reads, write_units] = [0, 1].map(|kind: usize| self.spent[kind].load(Ordering::Relaxed));
        Cost { read_units: half_reads.div_ceil(2), write_units }
    }

    fn paid(&self, half_units: u64) {
        self.budget.spend(half_units);
        self.spent[0].fetch_add(half_units, Ordering::Relaxed);
        metrics::UNITS.counter(&["read"]).increment(half_units.div_ceil(2));
    }
}

/// Runs all of `work`, up to `most` at once. Returns the results in any order, or the first error.
pub fn at_once<'a, T: Send + 'a, E: Send + 'a>(
    most: usize,
    work: impl IntoIterator<Item = BoxFuture<'a, Result<T, E>>>,
) -> BoxFuture<'a, Result<Vec<T>, E>> {
    let work: Vec<_> = work.into_iter().collect();
    stream::iter(work).buffer_unordered(most).try_collect().boxed()
}

/// The smallest share of its rate that a throttled budget uses.
const LEAST: f64 = 1.0 / 64.0;
/// How long without a throttled call before the share doubles.
const RECOVERY: Duration = Duration::from_secs(5);
/// The rate that is assumed where none is set and the store throttles.
const ASSUMED: f64 = 12_000.0;
/// For how long unused budget is saved up at most.
const SAVED: Duration = Duration::from_secs(1);

/// A budget of read units. A page's cost is known only afterwards, so the next read waits until the last is paid for.
#[derive(Debug)]
struct Budget {
    clock: Clock,
    rate: Option<f64>,
    pace: Mutex<Pace>,
}

#[derive(Debug)]
struct Pace {
    /// When everything that was read is paid for.
    paid: Duration,
    /// The share of the rate that is used.
    share: f64,
    /// When the share changed last.
    changed: Duration,
}

impl Budget {
    /// Allows `rate` units a second, or as many as the store gives if there is no rate.
    fn new(rate: Option<u32>, clock: Clock) -> Self {
        let now = clock.reading().at;
        Self { clock, rate: rate.map(f64::from), pace: Mutex::new(Pace { paid: now, share: 1.0, changed: now }) }
    }

    /// Completes when the next read may be made.
    async fn ready(&self) {
        loop {
            let wait = self.pace().paid.saturating_sub(self.clock.reading().at);
            if wait.is_zero() {
                return;
            }
            self.clock.sleep(wait).await;
        }
    }

    /// Takes from the budget what a read has cost.
    fn spend(&self, half_units: u64) {
        let mut pace = self.pace();
        let rate = self.rate.or((pace.share < 1.0).then_some(ASSUMED)).map(|rate| rate * pace.share);
        if let Some(rate) = rate {
            #[expect(clippy::cast_precision_loss, reason = "a page costs a few hundred units")]
            let takes = Duration::from_secs_f64(half_units as f64 / 2.0 / rate);
            pace.paid = pace.paid.max(self.clock.reading().at.saturating_sub(SAVED)) + takes;
        }
    }

    /// Halves the share after a call that was throttled.
    fn failed(&self, fault: &Fault) {
        if matches!(fault, Fault::Throttled(_)) {
            let (mut pace, now) = (self.pace(), self.clock.reading().at);
            *pace = Pace { paid: pace.paid.max(now), share: (pace.share / 2.0).max(LEAST), changed: now };
        }
    }

    /// Returns the pace as it is now; doubles the share first if nothing was throttled for a while.
    fn pace(&self) -> MutexGuard<'_, Pace> {
        let (mut pace, now) = (self.pace.lock(), self.clock.reading().at);
        if pace.share < 1.0 && now.saturating_sub(pace.changed) >= RECOVERY {
            (pace.share, pace.changed) = ((pace.share * 2.0).min(1.0), now);
        }
        pace
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    fn budget(rate: Option<u32>) -> Budget {
        Budget::new(rate, Clock::starting_at(UnixMillis(0)))
    }

    async fn seconds_for(budget: &Budget, reads: u32, half_units: u64) -> f64 {
        let began = budget.clock.reading().at;
        for _ in 0..reads {
            budget.ready().await;
            budget.spend(half_units);
        }
        budget.ready().await;
        (budget.clock.reading().at - began).as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn reads_keep_to_the_rate_whatever_a_page_costs() {
        for half_units in [2, 100, 1000] {
            let budget = budget(Some(100));
            let reads = 20_000 / u32::try_from(half_units).unwrap();
            let took = seconds_for(&budget, reads, half_units).await;
            assert!((95.0..106.0).contains(&took), "10,000 units in {took} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_waits() {
        assert!(seconds_for(&budget(None), 1000, 1000).await < 0.001);
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_budget_slows_down_and_recovers() {
        for rate in [Some(100), None] {
            let budget = budget(rate);
            let before = seconds_for(&budget, 20, 100).await;
            budget.failed(&Fault::Throttled("slow down".to_owned()));
            budget.failed(&Fault::Throttled("slow down".to_owned()));
            let slowed = seconds_for(&budget, 20, 100).await;
            assert!(slowed > before * 1.2, "{before} then {slowed}");
            budget.clock.sleep(RECOVERY).await;
            budget.ready().await;
            budget.clock.sleep(RECOVERY).await;
            budget.ready().await;
            let after = seconds_for(&budget, 20, 100).await;
            assert!((after - before).abs() <= before * 0.2 + 0.01, "{before} then {after}");
        }
    }
}
