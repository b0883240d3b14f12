//! How far a count may be trusted when it is answered: what it includes, whether a loss of stream is open, and how old
//! that knowledge is by then.
//!
//! A worker that meets a loss records it as a gap, and applies nothing behind it for [`HOLD`] after the record was
//! acknowledged. So a count with anything behind a loss is that much younger than the gap's record. A reading that is at
//! most [`LIMIT`] old when it judges such a count began after the record, and shows the gap: a number that the rows never
//! had is never called exact.

mod readings;

use std::time::Duration;

pub use readings::{Effect, Input, Readings};

use crate::counter::Counter;
use crate::ids::CounterKind;
use crate::lineage::HOLD;
use crate::served::Served;
use crate::time::{Now, UnixMillis};

/// The greatest age of a reading that may call a count exact, counted from the reading's beginning. The hold is longer, by
/// what a call and two clocks may differ.
pub const LIMIT: Duration = Duration::from_secs(5);

const _: () = assert!(LIMIT.as_millis() + 2_000 < HOLD.as_millis());

/// How far the counters are, and whether a loss of stream is open, as [`Readings`] has read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reading {
    /// When it began: before the first of its calls.
    pub began: Now,
    /// Every change that had reached the likes table by then is in every counter that is read after this reading.
    pub as_of: UnixMillis,
    /// Whether a loss of stream was open.
    pub open_gaps: bool,
}

impl Reading {
    /// How long ago it began, by the clock that has moved further: the monotonic one stands still while a machine sleeps,
    /// the wall clock may be set back.
    pub fn age(&self, now: Now) -> Duration {
        now.at.saturating_sub(self.began.at).max(now.wall.since(self.began.wall))
    }

    /// Whether a count may be called exact `now`, as far as losses of stream go.
    pub fn allows_exact(&self, now: Now) -> bool {
        !self.open_gaps && self.age(now) <= LIMIT
    }

    /// The count of a set's `counter`, which was asked for after this reading had ended and arrived `now`. A post without a
    /// counter has no likes.
    pub fn serve(&self, counter: Option<&Counter>, now: Now) -> Served {
        self.serve_as(CounterKind::Set, counter, now)
    }

    /// The same of a counter of a kind.
    pub fn serve_as(&self, kind: CounterKind, counter: Option<&Counter>, now: Now) -> Served {
        Served::of(kind, counter, !self.allows_exact(now), self.as_of)
    }

    /// A count that was called exact, or not, when it arrived: exact only if it may be called so `now`, too.
    pub fn judge(&self, served: Served, now: Now) -> Served {
        Served { exact: served.exact && self.allows_exact(now), ..served }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Now = Now { at: Duration::from_secs(100), wall: UnixMillis(1_000_000) };

    fn later(by: Duration) -> Now {
        Now { at: BEGAN.at + by, wall: BEGAN.wall.plus(by) }
    }

    fn reading(open_gaps: bool) -> Reading {
        Reading { began: BEGAN, as_of: UnixMillis(7), open_gaps }
    }

    fn exact() -> Served {
        Served { likes: 3, version: 9, exact: true, as_of: UnixMillis(5) }
    }

    #[test]
    fn a_reading_older_than_its_limit_calls_nothing_exact() {
        let past = LIMIT + Duration::from_millis(1);
        assert!(reading(false).serve(None, later(LIMIT)).exact && reading(false).judge(exact(), later(LIMIT)).exact);
        assert!(!reading(false).serve(None, later(past)).exact && !reading(false).judge(exact(), later(past)).exact);
    }

    #[test]
    fn an_open_gap_makes_every_count_inexact_also_one_that_was_exact() {
        assert!(!reading(true).serve(None, BEGAN).exact);
        assert_eq!(reading(true).judge(exact(), BEGAN), Served { exact: false, ..exact() });
    }

    #[test]
    fn what_was_inexact_when_it_arrived_stays_so() {
        let inexact = Served { exact: false, ..exact() };
        assert_eq!(reading(false).judge(inexact, BEGAN), inexact);
    }

    #[test]
    fn a_kept_count_keeps_its_own_as_of() {
        assert_eq!(reading(false).judge(exact(), BEGAN).as_of, UnixMillis(5));
        assert_eq!(reading(false).serve(None, BEGAN).as_of, UnixMillis(7));
    }

    #[test]
    fn the_age_is_that_of_the_clock_that_moved_further() {
        let past = LIMIT + Duration::from_millis(1);
        let slept = Now { wall: BEGAN.wall.plus(past), ..BEGAN };
        let set_back = Now { at: BEGAN.at + past, wall: UnixMillis(0) };
        assert!(!reading(false).allows_exact(slept) && !reading(false).allows_exact(set_back));
    }
}
