//! Points in time, as tables and events state them; bounds between which another machine's clock is; and readings of
//! the clocks, which callers pass in.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The last millisecond of the year 9999: a later timestamp has the wrong unit.
    pub const MAX: Self = Self(253_402_300_799_999);
    /// The first millisecond of the year 2000. A producer that states an earlier time most likely means seconds.
    pub const YEAR_2000: Self = Self(946_684_800_000);

    /// Returns how long ago `earlier` was; zero where it lies ahead, since two machines' clocks never quite agree.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns date and time of day for people, in UTC and whole seconds: `2026-11-27 08:00:00`.
    pub fn date(self) -> String {
        let (days, seconds) = (self.0 / 86_400_000, self.0 / 1_000 % 86_400);
        // Eras have 400 years, and years begin with March here, so that a leap day is the last day of its year.
        let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let (day, month) = (of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
        let year = era * 400 + year + u64::from(month <= 2);
        let [hour, minute, second] = [seconds / 3_600, seconds / 60 % 60, seconds % 60];
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }

    /// Returns this point in time moved on by `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// Returns this point in time moved back by `by`, but not before the epoch.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Two times between which another clock is, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The other clock is not earlier.
    pub earliest: UnixMillis,
    /// The other clock is not later.
    pub latest: UnixMillis,
}

impl Bounds {
    /// How far off a local clock may be and still be believed.
    pub const BELIEVED: Duration = Duration::from_secs(2);

    /// Returns how far a clock that says `local` is off at least, if it is too far off to be believed.
    pub fn off(self, local: UnixMillis) -> Option<Duration> {
        let off = local.since(self.latest).max(self.earliest.since(local));
        (off > Self::BELIEVED).then_some(off)
    }

    /// Returns `local` where that clock is believed, and otherwise a time that is not later than the other clock's.
    ///
    /// The answer is never later than the other clock by more than [`BELIEVED`](Self::BELIEVED): where the bounds are
    /// so far apart that `local` could be, the answer is earlier than `local`.
    #[must_use]
    pub fn corrected(self, local: UnixMillis) -> UnixMillis {
        if self.off(local).is_some() { self.earliest } else { local.min(self.earliest.plus(Self::BELIEVED)) }
    }
}

/// One reading of both clocks, passed to a state machine with each input: the machine has no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The monotonic clock since a fixed moment of this process, for waits and ages.
    pub at: Duration,
    /// The wall clock, for what is stored and compared between processes.
    pub wall: UnixMillis,
}

impl Now {
    /// Returns how long ago `earlier` was, by the clock that moved further: the monotonic one stops while a machine
    /// sleeps, the wall clock may be set back.
    pub fn since(self, earlier: Self) -> Duration {
        self.at.saturating_sub(earlier.at).max(self.wall.since(earlier.wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_the_calendar() {
        let said = |millis| UnixMillis(millis).date();
        assert_eq!([said(0), said(951_782_400_000)], ["1970-01-01 00:00:00", "2000-02-29 00:00:00"]);
        assert_eq!([said(951_868_799_999), said(951_868_800_000)], ["2000-02-29 23:59:59", "2000-03-01 00:00:00"]);
        assert_eq!(UnixMillis::MAX.date(), "9999-12-31 23:59:59");
    }

    #[test]
    fn a_clock_is_believed_up_to_two_seconds_off_and_otherwise_corrected_to_what_is_not_too_late() {
        let bounds = Bounds { earliest: UnixMillis(100_000), latest: UnixMillis(101_000) };
        let (corrected, off) = (|at| bounds.corrected(UnixMillis(at)).0, |at| bounds.off(UnixMillis(at)));
        for believed in [98_000, 100_500, 102_000] {
            assert_eq!((corrected(believed), off(believed)), (believed, None));
        }
        assert_eq!((corrected(97_999), off(97_999)), (100_000, Some(Duration::from_millis(2_001))));
        assert_eq!((corrected(103_001), off(103_001)), (100_000, Some(Duration::from_millis(2_001))));
        assert_eq!((corrected(0), corrected(u64::MAX)), (100_000, 100_000));
        assert_eq!((corrected(103_000), off(103_000)), (102_000, None), "it is not known to be off");
    }

    #[test]
    fn no_answer_is_later_than_the_other_clock_by_more_than_what_is_believed() {
        for width in [0, 1_000, 5_000, 60_000] {
            let bounds = Bounds { earliest: UnixMillis(100_000), latest: UnixMillis(100_000 + width) };
            for local in (0..300_000).step_by(250) {
                assert!(
                    bounds.corrected(UnixMillis(local)) <= bounds.earliest.plus(Bounds::BELIEVED),
                    "{width} {local}"
                );
            }
        }
    }
}
