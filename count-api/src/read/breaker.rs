//! A circuit breaker: it decides when to skip calls of a dependency that does not answer, so that requests do not wait
//! for it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many calls in a row have to fail before calls are skipped.
const FAILURES: u32 = 5;

/// How long calls are skipped before one is tried.
const REST: Duration = Duration::from_millis(500);

/// Opens after several failures in a row. Then it admits one call after each [`REST`], until one succeeds.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    failures: u32,
    resting_until: Option<Instant>,
}

impl Breaker {
    /// Returns whether a call may be made now.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        match state.resting_until {
            None => true,
            Some(until) if now < until => false,
            // This call is the trial. If its outcome is never reported, the next trial comes after another rest.
            Some(_) => {
                state.resting_until = Some(now + REST);
                true
            }
        }
    }

    /// Records that a call was answered.
    pub(super) fn succeeded(&self) {
        *self.0.lock() = State::default();
    }

    /// Records that a call failed or took too long. Returns whether this opened the breaker.
    pub(super) fn failed(&self, now: Instant) -> bool {
        let mut state = self.0.lock();
        state.failures = state.failures.saturating_add(1);
        let opens = state.failures >= FAILURES && state.resting_until.is_none();
        if state.failures >= FAILURES {
            state.resting_until = Some(now + REST);
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_closes_at_the_first_success() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        for _ in 1..FAILURES {
            assert!(!breaker.failed(start) && breaker.admits(start));
        }
        breaker.succeeded();
        for _ in 1..FAILURES {
            assert!(!breaker.failed(start));
        }
        assert!(breaker.failed(start), "only failures in a row count");
        assert!(!breaker.admits(start) && !breaker.admits(start + REST / 2));
        breaker.succeeded();
        assert!(breaker.admits(start));
    }

    #[tokio::test(start_paused = true)]
    async fn while_open_one_call_a_rest_is_the_trial() {
        let (breaker, start) = (Breaker::default(), Instant::now());
        (0..FAILURES).for_each(|_| {
            breaker.failed(start);
        });
        assert!(breaker.admits(start + REST) && !breaker.admits(start + REST), "one trial");
        assert!(breaker.admits(start + REST * 2), "also when the outcome of the first is never reported");
        assert!(!breaker.failed(start + REST * 2), "it was open already");
        assert!(!breaker.admits(start + REST * 2) && breaker.admits(start + REST * 3));
    }
}
