//! What a recount found and did, and what it cost: gathered while it runs, kept with its run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Differences and misplaced rows that are listed one by one; beyond them only numbers are kept.
const LISTED: usize = 50;

/// Why a row key waits for a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueReason {
    /// Rows and counter differ.
    Drift,
    /// The counter is below zero.
    Negative,
    /// The weight of a row could not be read.
    Doubt,
    /// A person asked for it.
    Asked,
}

/// Why a count was looked at, or what was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A person asked for it.
    Asked,
    /// Rows and counter differ.
    Drift,
    /// There are rows, and no counter of them.
    MissingCounter,
    /// There is a count, and no row of it.
    NoRows,
    /// The count is below zero.
    Negative,
    /// It has a row whose weight could not be read, or could not be read before.
    Suspect,
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
            Self::Total => "total",
        }
    }
}

impl From<QueueReason> for Cause {
    fn from(reason: QueueReason) -> Self {
        match reason {
            QueueReason::Drift => Self::Drift,
            QueueReason::Negative => Self::Negative,
            QueueReason::Doubt => Self::Suspect,
            QueueReason::Asked => Self::Asked,
        }
    }
}

/// One count that differed from its rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// Units of the store spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Read units, rounded up.
    pub read_units: u64,
    /// Write units of the recount. What it makes the change-streamer write is not among them.
    pub write_units: u64,
}

/// What a recount found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Counters looked at: a post has some. Earlier builds wrote them as `posts`.
    #[serde(alias = "posts")]
    pub counters: u64,
    /// Rows that an audit has scanned.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// Row keys whose count was found equal at the first comparison.
    pub proved: u64,
    /// Row keys that the first comparison left in doubt, since they moved or differ.
    #[serde(skip_serializing_if = "is_zero")]
    pub doubted: u64,
    /// Those of them that are settled, or left.
    #[serde(skip_serializing_if = "is_zero")]
    pub settled: u64,
    /// Counts that differed, by cause.
    pub drift: BTreeMap<Cause, u64>,
    /// Corrections of row keys.
    pub corrected: u64,
    /// Totals set to their sum.
    pub totals_mended: u64,
    /// What corrections have added.
    pub likes_added: u64,
    /// What corrections have taken away.
    pub likes_taken: u64,
    /// Large corrections not made.
    pub withheld: u64,
    /// Counts that differed again after they had been corrected and found equal.
    pub alarms: u64,
    /// Rows outside their member's shard, and rows that are none.
    pub misplaced_rows: u64,
    /// Row keys that may be wrong still.
    pub left: u64,
    /// Losses closed.
    pub gaps_closed: u64,
    /// What it cost.
    pub cost: Cost,
    /// Some of what differed.
    pub examples: Vec<Drift>,
    /// Some of the misplaced rows.
    pub misplaced: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Summary {
    /// Counts that differed.
    pub fn found(&self) -> u64 {
        self.drift.values().sum()
    }

    /// Adds what another process has found for the same run.
    pub fn add(&mut self, other: Self) {
        for (cause, found) in other.drift {
            *self.drift.entry(cause).or_default() += found;
        }
        self.counters += other.counters;
        self.rows += other.rows;
        self.proved += other.proved;
        self.doubted += other.doubted;
        self.settled += other.settled;
        self.corrected += other.corrected;
        self.totals_mended += other.totals_mended;
        self.likes_added += other.likes_added;
        self.likes_taken += other.likes_taken;
        self.withheld += other.withheld;
        self.alarms += other.alarms;
        self.misplaced_rows += other.misplaced_rows;
        self.left += other.left;
        self.gaps_closed += other.gaps_closed;
        self.cost.read_units += other.cost.read_units;
        self.cost.write_units += other.cost.write_units;
        self.examples.extend(other.examples);
        self.examples.truncate(LISTED);
        self.misplaced.extend(other.misplaced);
        self.misplaced.truncate(LISTED);
    }

    /// Takes note of a count that differs.
    pub fn differs(&mut self, drift: Drift) {
        *self.drift.entry(drift.cause).or_default() += 1;
        if self.examples.len() < LISTED {
            self.examples.push(drift);
        }
    }

    /// Takes note of a count that was corrected.
    pub fn corrected(&mut self, drift: Drift) {
        let correction = drift.after.saturating_sub(drift.before);
        if drift.cause == Cause::Total {
            self.totals_mended += 1;
        } else {
            self.corrected += 1;
            let sum = if correction < 0 { &mut self.likes_taken } else { &mut self.likes_added };
            *sum += correction.unsigned_abs();
        }
        self.differs(drift);
    }

    /// Takes note of a misplaced row.
    pub fn misplaced(&mut self, row: impl FnOnce() -> String) {
        self.misplaced_rows += 1;
        if self.misplaced.len() < LISTED {
            self.misplaced.push(row());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(cause: Cause, before: i64, after: i64) -> Drift {
        Drift { key: "p#0".to_owned(), before, after, cause }
    }

    #[test]
    fn corrections_of_shards_are_summed_up_and_those_of_totals_only_counted() {
        let mut summary = Summary::default();
        for (cause, before, after) in [(Cause::Drift, 3, 5), (Cause::NoRows, 4, 0), (Cause::Total, 9, 7)] {
            summary.corrected(drift(cause, before, after));
        }
        assert_eq!((summary.corrected, summary.likes_added, summary.likes_taken), (2, 2, 4));
        assert_eq!((summary.totals_mended, summary.found()), (1, 3));
    }

    #[test]
    fn what_is_listed_is_bounded_also_when_processes_are_added_up() {
        let mut summary = Summary::default();
        for _ in 0..1_000 {
            summary.differs(drift(Cause::Drift, 0, 1));
            summary.misplaced(String::new);
        }
        summary.add(summary.clone());
        assert_eq!((summary.examples.len(), summary.misplaced.len()), (LISTED, LISTED));
        assert_eq!((summary.found(), summary.misplaced_rows), (2_000, 2_000));
    }
}
