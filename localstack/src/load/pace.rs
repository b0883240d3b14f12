//! When the next thing is due, for all lanes together.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How far behind the schedule may fall before what was missed is not made up for.
const SLACK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Pace {
    step: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: u32) -> Self {
        Self { step: Duration::from_secs(1) / rate.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Takes the next turn; when it is.
    pub(super) fn next(&self) -> Instant {
        let mut next = self.next.lock();
        let now = Instant::now();
        let turn = (*next).max(now.checked_sub(SLACK).unwrap_or(now));
        *next = turn + self.step;
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_are_evenly_spaced_and_a_long_pause_is_not_made_up_for() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        let due: Vec<u128> = (0..3).map(|_| (pace.next() - start).as_millis()).collect();
        assert_eq!(due, [0, 1, 2]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pace.next(), start + Duration::from_secs(60) - SLACK);
    }
}
