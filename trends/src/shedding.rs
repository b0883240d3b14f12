//! Chooses which keys `fold.rs` forgets to limit memory, and records how much the sums of trending lists may be off
//! because of it. A key is one subject, a post or hashtag, in one counter and region.

use std::collections::VecDeque;

/// A round forgets one key in eight.
const SHARE: usize = 8;

/// The rounds inside the windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(VecDeque<Round>);

#[derive(Clone, Debug)]
struct Round {
    /// The last second whose gains were forgotten.
    second: u64,
    /// For each window, the most that a forgotten sum is off.
    peaks: Vec<u64>,
}

impl Rounds {
    /// Adds a round: gains up to `second` were forgotten, of keys whose sums are off by at most `peaks`, one per
    /// window.
    pub(crate) fn add(&mut self, second: u64, peaks: Vec<u64>) {
        if peaks.iter().any(|peak| *peak > 0) {
            self.0.push_back(Round { second, peaks });
        }
    }

    /// Removes the rounds that lie before every window.
    pub(crate) fn expire(&mut self, from: u64) {
        self.0.retain(|round| round.second > from);
    }

    /// Returns the most that a sum of the window at `nth`, which begins after `from`, can be off: a key may have been
    /// forgotten in each round.
    pub(crate) fn bound(&self, nth: usize, from: u64) -> u64 {
        let rounds = self.0.iter().filter(|round| round.second > from);
        rounds.map(|round| round.peaks[nth]).fold(0, u64::saturating_add)
    }
}

/// The keys that a round forgets.
pub(crate) struct Choice {
    /// All keys with a smaller peak,
    limit: u64,
    /// and this many keys with exactly this peak, the first ones.
    at_limit: usize,
}

impl Choice {
    /// Chooses the eighth of all keys with the smallest peaks, and every key whose peak is 0.
    pub(crate) fn of(mut peaks: Vec<u64>) -> Self {
        let count = peaks.len().div_ceil(SHARE);
        if count == 0 {
            return Self { limit: 0, at_limit: 0 };
        }
        let (below, limit, _) = peaks.select_nth_unstable(count - 1);
        let (limit, below) = (*limit, below.iter().filter(|peak| *peak < limit).count());
        Self { limit, at_limit: if limit == 0 { usize::MAX } else { count - below } }
    }

    /// Returns whether a key with this peak is forgotten.
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
    fn a_round_forgets_the_eighth_with_the_smallest_peaks_and_all_without_any() {
        let gone = |peaks: &[u64]| {
            let mut choice = Choice::of(peaks.to_vec());
            peaks.iter().map(|peak| choice.takes(*peak)).collect::<Vec<_>>()
        };
        assert_eq!(gone(&[5, 2, 3, 2, 9, 2, 7, 8, 9]), [false, true, false, true, false, false, false, false, false]);
        assert_eq!(gone(&[0, 2, 0, 2, 0, 2, 7, 8]), [true, false, true, false, true, false, false, false]);
    }
}
