//! The `safe_at` times that the consumer has stored under a partition's claim, one after the other. Every record that
//! Kafka had acknowledged by `safe_at` is finished; the API's `as_of` comes from these times.

use std::collections::VecDeque;

use super::{Kept, earlier};
use crate::time::UnixMillis;

/// The last values of `safe_at` of a partition, each with the time at which it was stored. Each stays true whatever is
/// stored later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SafeTimes {
    times: VecDeque<(UnixMillis, Option<UnixMillis>)>,
    misrouted: bool,
}

impl SafeTimes {
    /// How many are kept. The older they are, the further apart: counts that are far behind need no precise time.
    const MOST: usize = 64;

    /// Takes in what a claim stores, if it is newer.
    pub fn take(&mut self, kept: &Kept) {
        for (at, safe_at) in kept.earlier.pairs() {
            self.note(at, Some(safe_at));
        }
        self.note(kept.at, kept.safe_at);
        self.misrouted |= kept.misrouted;
    }

    /// Returns when the last one was stored.
    pub fn last(&self) -> Option<UnixMillis> {
        self.times.back().map(|(at, _)| *at)
    }

    /// Returns whether the partition has had events whose keys belong to other partitions.
    pub fn is_misrouted(&self) -> bool {
        self.misrouted
    }

    /// Takes in that `safe_at` was stored at the time `at`.
    pub fn note(&mut self, at: UnixMillis, safe_at: Option<UnixMillis>) {
        if self.times.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.times.push_back((at, safe_at));
        earlier::thin(&mut self.times, Self::MOST);
    }

    /// Returns the `safe_at` that was stored last by `moment`: every event that Kafka had acknowledged by it was in
    /// the table by `moment`. Returns `None` where none is known, and during a replay.
    pub fn by(&self, moment: UnixMillis) -> Option<UnixMillis> {
        self.times.iter().rev().find(|(at, _)| *at <= moment)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> UnixMillis {
        UnixMillis(second * 1_000)
    }

    #[test]
    fn an_older_one_that_is_read_late_and_the_same_once_more_change_nothing() {
        let mut times = SafeTimes::default();
        times.note(at(6), Some(at(4)));
        let known = times.clone();
        times.note(at(6), Some(at(4)));
        times.note(at(5), Some(at(3)));
        assert_eq!(times, known);
    }

    #[test]
    fn from_the_beginning_of_a_replay_on_no_time_is_known() {
        let mut times = SafeTimes::default();
        times.note(at(5), Some(at(3)));
        times.note(at(6), None);
        assert_eq!((times.by(at(5)), times.by(at(6)), times.by(at(9))), (Some(at(3)), None, None));
        times.note(at(8), Some(at(7)));
        assert_eq!((times.by(at(7)), times.by(at(8))), (None, Some(at(7))));
    }

    #[test]
    fn few_are_kept_and_the_one_that_is_found_is_older_by_a_third_of_how_far_back_one_looks_at_most() {
        let mut times = SafeTimes::default();
        let now = 10_000;
        for second in 1..=now {
            times.note(at(second), Some(at(second)));
            assert!(times.times.len() <= SafeTimes::MOST);
        }
        for back in 0..now {
            let asked = now - back;
            let found = times.by(at(asked)).expect("the first one stays").0 / 1_000;
            assert!(asked - found <= back / 3 + 1, "{back} s back: {found} for {asked}");
        }
    }
}
