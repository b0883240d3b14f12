//! Collects what this process has found in one run of a recount, such as counts that differ: [`Findings`] adds it to
//! the run's summary and counts it as metrics.

use parking_lot::{Mutex, MutexGuard};
use tally_core::audit::{Cause, Drift, Summary};

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
