//! How a run of the recount is shown: as JSON, as a table and as one line, wherever it is read.

use std::fmt;

use serde_json::{Value, json};

use super::{Cost, Drift, RunRecord, Summary};

impl RunRecord {
    /// Returns the JSON that routes and commands answer with.
    pub fn to_json(&self) -> Value {
        json!({
            "run": self.run.to_string(),
            "began": self.began,
            "ended": self.ended,
            "scope": self.scope_text(),
            "summary": self.summary,
        })
    }
}

impl Summary {
    /// Returns the summary in one line, without numbers that are 0.
    pub fn line(&self) -> String {
        let Self { counters, rows, withheld, alarms, left, gaps_closed, .. } = self;
        let numbers = [
            (*rows, "rows"),
            (self.found(), "differed"),
            (self.corrections(), "corrected"),
            (*withheld, "withheld"),
            (*alarms, "alarms"),
            (*left, "left"),
            (*gaps_closed, "losses closed"),
        ];
        let numbers =
            numbers.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!(", {number} {what}"));
        let none = if self.found() == 0 { ", nothing differed" } else { "" };
        format!("{counters} counters{}{none}", numbers.collect::<String>())
    }
}

/// Returns the list price of `cost` on demand in the cheapest regions, in dollars.
#[expect(clippy::cast_precision_loss, reason = "a price is shown to the cent; units stay far below 2^52")]
fn dollars(cost: Cost) -> f64 {
    (cost.read_units as f64 * 0.125 + cost.write_units as f64 * 0.625) / 1e6
}

/// The table for people. Lines of 0 are left out, except how many counters there were, how many differed, and the cost.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<String> = self.drift.iter().map(|(cause, n)| format!("{} {n}", cause.label())).collect();
        let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        let likes = format!(" (+{} -{} likes)", self.likes_added, self.likes_taken);
        let lines = [
            ("rows scanned", self.rows, ""),
            ("row keys proved by the audit", self.proved, ""),
            ("row keys corrected", self.corrected, likes.as_str()),
            ("totals mended", self.totals_mended, ""),
            ("withheld (needs --force)", self.withheld, ""),
            ("alarms", self.alarms, ""),
            ("misplaced rows", self.misplaced_rows, ""),
            ("row keys left", self.left, ""),
            ("losses closed", self.gaps_closed, ""),
            ("read units", self.cost.read_units, ""),
            ("write units", self.cost.write_units, ""),
        ];
        writeln!(f, "{:<30} {}", "counters", self.counters)?;
        writeln!(f, "{:<30} {}{causes}", "differed", self.found())?;
        for (name, number, note) in lines.iter().filter(|(_, number, _)| *number > 0) {
            writeln!(f, "{name:<30} {number}{note}")?;
        }
        writeln!(f, "{:<30} ${:.4}", "cost at list price", dollars(self.cost))?;
        for Drift { key, before, after, cause } in &self.examples {
            writeln!(f, "  {key:?} {before} -> {after} ({})", cause.label())?;
        }
        self.misplaced.iter().try_for_each(|row| writeln!(f, "  misplaced: {row}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Cause;

    #[test]
    fn a_summary_is_a_table_that_no_id_can_break_and_one_line() {
        let drift = |cause, before, after| Drift { key: "p\n#0".to_owned(), before, after, cause };
        let mut summary =
            Summary { cost: Cost { read_units: 1_000_000, write_units: 2_000_000 }, ..Summary::default() };
        assert_eq!(summary.line(), "0 counters, nothing differed");
        summary.rows = 1_000;
        summary.corrected(drift(Cause::Drift, 3, 5));
        summary.corrected(drift(Cause::Negative, -1, 0));
        summary.corrected(drift(Cause::NoRows, 4, 0));
        summary.corrected(drift(Cause::Total, 9, 7));
        summary.withheld = 1;
        summary.differs(drift(Cause::MissingCounter, 0, 5_000));
        summary.misplaced(|| format!("{:?} in {:?}", "u\u{1b}", "p#3"));
        assert_eq!((summary.found(), summary.likes_added, summary.likes_taken), (5, 3, 4));
        assert_eq!(summary.line(), "0 counters, 1000 rows, 5 differed, 4 corrected, 1 withheld");
        insta::assert_snapshot!(summary);
    }
}
