//! How far a change-streamer's clock is seen to be ahead of ours. A recount holds times of its own against times the
//! streamers wrote down, so a clock that is behind would let it prove too much.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tally_core::time::UnixMillis;

/// The greatest lead seen so far, in milliseconds. A checkpoint is always a little older than its reading, so what is
/// seen falls short of the truth by that age; the guard time is there for the rest.
#[derive(Debug, Default)]
pub(crate) struct Skew(AtomicU64);

impl Skew {
    /// Takes note of times that streamers wrote down before `now`, and says so where they cannot have been.
    pub(crate) fn see(&self, times: impl Iterator<Item = UnixMillis>, now: UnixMillis, guard: Duration) {
        let lead = times.max().map_or(0, |time| time.0.saturating_sub(now.0));
        let known = self.0.fetch_max(lead, Ordering::Relaxed);
        if lead > known && Duration::from_millis(lead) > guard {
            tracing::warn!(
                lead_ms = lead,
                "a change-streamer's clock is ahead of this one: that much longer is waited"
            );
        }
    }

    /// By how much to move our times forward.
    pub(crate) fn ahead(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_lead_seen_stays_and_a_lag_is_none() {
        let (skew, guard) = (Skew::default(), Duration::from_secs(2));
        let see = |times: &[u64], now| {
            skew.see(times.iter().map(|at| UnixMillis(*at)), UnixMillis(now), guard);
            skew.ahead().as_millis()
        };
        assert_eq!(see(&[], 1_000), 0);
        assert_eq!(see(&[400, 900], 1_000), 0);
        assert_eq!(see(&[400, 6_000], 1_000), 5_000);
        assert_eq!(see(&[7_000], 6_500), 5_000);
    }
}
