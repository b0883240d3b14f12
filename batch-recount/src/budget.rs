//! How fast the store may be read: a bucket of read units that fills evenly, and slower after every throttled call.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_core::fault::Fault;
use tally_service::Clock;

/// The slowest a throttled budget gets, as a share of its rate.
const LEAST: f64 = 1.0 / 64.0;
/// How long without a throttled call before the share doubles again.
const RECOVERY: Duration = Duration::from_secs(5);
/// What is assumed to be the rate where none is set and the store throttles.
const ASSUMED: f64 = 12_000.0;

/// A budget of read units. A page's cost is known only afterwards, so the bucket may go below zero, and the next read
/// waits until it is full again.
#[derive(Debug)]
pub(crate) struct Budget {
    clock: Clock,
    rate: Option<f64>,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    units: f64,
    /// When the units were counted.
    at: Duration,
    /// The part of the rate that is used.
    share: f64,
    /// When that part changed last.
    changed: Duration,
}

impl Budget {
    /// `rate` units a second; as many as the store gives where none is set.
    pub(crate) fn new(rate: Option<u32>, clock: Clock) -> Self {
        let now = clock.reading().at;
        let level = Level { units: 0.0, at: now, share: 1.0, changed: now };
        Self { clock, rate: rate.map(f64::from), level: Mutex::new(level) }
    }

    /// Completes when the next read may be made.
    pub(crate) async fn ready(&self) {
        while let Some(wait) = self.wait() {
            self.clock.sleep(wait).await;
        }
    }

    /// Takes what a read has cost.
    pub(crate) fn spend(&self, half_units: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a page costs a few hundred units")]
        let units = half_units as f64 / 2.0;
        self.filled().units -= units;
    }

    /// Takes note of a call that failed: the store may have been asked for too much.
    pub(crate) fn failed(&self, fault: &Fault) {
        if matches!(fault, Fault::Throttled(_)) {
            let mut level = self.filled();
            level.share = (level.share / 2.0).max(LEAST);
            level.changed = level.at;
            level.units = level.units.min(0.0);
        }
    }

    fn wait(&self) -> Option<Duration> {
        let level = self.filled();
        let rate = self.rate_at(level.share)?;
        (level.units < 0.0).then(|| Duration::from_secs_f64(-level.units / rate).max(Duration::from_millis(1)))
    }

    /// Units a second at `share`; `None` for no limit.
    fn rate_at(&self, share: f64) -> Option<f64> {
        match self.rate {
            Some(rate) => Some(rate * share),
            None => (share < 1.0).then_some(ASSUMED * share),
        }
    }

    /// The bucket as it is now: at most a second's units are saved up.
    fn filled(&self) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.reading().at;
        let passed = now.saturating_sub(level.at).as_secs_f64();
        match self.rate_at(level.share) {
            Some(rate) => level.units = (level.units + rate * passed).min(rate),
            None => level.units = 0.0,
        }
        level.at = now;
        if level.share < 1.0 && now.saturating_sub(level.changed) >= RECOVERY {
            level.share = (level.share * 2.0).min(1.0);
            level.changed = now;
        }
        level
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
