//! A point in time as the tables and events state it; where the time comes from is the caller's business.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The last millisecond of the year 9999: beyond it a timestamp is a unit mistaken, not a date.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// How long ago `earlier` was; zero when it lies ahead, since two machines' clocks never quite agree.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This point in time moved on by `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }

    /// This point in time moved back by `by`, never before the epoch.
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

/// One reading of both clocks, handed to a machine with each input: a machine owns no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The monotonic clock, since some fixed moment of this process: for waits and ages.
    pub at: Duration,
    /// The wall clock: for what is stored and compared between processes.
    pub wall: UnixMillis,
}

impl Now {
    /// How long ago `earlier` was, by the clock that has moved further: the monotonic one stands still while a machine sleeps,
    /// the wall clock may be set back.
    pub fn since(self, earlier: Self) -> Duration {
        self.at.saturating_sub(earlier.at).max(self.wall.since(earlier.wall))
    }
}
