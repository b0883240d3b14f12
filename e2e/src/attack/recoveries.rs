//! How long recoveries from an attack took.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Recoveries by their cause.
pub(crate) type Table = BTreeMap<String, Recoveries>;

/// Recoveries from one cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recoveries(Vec<Duration>);

impl Recoveries {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn merge(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Their number.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The duration that `percent` percent of them did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

impl fmt::Display for Recoveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, most] = [50, 99, 100].map(|percent| self.percentile(percent).as_secs_f64());
        write!(f, "{:>5}   p50 {p50:>6.2} s   p99 {p99:>6.2} s   max {most:>6.2} s", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_measured_duration() {
        let mut recoveries = Recoveries::default();
        assert_eq!(recoveries.percentile(99), Duration::ZERO);
        (1..=100).rev().for_each(|seconds| recoveries.add(Duration::from_secs(seconds)));
        assert_eq!([50, 99, 100].map(|percent| recoveries.percentile(percent).as_secs()), [50, 99, 100]);
        let mut few = Recoveries::default();
        few.add(Duration::from_secs(3));
        few.add(Duration::from_secs(1));
        assert_eq!([50, 99].map(|percent| few.percentile(percent).as_secs()), [1, 3]);
        few.merge(recoveries);
        assert_eq!(few.count(), 102);
    }
}
