//! What this process has found for a run: gathered, and counted as metrics.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tally_core::audit::{Cause, Drift, Summary};

use crate::cost::dollars;
use crate::metrics;

/// A summary while it grows.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Summary>);

impl Findings {
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
        metrics::drift(drift.cause);
        self.lock().corrected(drift);
    }

    pub(crate) fn withheld(&self, drift: Drift) {
        metrics::withheld();
        metrics::drift(drift.cause);
        let mut summary = self.lock();
        summary.withheld += 1;
        summary.differs(drift);
    }

    /// Row keys that are to be looked at: a comparison left them in doubt, or they were named.
    pub(crate) fn doubted(&self, keys: u64) {
        self.lock().doubted += keys;
    }

    /// Those of them that are settled, or left.
    pub(crate) fn settled(&self, keys: u64) {
        self.lock().settled += keys;
    }

    /// Something differs, and a dry run leaves it so.
    pub(crate) fn differs(&self, drift: Drift) {
        metrics::drift(drift.cause);
        self.lock().differs(drift);
    }

    pub(crate) fn alarm(&self) {
        metrics::alarm();
        self.lock().alarms += 1;
    }

    pub(crate) fn misplaced(&self, row: impl FnOnce() -> String) {
        metrics::misplaced(1);
        self.lock().misplaced(row);
    }

    pub(crate) fn loss_closed(&self) {
        metrics::loss_closed();
        self.lock().gaps_closed += 1;
    }

    /// What was found so far.
    pub(crate) fn so_far(&self) -> Summary {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A summary as a table for people.
pub(crate) struct Table<'a>(pub(crate) &'a Summary);

impl Table<'_> {
    /// The lines of the table, name and value.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let summary = self.0;
        let causes: Vec<String> = summary.drift.iter().map(|(cause, n)| format!("{} {n}", cause.label())).collect();
        let found =
            if causes.is_empty() { "0".to_owned() } else { format!("{} ({})", summary.found(), causes.join(", ")) };
        let corrected = format!("{} (+{} -{} likes)", summary.corrected, summary.likes_added, summary.likes_taken);
        vec![
            ("posts", summary.posts.to_string()),
            ("rows", summary.rows.to_string()),
            ("row keys proved by the audit", summary.proved.to_string()),
            ("drift found", found),
            ("corrected", corrected),
            ("totals mended", summary.totals_mended.to_string()),
            ("withheld for want of --force", summary.withheld.to_string()),
            ("alarms", summary.alarms.to_string()),
            ("misplaced rows", summary.misplaced_rows.to_string()),
            ("row keys left", summary.left.to_string()),
            ("losses closed", summary.gaps_closed.to_string()),
            ("read units", summary.cost.read_units.to_string()),
            ("write units", summary.cost.write_units.to_string()),
            ("cost at list price", format!("${:.4}", dollars(summary.cost))),
        ]
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.lines() {
            writeln!(f, "{name:<30} {value}")?;
        }
        for Drift { key, before, after, cause } in &self.0.examples {
            writeln!(f, "  {key:?} {before} -> {after} ({})", cause.label())?;
        }
        self.0.misplaced.iter().try_for_each(|row| writeln!(f, "  misplaced: {row}"))
    }
}

#[cfg(test)]
mod tests {
    use tally_core::audit::Cost;

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
        findings.misplaced(|| format!("{:?} in {:?}", "u\u{1b}", "p#3"));
        let summary = Summary { cost: Cost { read_units: 12, write_units: 30 }, ..findings.lock().clone() };
        assert_eq!((summary.found(), summary.likes_added, summary.likes_taken), (5, 3, 4));
        insta::assert_snapshot!(Table(&summary));
    }
}
