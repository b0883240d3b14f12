//! The clock of the emulator, its only source of time. It is a wall clock that follows tokio's clock, so that tests can
//! pause it, and it can be advanced.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use tokio::time::Instant;

/// Milliseconds since the Unix epoch.
pub(crate) type Millis = u64;

/// The last millisecond of the year 9999. No clock passes it, so that a time plus any sensible duration does not overflow.
const LAST: Millis = 253_402_300_799_999;

/// A wall clock: its start, tokio's time since then, and the time by which it was advanced.
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
        // The closure always returns a value, so the update cannot fail.
        let _ = self.advanced.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// A duration in whole milliseconds, saturating.
pub(crate) fn millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the emulator's only look at the machine's clock: where its own begins")]
fn machine_time() -> SystemTime {
    SystemTime::now()
}

/// Formats a time like the label of a stream: `2006-01-02T15:04:05.000`.
pub(crate) fn label(at: Millis) -> String {
    let seconds = i64::try_from(at / 1000).expect("the clock ends with the year 9999");
    let second = DateTime::from_secs(seconds).fmt(Format::DateTime).expect("the clock ends with the year 9999");
    format!("{}.{:03}", second.trim_end_matches('Z'), at % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_paused_time_and_can_be_advanced() {
        let clock = Clock::new(Some(UNIX_EPOCH + Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(5)).await;
        clock.advance(Duration::from_secs(1));
        assert_eq!((clock.now(), label(clock.now())), (16_000, "1970-01-01T00:00:16.000".to_owned()));
        clock.advance(Duration::MAX);
        clock.advance(Duration::MAX);
        assert_eq!(label(clock.now()), "9999-12-31T23:59:59.999");
    }
}
