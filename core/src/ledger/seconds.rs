//! Seconds in which changes were made that are missing in the log.

use crate::ids::Ordinal;
use crate::time::UnixMillis;

/// How far the clock of a process may be from that of the table: what lists allow for, too.
const CLOCKS: u64 = 2;

/// Some seconds, from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// Changes of one stream shard that are missing in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lapse {
    /// The stream shard.
    pub shard: Ordinal,
    /// When they were made.
    pub seconds: Seconds,
}

impl Seconds {
    /// The second of `at`.
    pub fn of(at: UnixMillis) -> Self {
        Self { first: at.0 / 1000, last: at.0 / 1000 }
    }

    /// From the second of `from` to that of `to`; both are one where they lie the wrong way round.
    pub fn from_to(from: UnixMillis, to: UnixMillis) -> Self {
        Self { first: from.0 / 1000, last: from.max(to).0 / 1000 }
    }

    /// Every second in which a change may have been made between these two, by the clock of a process: changes have the table's.
    pub fn between(from: UnixMillis, to: UnixMillis) -> Self {
        let Self { first, last } = Self::from_to(from, to);
        Self { first: first.saturating_sub(CLOCKS), last: last.saturating_add(CLOCKS) }
    }

    /// The least run of seconds with those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }
}
