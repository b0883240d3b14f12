//! How fast the store may be read: so many read units a second, and fewer after every throttled call.

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
/// What is saved up for, at most.
const SAVED: Duration = Duration::from_secs(1);

/// A budget of read units. A page's cost is known only afterwards, so the next read waits until what was read is paid for.
#[derive(Debug)]
pub(crate) struct Budget {
    clock: Clock,
    rate: Option<f64>,
    pace: Mutex<Pace>,
}

#[derive(Debug)]
struct Pace {
    /// When everything that was read is paid for.
    paid: Duration,
    /// The part of the rate that is used.
    share: f64,
    /// When that part changed last.
    changed: Duration,
}

impl Budget {
    /// `rate` units a second; as many as the store gives where none is set.
    pub(crate) fn new(rate: Option<u32>, clock: Clock) -> Self {
        let now = clock.reading().at;
        Self { clock, rate: rate.map(f64::from), pace: Mutex::new(Pace { paid: now, share: 1.0, changed: now }) }
    }

    /// Completes when the next read may be made.
    pub(crate) async fn ready(&self) {
        loop {
            let wait = self.pace().paid.saturating_sub(self.clock.reading().at);
            if wait.is_zero() {
                return;
            }
            self.clock.sleep(wait).await;
        }
    }

    /// Takes what a read has cost.
    pub(crate) fn spend(&self, half_units: u64) {
        let mut pace = self.pace();
        let rate = self.rate.or((pace.share < 1.0).then_some(ASSUMED)).map(|rate| rate * pace.share);
        if let Some(rate) = rate {
            #[expect(clippy::cast_precision_loss, reason = "a page costs a few hundred units")]
            let takes = Duration::from_secs_f64(half_units as f64 / 2.0 / rate);
            pace.paid = pace.paid.max(self.clock.reading().at.saturating_sub(SAVED)) + takes;
        }
    }

    /// Takes note of a call that failed: the store may have been asked for too much.
    pub(crate) fn failed(&self, fault: &Fault) {
        if matches!(fault, Fault::Throttled(_)) {
            let (mut pace, now) = (self.pace(), self.clock.reading().at);
            *pace = Pace { paid: pace.paid.max(now), share: (pace.share / 2.0).max(LEAST), changed: now };
        }
    }

    /// The pace as it is now.
    fn pace(&self) -> MutexGuard<'_, Pace> {
        let (mut pace, now) = (self.pace.lock().unwrap_or_else(PoisonError::into_inner), self.clock.reading().at);
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
