//! What a run of the recount found, corrected and cost. It is gathered while the run goes on, and stored with the run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many differences and misplaced rows are listed one by one; further ones are only counted.
const LISTED: usize = 50;

/// Why a row key is queued for a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueReason {
    /// Rows and counter differ.
    Drift,
    /// The counter is below zero.
    Negative,
    /// The weight of a row (what it counts for) could not be read.
    Doubt,
    /// A person asked for it.
    Asked,
}

/// Why a count was recounted, or what was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A person asked for it.
    Asked,
    /// Rows and counter differ.
    Drift,
    /// There are rows, but no counter.
    MissingCounter,
    /// There is a count, but no row.
    NoRows,
    /// The count is below zero.
    Negative,
    /// A row's weight cannot be read, or could not be read before.
    Suspect,
    /// The total was not the sum of the shards.
    Total,
}

impl Cause {
    /// Returns the cause as metrics and the ledger write it.
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
    /// The row key; for a wrong total, the counter.
    pub key: String,
    /// What the counter had.
    pub before: i64,
    /// What the rows add up to.
    pub after: i64,
    pub cause: Cause,
}

/// Units that the run spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Read units, rounded up.
    pub read_units: u64,
    /// Write units of the recount itself. The change-streamer spends more to apply its corrections.
    pub write_units: u64,
}

/// What a run found and corrected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Counters that were compared: a post may have several. Earlier builds wrote them as `posts`.
    #[serde(alias = "posts")]
    pub counters: u64,
    /// Rows that an audit scanned.
    #[serde(skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// Row keys whose count was right at the first comparison.
    pub proved: u64,
    /// Row keys that the first comparison did not settle, because they changed or differ.
    #[serde(skip_serializing_if = "is_zero")]
    pub doubted: u64,
    /// Of those, the keys that are settled by now or given up.
    #[serde(skip_serializing_if = "is_zero")]
    pub settled: u64,
    /// Counts that differed, by cause.
    pub drift: BTreeMap<Cause, u64>,
    /// Corrected row keys.
    pub corrected: u64,
    /// Totals set to the sum of their shards.
    pub totals_mended: u64,
    /// What corrections added.
    pub likes_added: u64,
    /// What corrections took away.
    pub likes_taken: u64,
    /// Large corrections that were not made.
    pub withheld: u64,
    /// Counts that differed again after they had been corrected and found right.
    pub alarms: u64,
    /// Rows outside their member's shard, and items that are no rows.
    pub misplaced_rows: u64,
    /// Row keys that may still be wrong.
    pub left: u64,
    /// Losses that the run closed.
    pub gaps_closed: u64,
    pub cost: Cost,
    /// Some of the differences.
    pub examples: Vec<Drift>,
    /// Some of the misplaced rows.
    pub misplaced: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Summary {
    /// Returns how many counts differed.
    pub fn found(&self) -> u64 {
        self.drift.values().sum()
    }

    /// Adds what another process found for the same run.
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

    /// Returns how many corrections were made: of row keys and of totals.
    pub fn corrections(&self) -> u64 {
        self.corrected + self.totals_mended
    }

    /// Notes a count that differs.
    pub fn differs(&mut self, drift: Drift) {
        *self.drift.entry(drift.cause).or_default() += 1;
        if self.examples.len() < LISTED {
            self.examples.push(drift);
        }
    }

    /// Notes a count that was corrected.
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

    /// Notes a misplaced row.
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

    #[test]
    fn what_is_listed_is_bounded_also_when_processes_are_added_up() {
        let mut summary = Summary::default();
        for _ in 0..1_000 {
            summary.differs(Drift { key: "p#0".to_owned(), before: 0, after: 1, cause: Cause::Drift });
            summary.misplaced(String::new);
        }
        summary.add(summary.clone());
        assert_eq!((summary.examples.len(), summary.misplaced.len()), (LISTED, LISTED));
        assert_eq!((summary.found(), summary.misplaced_rows), (2_000, 2_000));
    }
}
