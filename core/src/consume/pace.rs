//! How many lanes a partition should have: more while one chain of transactions is too slow, fewer once they have little to do.

use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use crate::batch::Trigger;
use crate::ids::LaneCount;

/// Full batches of each lane, one after another, before there are more lanes.
const FULL: usize = 3;

/// How long batches are small before there are fewer.
const SLACK: Duration = Duration::from_secs(60);

/// How long after a change that was given up the next one may begin.
const REST: Duration = Duration::from_secs(10);

/// What decides how many lanes a partition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LanePolicy {
    /// The partition's own batches.
    Adaptive,
    /// An operator: always so many.
    Pinned(LaneCount),
}

/// Not a number of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("write `auto`, 1, 2, 4, 8 or 16")]
pub struct BadLanePolicy;

impl FromStr for LanePolicy {
    type Err = BadLanePolicy;

    fn from_str(text: &str) -> Result<Self, BadLanePolicy> {
        if text == "auto" {
            return Ok(Self::Adaptive);
        }
        text.parse().ok().and_then(LaneCount::new).map(Self::Pinned).ok_or(BadLanePolicy)
    }
}

/// What the last batches say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pace {
    policy: LanePolicy,
    lanes: LaneCount,
    /// Batches in a row that were full while records waited.
    full: usize,
    /// Since when no batch was more than a quarter full.
    slack: Duration,
    /// No change is begun before.
    rests_until: Duration,
}

impl Pace {
    pub(super) fn new(policy: LanePolicy, lanes: LaneCount, now: Duration) -> Self {
        Self { policy, lanes, full: 0, slack: now, rests_until: now }
    }

    /// The pace of a partition whose fences were read again: what was seen counts while it has as many lanes as before.
    pub(super) fn after(before: Option<Self>, policy: LanePolicy, lanes: LaneCount, now: Duration) -> Self {
        before.filter(|before| before.lanes == lanes).unwrap_or_else(|| Self::new(policy, lanes, now))
    }

    /// A batch of so many rows, where `limit` are a full one, was written; `waits`: there were records for another.
    pub(super) fn flushed(&mut self, trigger: Trigger, rows: usize, limit: usize, waits: bool, now: Duration) {
        if self.policy != LanePolicy::Adaptive {
            return;
        }
        // The events of one busy sum are one row, and stay in one lane however many there are.
        let has_rows = rows * 4 > limit;
        match trigger {
            Trigger::Rows | Trigger::Bytes if waits && has_rows => self.full += 1,
            Trigger::Rows | Trigger::Bytes | Trigger::Age => self.full = 0,
            Trigger::Definitions | Trigger::Lanes | Trigger::Follow | Trigger::Shutdown => {}
        }
        if has_rows {
            self.slack = now;
        }
    }

    /// A change was given up: what was seen before counts no more.
    pub(super) fn forget(&mut self, now: Duration) {
        (self.full, self.slack, self.rests_until) = (0, now, now.saturating_add(REST));
    }

    /// A change cannot begin yet: one to more lanes is tried with the next batch, one to fewer is not urgent.
    pub(super) fn put_off(&mut self, now: Duration) {
        if self.due_at().is_some_and(|due| now >= due) {
            self.slack = now;
        }
    }

    /// When there may be fewer lanes, if nothing else happens.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let may_shrink = self.policy == LanePolicy::Adaptive && self.lanes > LaneCount::ONE;
        may_shrink.then(|| self.slack.saturating_add(SLACK))
    }

    /// How many lanes there should be, if not as many as there are.
    pub(super) fn wanted(&self, now: Duration) -> Option<LaneCount> {
        if now < self.rests_until {
            return None;
        }
        let wanted = match self.policy {
            LanePolicy::Pinned(lanes) => lanes,
            LanePolicy::Adaptive if self.full >= FULL * self.lanes.get() => self.lanes.doubled(),
            LanePolicy::Adaptive if self.due_at().is_some_and(|due| now >= due) => self.lanes.halved(),
            LanePolicy::Adaptive => self.lanes,
        };
        (wanted != self.lanes).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(n: u64) -> LaneCount {
        LaneCount::new(n).unwrap()
    }

    #[test]
    fn lanes_double_after_three_full_batches_of_each_in_a_row_with_records_waiting() {
        for (n, needed) in [(1, 3), (4, 12)] {
            let mut pace = Pace::new(LanePolicy::Adaptive, lanes(n), Duration::ZERO);
            let full = |pace: &mut Pace, waits| pace.flushed(Trigger::Rows, 99, 99, waits, Duration::ZERO);
            (1..needed).for_each(|_| full(&mut pace, true));
            assert_eq!(pace.wanted(Duration::ZERO), None);
            let mut interrupted = pace.clone();
            full(&mut interrupted, false);
            full(&mut interrupted, true);
            assert_eq!(interrupted.wanted(Duration::ZERO), None, "not in a row");
            pace.flushed(Trigger::Follow, 0, 99, false, Duration::ZERO);
            full(&mut pace, true);
            assert_eq!(pace.wanted(Duration::ZERO), Some(lanes(2 * n)));
        }
        let mut most = Pace::new(LanePolicy::Adaptive, LaneCount::MAX, Duration::ZERO);
        (0..99).for_each(|_| most.flushed(Trigger::Rows, 99, 99, true, Duration::ZERO));
        assert_eq!(most.wanted(Duration::ZERO), None);
    }

    #[test]
    fn lanes_halve_after_a_minute_of_batches_a_quarter_full_or_of_none() {
        let mut pace = Pace::new(LanePolicy::Adaptive, lanes(4), Duration::ZERO);
        pace.flushed(Trigger::Age, 25, 99, false, Duration::from_secs(30));
        assert_eq!(pace.due_at(), Some(Duration::from_secs(90)));
        pace.flushed(Trigger::Age, 24, 99, false, Duration::from_secs(80));
        assert_eq!(pace.wanted(Duration::from_secs(89)), None);
        assert_eq!(pace.wanted(Duration::from_secs(90)), Some(lanes(2)));
        pace.forget(Duration::from_secs(90));
        assert_eq!(pace.wanted(Duration::from_secs(90)), None);
        let one = Pace::new(LanePolicy::Adaptive, LaneCount::ONE, Duration::ZERO);
        assert_eq!((one.due_at(), one.wanted(Duration::from_secs(999))), (None, None));
    }

    #[test]
    fn a_busy_sum_neither_doubles_lanes_nor_keeps_them() {
        let mut pace = Pace::new(LanePolicy::Adaptive, lanes(2), Duration::ZERO);
        for second in 0..60 {
            (0..9).for_each(|_| pace.flushed(Trigger::Bytes, 1, 99, true, Duration::from_secs(second)));
            assert_eq!(pace.wanted(Duration::from_secs(second)), None);
        }
        assert_eq!(pace.wanted(Duration::from_secs(60)), Some(LaneCount::ONE));
        let mut wide = Pace::new(LanePolicy::Adaptive, LaneCount::ONE, Duration::ZERO);
        (0..3).for_each(|_| wide.flushed(Trigger::Bytes, 25, 99, true, Duration::ZERO));
        assert_eq!(wide.wanted(Duration::ZERO), Some(lanes(2)), "large records of many rows");
    }

    #[test]
    fn fences_that_are_read_again_change_nothing_unless_there_are_other_lanes() {
        let mut pace = Pace::new(LanePolicy::Adaptive, lanes(4), Duration::ZERO);
        pace.flushed(Trigger::Rows, 99, 99, true, Duration::from_secs(30));
        let later = Duration::from_secs(50);
        assert_eq!(Pace::after(Some(pace.clone()), LanePolicy::Adaptive, lanes(4), later), pace);
        let anew = Pace::new(LanePolicy::Adaptive, lanes(2), later);
        assert_eq!(Pace::after(Some(pace), LanePolicy::Adaptive, lanes(2), later), anew);
    }

    #[test]
    fn a_policy_is_a_power_of_two_up_to_16_or_auto() {
        assert_eq!("auto".parse(), Ok(LanePolicy::Adaptive));
        for n in [1, 2, 4, 8, 16] {
            assert_eq!(n.to_string().parse(), Ok(LanePolicy::Pinned(lanes(n))));
        }
        for text in ["", "0", "3", "32", "-1", "Auto", "2 "] {
            assert_eq!(text.parse::<LanePolicy>(), Err(BadLanePolicy), "{text:?}");
        }
    }

    #[test]
    fn pinned_lanes_are_always_so_many() {
        let pace = Pace::new(LanePolicy::Pinned(lanes(2)), lanes(8), Duration::ZERO);
        assert_eq!((pace.wanted(Duration::ZERO), pace.due_at()), (Some(lanes(2)), None));
        let mut given_up = pace.clone();
        given_up.forget(Duration::ZERO);
        assert_eq!(given_up.wanted(Duration::from_secs(9)), None);
        assert_eq!(given_up.wanted(Duration::from_secs(10)), Some(lanes(2)));
        let mut pace = Pace::new(LanePolicy::Pinned(LaneCount::ONE), LaneCount::ONE, Duration::ZERO);
        (0..99).for_each(|_| pace.flushed(Trigger::Rows, 99, 99, true, Duration::ZERO));
        assert_eq!(pace.wanted(Duration::from_secs(999)), None);
    }
}
