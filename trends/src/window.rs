//! The windows of time over which lists of what is trending are made, such as the last hour, and the *moments*, the
//! whole seconds at which a window ends: when one has come, and which to publish next.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use tally_core::time::UnixMillis;

/// A window: the seconds from the edge of a bucket up to a moment. It lasts at least its span, and less than a bucket
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    span: u64,
    bucket: u64,
}

/// The text is not a window.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a window is 1 to 60 minutes, or 2 to 24 hours, as in 10m or 24h, not {0:?}")]
pub struct BadWindow(pub String);

impl Window {
    /// Returns the window of this many seconds, if there is such a window.
    fn of(span: u64) -> Option<Self> {
        let bucket = if span <= 3600 { span / 60 } else { span / 96 };
        let fits = (60..=86_400).contains(&span) && span.is_multiple_of(bucket);
        fits.then_some(Self { span, bucket })
    }

    /// Returns the minimum length in seconds.
    pub fn span(self) -> u64 {
        self.span
    }

    /// Returns the last second before the window that ends with the second `moment`.
    pub fn from(self, moment: u64) -> u64 {
        moment.saturating_sub(self.span) / self.bucket * self.bucket
    }

    /// Returns the bucket of a second. All seconds of a bucket leave the window together.
    pub(crate) fn bucket(self, second: u64) -> u64 {
        second.saturating_sub(1) / self.bucket
    }

    /// Returns the last second of a bucket.
    pub(crate) fn last_of(self, bucket: u64) -> u64 {
        (bucket + 1) * self.bucket
    }
}

/// Prints hours if the span is a whole number of hours, and minutes otherwise.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.span % 3600 {
            0 => write!(f, "{}h", self.span / 3600),
            _ => write!(f, "{}m", self.span / 60),
        }
    }
}

impl FromStr for Window {
    type Err = BadWindow;

    fn from_str(text: &str) -> Result<Self, BadWindow> {
        let unit = |suffix, seconds: u64| Some((text.strip_suffix(suffix)?, seconds));
        let parsed = unit('m', 60).or_else(|| unit('h', 3600));
        let span = parsed.and_then(|(count, seconds)| count.parse::<u64>().ok()?.checked_mul(seconds));
        span.and_then(Self::of).ok_or_else(|| BadWindow(text.chars().take(64).collect()))
    }
}

/// How many seconds after its end a second is considered complete.
const SETTLED: u64 = 2;

/// The lag in seconds beyond which only every tenth moment is published.
const BEHIND: u64 = 10;

/// Returns the first moment to publish, greater than `published`; `None` if none has come. It is a tenth second if
/// possible, which lagging partitions publish, too.
pub fn first_moment(published: u64, as_of: UnixMillis) -> Option<u64> {
    let latest = latest(as_of).filter(|latest| *latest > published)?;
    Some(latest / BEHIND * BEHIND).filter(|tenth| *tenth > published).or(Some(latest))
}

/// Returns the latest second that is complete once everything written before `as_of` was read.
fn latest(as_of: UnixMillis) -> Option<u64> {
    (as_of.0 / 1000).checked_sub(1 + SETTLED)
}

/// Returns whether lagging partitions publish this moment, too.
pub(crate) fn is_common(moment: u64) -> bool {
    moment.is_multiple_of(BEHIND)
}

/// Returns the moment to publish after `published`, once everything written before `as_of` was read; `None` if there is
/// none yet.
pub fn next_moment(published: u64, as_of: UnixMillis) -> Option<u64> {
    let latest = latest(as_of).filter(|latest| *latest > published)?;
    if latest - published <= BEHIND {
        return Some(published + 1);
    }
    let tenth = latest / BEHIND * BEHIND;
    Some(tenth.min((published / BEHIND + 1) * BEHIND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_at_the_last_bucket_edge_that_makes_it_long_enough() {
        let hour: Window = "1h".parse().unwrap();
        assert_eq!([7200, 7201, 7259, 7260].map(|moment| hour.from(moment)), [3600, 3600, 3600, 3660]);
        let day: Window = "24h".parse().unwrap();
        assert_eq!([86_400 + 899, 86_400 + 900].map(|moment| day.from(moment)), [0, 900]);
        assert_eq!("1m".parse::<Window>().unwrap().from(100), 40);
        for bad in ["", "h", "0m", "61m", "25h", "1d", "-1h", "1.5h", "7"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_come_in_order_and_every_tenth_if_they_lag() {
        let next = |published, seconds: u64| next_moment(published, UnixMillis(seconds * 1000));
        assert_eq!([next(100, 103), next(100, 104), next(100, 105)], [None, Some(101), Some(101)]);
        assert_eq!([next(100, 113), next(100, 114), next(103, 117)], [Some(101), Some(110), Some(110)]);
        assert_eq!(next(0, 1_000_003), Some(10));
        assert_eq!(next(5, 2), None);
        let first = |published, seconds: u64| first_moment(published, UnixMillis(seconds * 1000));
        assert_eq!(
            [first(0, 119), first(110, 119), first(112, 119), first(116, 119)],
            [Some(110), Some(116), Some(116), None]
        );
    }
}
