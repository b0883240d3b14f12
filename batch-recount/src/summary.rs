//! What a recount found and did: gathered while it runs, kept with its run, printed at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tally_core::ports::QueueReason;

use crate::cost::Cost;
use crate::metrics;

/// Differences that are listed one by one; beyond them only numbers are kept.
const LISTED: usize = 50;

/// Why a count was looked at, or what was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Somebody asked.
    Asked,
    /// Rows and counter differ.
    Drift,
    /// There are rows, and no counter of them.
    MissingCounter,
    /// There is a count, and no row of it.
    NoRows,
    /// The count is below zero.
    Negative,
    /// Two open stream shards fed it.
    Suspect,
    /// It kept changing: no comparison could prove it.
    Unproved,
    /// The total was not the sum over the shards.
    Total,
}

impl Cause {
    /// The cause, as a metric label and on the ledger.
    pub fn label(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Drift => "drift",
            Self::MissingCounter => "missing_counter",
            Self::NoRows => "no_rows",
            Self::Negative => "negative",
            Self::Suspect => "suspect",
            Self::Unproved => "unproved",
            Self::Total => "total",
        }
    }

    /// The cause of a difference found where this was why it was looked for.
    pub(crate) fn when_it_differs(self) -> Self {
        match self {
            Self::Asked | Self::Unproved => Self::Drift,
            known => known,
        }
    }
}

impl From<QueueReason> for Cause {
    fn from(reason: QueueReason) -> Self {
        match reason {
            QueueReason::Drift => Self::Drift,
            QueueReason::Negative => Self::Negative,
            QueueReason::Suspect => Self::Suspect,
            QueueReason::Asked => Self::Asked,
        }
    }
}

/// A sum of weights as far as a counter could hold it, for people.
pub(crate) fn clamped(weight: i128) -> i64 {
    weight.try_into().unwrap_or(if weight < 0 { i64::MIN } else { i64::MAX })
}

/// One count that differed from its rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// The row key; the counter where it is its total.
    pub key: String,
    /// What was counted.
    pub before: i64,
    /// What there is.
    pub after: i64,
    /// What was wrong.
    pub cause: Cause,
}

/// What a recount found and did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Counters looked at.
    pub posts: u64,
    /// Rows counted.
    pub rows: u64,
    /// Row keys proved without a window.
    pub proved: u64,
    /// Counts that differed, by cause.
    pub drift: BTreeMap<Cause, u64>,
    /// Corrections of row keys.
    pub corrected: u64,
    /// Totals set to their sum.
    pub totals_mended: u64,
    /// Likes added by corrections.
    pub likes_added: u64,
    /// Likes taken away by corrections.
    pub likes_taken: u64,
    /// Large corrections not made.
    pub withheld: u64,
    /// Windows opened.
    pub windows: u64,
    /// Windows that came to nothing and were repeated.
    pub windows_repeated: u64,
    /// Counts that a second window found wrong again.
    pub alarms: u64,
    /// Rows outside their user's shard, and rows that are none.
    pub misplaced_rows: u64,
    /// Row keys that may be wrong still.
    pub left: u64,
    /// Gaps closed.
    pub gaps_closed: u64,
    /// What it cost.
    pub cost: Cost,
    /// Some of what differed.
    pub examples: Vec<Drift>,
    /// Some of the misplaced rows.
    pub misplaced: Vec<String>,
}

impl Summary {
    /// Counts that differed.
    pub fn found(&self) -> u64 {
        self.drift.values().sum()
    }

    /// Adds what another process has found for the same run.
    pub(crate) fn add(&mut self, other: Self) {
        for (cause, found) in other.drift {
            *self.drift.entry(cause).or_default() += found;
        }
        self.posts += other.posts;
        self.rows += other.rows;
        self.proved += other.proved;
        self.corrected += other.corrected;
        self.totals_mended += other.totals_mended;
        self.likes_added += other.likes_added;
        self.likes_taken += other.likes_taken;
        self.withheld += other.withheld;
        self.windows += other.windows;
        self.windows_repeated += other.windows_repeated;
        self.alarms += other.alarms;
        self.misplaced_rows += other.misplaced_rows;
        self.left += other.left;
        self.gaps_closed += other.gaps_closed;
        self.cost.add(other.cost);
        self.examples.extend(other.examples);
        self.examples.truncate(LISTED);
        self.misplaced.extend(other.misplaced);
        self.misplaced.truncate(LISTED);
    }

    /// The lines of the table, name and value.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let causes: Vec<String> = self.drift.iter().map(|(cause, n)| format!("{} {n}", cause.label())).collect();
        let found =
            if causes.is_empty() { "0".to_owned() } else { format!("{} ({})", self.found(), causes.join(", ")) };
        vec![
            ("posts", self.posts.to_string()),
            ("rows", self.rows.to_string()),
            ("row keys proved by the audit", self.proved.to_string()),
            ("drift found", found),
            ("corrected", format!("{} (+{} -{} likes)", self.corrected, self.likes_added, self.likes_taken)),
            ("totals mended", self.totals_mended.to_string()),
            ("withheld for want of --force", self.withheld.to_string()),
            ("windows", format!("{} ({} repeated)", self.windows, self.windows_repeated)),
            ("alarms", self.alarms.to_string()),
            ("misplaced rows", self.misplaced_rows.to_string()),
            ("row keys left", self.left.to_string()),
            ("gaps closed", self.gaps_closed.to_string()),
            ("read units", self.cost.read_units.to_string()),
            ("write units", self.cost.write_units.to_string()),
            ("cost at list price", format!("${:.4}", self.cost.dollars())),
        ]
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.lines() {
            writeln!(f, "{name:<30} {value}")?;
        }
        for Drift { key, before, after, cause } in &self.examples {
            writeln!(f, "  {key:?} {before} -> {after} ({})", cause.label())?;
        }
        self.misplaced.iter().try_for_each(|row| writeln!(f, "  misplaced: {row}"))
    }
}

/// A summary while it grows.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Summary>);

impl Findings {
    /// The summary so far.
    pub(crate) fn so_far(&self, cost: Cost) -> Summary {
        Summary { cost, ..self.lock().clone() }
    }

    pub(crate) fn scanned(&self, rows: u64) {
        self.lock().rows += rows;
        metrics::rows(rows);
    }

    pub(crate) fn counters(&self, posts: u64) {
        self.lock().posts += posts;
    }

    pub(crate) fn proved(&self, keys: u64) {
        self.lock().proved += keys;
        metrics::keys("proved", keys);
    }

    pub(crate) fn corrected(&self, drift: Drift) {
        let correction = drift.after.saturating_sub(drift.before);
        metrics::corrected(if drift.cause == Cause::Total { "total" } else { "shard" }, correction);
        let mut summary = self.lock();
        if drift.cause == Cause::Total {
            summary.totals_mended += 1;
        } else {
            summary.corrected += 1;
            let sum = if correction < 0 { &mut summary.likes_taken } else { &mut summary.likes_added };
            *sum += correction.unsigned_abs();
        }
        summary.found_one(drift);
    }

    pub(crate) fn withheld(&self, drift: Drift) {
        metrics::withheld();
        let mut summary = self.lock();
        summary.withheld += 1;
        summary.found_one(drift);
    }

    /// Something differs, and a dry run leaves it so.
    pub(crate) fn differs(&self, drift: Drift) {
        self.lock().found_one(drift);
    }

    pub(crate) fn window(&self, repeated: bool) {
        let mut summary = self.lock();
        summary.windows += 1;
        summary.windows_repeated += u64::from(repeated);
    }

    pub(crate) fn alarm(&self) {
        self.lock().alarms += 1;
    }

    pub(crate) fn misplaced(&self, row: impl FnOnce() -> String) {
        metrics::misplaced(1);
        let mut summary = self.lock();
        summary.misplaced_rows += 1;
        if summary.misplaced.len() < LISTED {
            summary.misplaced.push(row());
        }
    }

    pub(crate) fn gap_closed(&self) {
        metrics::gap_closed();
        self.lock().gaps_closed += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Summary {
    fn found_one(&mut self, drift: Drift) {
        metrics::drift(drift.cause);
        *self.drift.entry(drift.cause).or_default() += 1;
        if self.examples.len() < LISTED {
            self.examples.push(drift);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(cause: Cause, before: i64, after: i64) -> Drift {
        Drift { key: "p\n#0".to_owned(), before, after, cause }
    }

    #[test]
    fn a_summary_is_a_table_that_no_id_can_break() {
        let findings = Findings::default();
        findings.scanned(1_000);
        findings.corrected(drift(Cause::Drift, 3, 5));
        findings.corrected(drift(Cause::Negative, -1, 0));
        findings.corrected(drift(Cause::NoRows, 4, 0));
        findings.corrected(drift(Cause::Total, 9, 7));
        findings.withheld(drift(Cause::MissingCounter, 0, 5_000));
        findings.window(true);
        findings.window(false);
        findings.misplaced(|| format!("{:?} in {:?}", "u\u{1b}", "p#3"));
        let summary = findings.so_far(Cost { read_units: 12, write_units: 30 });
        assert_eq!((summary.found(), summary.likes_added, summary.likes_taken), (5, 3, 4));
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn examples_are_bounded() {
        let findings = Findings::default();
        for _ in 0..1_000 {
            findings.differs(drift(Cause::Drift, 0, 1));
            findings.misplaced(String::new);
        }
        let summary = findings.so_far(Cost::default());
        assert_eq!((summary.examples.len(), summary.misplaced.len()), (LISTED, LISTED));
        assert_eq!((summary.found(), summary.misplaced_rows), (1_000, 1_000));
    }
}
