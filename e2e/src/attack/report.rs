//! Collects what an attack prints at its end: what was done, how long the pipeline took to recover, and what was
//! compared.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use parking_lot::Mutex;

/// What has happened so far. Printed, it has one line for each cause of recoveries, each count and each note.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The recoveries by their cause.
    recoveries: Mutex<BTreeMap<String, Vec<Duration>>>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    notes: Mutex<Vec<String>>,
}

impl Report {
    pub(crate) fn recovered(&self, from: impl Into<String>, took: Duration) {
        self.recoveries.lock().entry(from.into()).or_default().push(took);
    }

    /// The duration that `percent` percent of the recoveries from one cause did not exceed.
    pub(crate) fn percentile(&self, from: &str, percent: usize) -> Duration {
        self.recoveries.lock().get(from).map_or(Duration::ZERO, |took| percentile(took, percent))
    }

    /// Adds to a count, which is printed even if it is 0.
    pub(crate) fn count(&self, what: &'static str, more: usize) {
        *self.counts.lock().entry(what).or_default() += more;
    }

    pub(crate) fn note(&self, line: impl Into<String>) {
        self.notes.lock().push(line.into());
    }

    /// Notes a step, and logs it at once.
    pub(crate) fn tell(&self, line: impl Into<String>) {
        let line = line.into();
        tracing::info!("{line}");
        self.note(line);
    }

    /// Notes the result of a comparison.
    pub(crate) fn found(&self, what: &str, result: impl Display) {
        self.note(format!("{what:<28}{result}"));
    }
}

/// The duration that `percent` percent of `took` did not exceed.
pub(crate) fn percentile(took: &[Duration], percent: usize) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (from, took) in &*self.recoveries.lock() {
            let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(took, percent).as_secs_f64());
            let many = took.len();
            writeln!(f, "  {from:<28} {many:>5}   p50 {p50:>6.2} s   p99 {p99:>6.2} s   max {most:>6.2} s")?;
        }
        self.counts.lock().iter().try_for_each(|(what, count)| writeln!(f, "  {what:<28} {count:>5}"))?;
        self.notes.lock().iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_measured_duration() {
        let of = |seconds: &[u64], percent| {
            percentile(&seconds.iter().copied().map(Duration::from_secs).collect::<Vec<_>>(), percent).as_secs()
        };
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!([50, 99, 100].map(|percent| of(&hundred, percent)), [50, 99, 100]);
        assert_eq!([of(&[3, 1], 50), of(&[3, 1], 99), of(&[], 99)], [1, 3, 0]);
    }
}
