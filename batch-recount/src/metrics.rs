//! The recount's metrics: each name is here once, for the catalogue and for the code that counts.

use tally_core::fault::Fault;
use tally_core::time::UnixMillis;
use tally_service::metrics::{Catalogue, Kind, Label, Metric, Unit};

const fn count(name: &'static str, labels: &'static [Label], description: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: Unit::Count, labels, description }
}

pub(crate) const ROWS: Metric = count("tally_recount_rows_total", &[], "Rows counted by audits.");
pub(crate) const KEYS: Metric = count(
    "tally_recount_keys_total",
    &[Label::of("outcome", &["proved", "repaired", "left"])],
    "Row keys audited, by outcome: proved right as they were, repaired by a correction, left unsettled.",
);
pub(crate) const DRIFT_FOUND: Metric = count(
    "tally_recount_drift_found_total",
    &[Label::of("cause", CAUSES)],
    "Counts found to differ from their rows, by cause.",
);
pub(crate) const CORRECTED: Metric = count(
    "tally_recount_corrected_total",
    &[Label::of("what", &["shard", "total"])],
    "Corrections written: of a shard, of a total.",
);
pub(crate) const LIKES_CORRECTED: Metric = count(
    "tally_recount_likes_corrected_total",
    &[Label::of("sign", &["plus", "minus"])],
    "Likes added and taken away by corrections.",
);
pub(crate) const WITHHELD: Metric =
    count("tally_recount_withheld_total", &[], "Large corrections not made for want of --force.");
pub(crate) const ALARMS: Metric = count(
    "tally_recount_alarms_total",
    &[],
    "Counts that differed again after they had been corrected and found equal.",
);
pub(crate) const MISPLACED_ROWS: Metric =
    count("tally_recount_misplaced_rows_total", &[], "Rows found outside their user's shard.");
pub(crate) const LOSSES_CLOSED: Metric =
    count("tally_recount_gaps_closed_total", &[], "Losses that an audit has closed.");
pub(crate) const UNITS: Metric =
    count("tally_recount_units_total", &[Label::of("kind", &["read", "write"])], "Read and write units spent.");
pub(crate) const FAULTS: Metric =
    count("tally_recount_faults_total", &[Label::of("class", Fault::CLASSES)], "Failed calls that were tried again.");
pub(crate) const UNLIKES: Metric = count("tally_recount_unlikes_total", &[], "Unlikes produced by erasures.");
pub(crate) const LAST_SUCCESS: Metric = Metric {
    name: "tally_recount_last_success_timestamp_seconds",
    kind: Kind::Gauge,
    unit: Unit::Timestamp,
    labels: &[Label::of("scope", &["audit", "since", "posts", "queue"])],
    description: "When a recount last ended with no drift left, in seconds since 1970.",
};

/// What may be wrong with a count.
const CAUSES: &[&str] = &["drift", "missing_counter", "no_rows", "negative", "suspect", "total"];

/// Every metric of a recount.
pub const CATALOGUE: Catalogue = Catalogue(&[
    ROWS,
    KEYS,
    DRIFT_FOUND,
    CORRECTED,
    LIKES_CORRECTED,
    WITHHELD,
    ALARMS,
    MISPLACED_ROWS,
    LOSSES_CLOSED,
    UNITS,
    FAULTS,
    UNLIKES,
    LAST_SUCCESS,
]);

/// Takes note that a recount of this scope has ended with no drift left.
pub(crate) fn succeeded(scope: &'static str, at: UnixMillis) {
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^52")]
    LAST_SUCCESS.gauge(&[scope]).set((at.0 / 1000) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_documented_one() {
        insta::assert_snapshot!(CATALOGUE);
        assert_eq!(CATALOGUE.misnamed(), [""; 0]);
    }
}
