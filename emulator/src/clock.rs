//! The one source of time: a wall clock that follows tokio's, so that paused time governs everything, and that can be advanced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch.
pub(crate) type Millis = u64;

/// The last moment of the year 9999. No clock passes it, so that a moment and any sensible duration have a sum.
const LAST: Millis = 253_402_300_799_999;

/// A wall clock: where it began, tokio's time since, and what it was advanced by.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Millis,
    started: Instant,
    advanced: AtomicU64,
}

impl Clock {
    /// A clock that shows `epoch` now, or the machine's time.
    pub(crate) fn new(epoch: Option<SystemTime>) -> Self {
        let epoch = epoch.unwrap_or_else(machine_time);
        let began = millis(epoch.duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { began, started: Instant::now(), advanced: AtomicU64::new(0) }
    }

    pub(crate) fn now(&self) -> Millis {
        let passed = millis(self.started.elapsed()).saturating_add(self.advanced.load(Ordering::Relaxed));
        self.began.saturating_add(passed).min(LAST)
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = millis(by);
        let add = |advanced: Millis| Some(advanced.saturating_add(by));
        // The update always has a value to store.
        let _ = self.advanced.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// A duration in whole milliseconds; what does not fit is for ever.
pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the emulator's only look at the machine's clock: where its own begins")]
fn machine_time() -> SystemTime {
    SystemTime::now()
}

/// `2006-01-02T15:04:05.000`, the form of a stream's label.
pub(crate) fn label(at: Millis) -> String {
    let (days, of_day) = (at / 86_400_000, at % 86_400_000);
    let (year, month, day) = civil(days);
    let (seconds, fraction) = (of_day / 1000, of_day % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}")
}

/// Year, month and day of a day counted from the Unix epoch, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, a year's leap day is its last, and 400 years are 146,097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_calendar_dates() {
        assert_eq!(label(0), "1970-01-01T00:00:00.000");
        assert_eq!(label(951_782_399_999), "2000-02-28T23:59:59.999");
        assert_eq!(label(951_868_799_000), "2000-02-29T23:59:59.000");
        assert_eq!(label(1_700_000_000_123), "2023-11-14T22:13:20.123");
        assert_eq!(label(4_107_542_400_000), "2100-03-01T00:00:00.000");
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time_and_can_be_advanced() {
        let clock = Clock::new(Some(UNIX_EPOCH + Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(5)).await;
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.now(), 16_000);
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(label(clock.now()), "9999-12-31T23:59:59.999");
    }
}
