//! The recount's metrics: each name is here once, for the catalogue and for the code that counts.

use tally_core::fault::Fault;
use tally_core::time::UnixMillis;
use tally_service::catalogue;
use tally_service::metrics::Label;

/// What may be wrong with a count.
const CAUSES: &[&str] = &["drift", "missing_counter", "no_rows", "negative", "suspect", "total"];

catalogue! {
    ROWS: Counter Count "tally_recount_rows_total" [],
        "Rows counted by audits.";
    KEYS: Counter Count "tally_recount_keys_total" [Label::of("outcome", &["proved", "repaired", "left"])],
        "Row keys audited, by outcome: proved right as they were, repaired by a correction, left unsettled.";
    DRIFT_FOUND: Counter Count "tally_recount_drift_found_total" [Label::of("cause", CAUSES)],
        "Counts found to differ from their rows, by cause.";
    CORRECTED: Counter Count "tally_recount_corrected_total" [Label::of("what", &["shard", "total"])],
        "Corrections written: of a shard, of a total.";
    LIKES_CORRECTED: Counter Count "tally_recount_likes_corrected_total" [Label::of("sign", &["plus", "minus"])],
        "Likes added and taken away by corrections.";
    WITHHELD: Counter Count "tally_recount_withheld_total" [],
        "Large corrections not made for want of --force.";
    ALARMS: Counter Count "tally_recount_alarms_total" [],
        "Counts that differed again after they had been corrected and found equal.";
    MISPLACED_ROWS: Counter Count "tally_recount_misplaced_rows_total" [],
        "Rows found outside their user's shard.";
    LOSSES_CLOSED: Counter Count "tally_recount_gaps_closed_total" [],
        "Losses that an audit has closed.";
    UNITS: Counter Count "tally_recount_units_total" [Label::of("kind", &["read", "write"])],
        "Read and write units spent.";
    FAULTS: Counter Count "tally_recount_faults_total" [Label::of("class", Fault::CLASSES)],
        "Failed calls that were tried again.";
    UNLIKES: Counter Count "tally_recount_unlikes_total" [],
        "Unlikes produced by erasures.";
    LAST_SUCCESS: Gauge Timestamp "tally_recount_last_success_timestamp_seconds"
        [Label::of("scope", &["audit", "since", "posts", "queue"])],
        "When a recount last ended with no drift left, in seconds since 1970.";
}

/// Takes note that a recount of this scope has ended with no drift left.
pub(crate) fn succeeded(scope: &'static str, at: UnixMillis) {
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^52")]
    LAST_SUCCESS.gauge(&[scope]).set((at.0 / 1000) as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("batch-recount");
    }
}
