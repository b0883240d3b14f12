//! What was forgotten to stay within memory, and by how much sums may be off for it.

use std::collections::VecDeque;

/// One of so many keys goes in a round.
const SHARE: usize = 8;

/// The rounds that windows still reach back to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(VecDeque<Round>);

#[derive(Clone, Debug)]
struct Round {
    /// The last second of which something was forgotten.
    second: u64,
    /// For each window, the most that a forgotten sum is off.
    peaks: Vec<u64>,
}

impl Rounds {
    /// What was gained up to `second` was forgotten of keys whose sums are off by no more than `peaks`, for each window.
    pub(crate) fn add(&mut self, second: u64, peaks: Vec<u64>) {
        if peaks.iter().any(|peak| *peak > 0) {
            self.0.push_back(Round { second, peaks });
        }
    }

    /// What is before every window is of no matter any more.
    pub(crate) fn expire(&mut self, from: u64) {
        self.0.retain(|round| round.second > from);
    }

    /// By how much a sum of the window at `nth`, which begins behind `from`, is off at most: a key may have been forgotten
    /// in each round.
    pub(crate) fn bound(&self, nth: usize, from: u64) -> u64 {
        let rounds = self.0.iter().filter(|round| round.second > from);
        rounds.map(|round| round.peaks[nth]).fold(0, u64::saturating_add)
    }
}

/// Which keys go in a round.
pub(crate) struct Choice {
    /// All of less than this,
    pub(crate) limit: u64,
    /// and so many of as much, the first ones.
    pub(crate) at_limit: usize,
}

impl Choice {
    /// An eighth of all, those that leave the least behind; and all that leave nothing.
    pub(crate) fn of(mut peaks: Vec<u64>) -> Self {
        let count = peaks.len().div_ceil(SHARE);
        if count == 0 {
            return Self { limit: 0, at_limit: 0 };
        }
        let (below, limit, _) = peaks.select_nth_unstable(count - 1);
        let (limit, below) = (*limit, below.iter().filter(|peak| *peak < limit).count());
        Self { limit, at_limit: if limit == 0 { usize::MAX } else { count - below } }
    }

    /// Whether a key of this peak goes.
    pub(crate) fn takes(&mut self, peak: u64) -> bool {
        let is_at_limit = peak == self.limit && self.at_limit > 0;
        if is_at_limit {
            self.at_limit -= 1;
        }
        peak < self.limit || is_at_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_goes_that_leaves_the_least_behind_and_what_leaves_nothing() {
        let gone = |peaks: &[u64]| {
            let mut choice = Choice::of(peaks.to_vec());
            peaks.iter().map(|peak| choice.takes(*peak)).collect::<Vec<_>>()
        };
        assert_eq!(gone(&[]), [false; 0]);
        assert_eq!(gone(&[5]), [true]);
        assert_eq!(gone(&[5, 2, 3, 2, 9, 2, 7, 8, 9]), [false, true, false, true, false, false, false, false, false]);
        assert_eq!(gone(&[0, 2, 0, 2, 0, 2, 7, 8]), [true, false, true, false, true, false, false, false]);
    }

    #[test]
    fn rounds_add_up_until_windows_begin_behind_them() {
        let mut rounds = Rounds::default();
        rounds.add(10, vec![1, 2]);
        rounds.add(20, vec![0, 0]);
        rounds.add(20, vec![4, 8]);
        assert_eq!([rounds.bound(0, 9), rounds.bound(1, 9), rounds.bound(1, 10), rounds.bound(1, 20)], [5, 10, 8, 0]);
        rounds.expire(10);
        assert_eq!((rounds.0.len(), rounds.bound(1, 0)), (1, 8));
    }
}
