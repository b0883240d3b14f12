//! What this process has found in a run: [`Findings`] adds it to a summary and counts it as metrics.

use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use tally_core::audit::{Cause, Cost, Drift, Summary};

use crate::metrics;

/// A summary while it grows.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Summary>);

impl Findings {
    pub(crate) fn scanned(&self, rows: u64) {
        self.so_far().rows += rows;
        metrics::ROWS.counter(&[]).increment(rows);
    }

    pub(crate) fn proved(&self, keys: u64) {
        self.so_far().proved += keys;
        metrics::KEYS.counter(&["proved"]).increment(keys);
    }

    pub(crate) fn corrected(&self, drift: Drift) {
        let correction = drift.after.saturating_sub(drift.before);
        let what = if drift.cause == Cause::Total { "total" } else { "shard" };
        metrics::CORRECTED.counter(&[what]).increment(1);
        let sign = if correction < 0 { "minus" } else { "plus" };
        metrics::LIKES_CORRECTED.counter(&[sign]).increment(correction.unsigned_abs());
        metrics::DRIFT_FOUND.counter(&[drift.cause.label()]).increment(1);
        self.so_far().corrected(drift);
    }

    pub(crate) fn withheld(&self, drift: Drift) {
        metrics::WITHHELD.counter(&[]).increment(1);
        self.so_far().withheld += 1;
        self.differs(drift);
    }

    /// Takes note of a difference that stays.
    pub(crate) fn differs(&self, drift: Drift) {
        metrics::DRIFT_FOUND.counter(&[drift.cause.label()]).increment(1);
        self.so_far().differs(drift);
    }

    pub(crate) fn alarm(&self) {
        metrics::ALARMS.counter(&[]).increment(1);
        self.so_far().alarms += 1;
    }

    pub(crate) fn misplaced(&self, row: impl FnOnce() -> String) {
        metrics::MISPLACED_ROWS.counter(&[]).increment(1);
        self.so_far().misplaced(row);
    }

    pub(crate) fn loss_closed(&self) {
        metrics::LOSSES_CLOSED.counter(&[]).increment(1);
        self.so_far().gaps_closed += 1;
    }

    /// Returns what was found so far.
    pub(crate) fn so_far(&self) -> MutexGuard<'_, Summary> {
        self.0.lock()
    }
}

/// Returns the list price of `cost` on demand in the cheapest regions, in dollars.
#[expect(clippy::cast_precision_loss, reason = "a price is shown to the cent; units stay far below 2^52")]
fn dollars(cost: Cost) -> f64 {
    (cost.read_units as f64 * 0.125 + cost.write_units as f64 * 0.625) / 1e6
}

/// Shows a summary as a table for people.
pub(crate) struct Table<'a>(pub(crate) &'a Summary);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.0;
        let causes: Vec<String> = summary.drift.iter().map(|(cause, n)| format!("{} {n}", cause.label())).collect();
        let found =
            if causes.is_empty() { "0".to_owned() } else { format!("{} ({})", summary.found(), causes.join(", ")) };
        let corrected = format!("{} (+{} -{} likes)", summary.corrected, summary.likes_added, summary.likes_taken);
        let lines = [
            ("counters", summary.counters.to_string()),
            ("rows scanned", summary.rows.to_string()),
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
        ];
        for (name, value) in lines {
            writeln!(f, "{name:<30} {value}")?;
        }
        for Drift { key, before, after, cause } in &summary.examples {
            writeln!(f, "  {key:?} {before} -> {after} ({})", cause.label())?;
        }
        summary.misplaced.iter().try_for_each(|row| writeln!(f, "  misplaced: {row}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(cause: Cause, before: i64, after: i64) -> Drift {
        Drift { key: "p\n#0".to_owned(), before, after, cause }
    }

    #[test]
    fn a_price_is_that_of_the_list() {
        let million = Cost { read_units: 1_000_000, write_units: 2_000_000 };
        assert!((dollars(million) - 1.375).abs() < 1e-9);
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
        let summary = Summary { cost: Cost { read_units: 12, write_units: 30 }, ..findings.so_far().clone() };
        assert_eq!((summary.found(), summary.likes_added, summary.likes_taken), (5, 3, 4));
        insta::assert_snapshot!(Table(&summary));
    }
}
