//! What a recount measures, and the one place that names it.

use metrics::{counter, gauge};
use tally_core::fault::Fault;
use tally_core::time::UnixMillis;
use tally_service::metrics::{Catalogue, Kind, Metric, Unit};

use crate::summary::Cause;

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

/// Every metric of a recount.
pub const CATALOGUE: Catalogue = Catalogue(&[
    metric("tally_recount_rows_total", Kind::Counter, Unit::Count, &[], "Rows counted by audits."),
    metric(
        "tally_recount_keys_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Row keys audited, by outcome: proved, repaired, left.",
    ),
    metric(
        "tally_recount_drift_found_total",
        Kind::Counter,
        Unit::Count,
        &["cause"],
        "Counts found to differ from their rows, by cause.",
    ),
    metric(
        "tally_recount_corrected_total",
        Kind::Counter,
        Unit::Count,
        &["what"],
        "Corrections written: of a shard, of a total.",
    ),
    metric(
        "tally_recount_likes_corrected_total",
        Kind::Counter,
        Unit::Count,
        &["sign"],
        "Likes added and taken away by corrections.",
    ),
    metric(
        "tally_recount_withheld_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Large corrections not made for want of --force.",
    ),
    metric(
        "tally_recount_windows_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Windows ended, by outcome: judged, or why the run began anew.",
    ),
    metric(
        "tally_recount_alarms_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Counts that a second window found wrong right after the first had corrected them.",
    ),
    metric(
        "tally_recount_misplaced_rows_total",
        Kind::Counter,
        Unit::Count,
        &[],
        "Rows found outside their user's shard.",
    ),
    metric("tally_recount_gaps_closed_total", Kind::Counter, Unit::Count, &[], "Gaps that an audit has closed."),
    metric("tally_recount_units_total", Kind::Counter, Unit::Count, &["kind"], "Read and write units spent."),
    metric("tally_recount_faults_total", Kind::Counter, Unit::Count, &["class"], "Failed calls that were tried again."),
    metric("tally_recount_unlikes_total", Kind::Counter, Unit::Count, &[], "Unlikes produced by erasures."),
    metric(
        "tally_recount_last_success_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &["scope"],
        "When a recount last ended with no drift left, in seconds since 1970.",
    ),
]);

pub(crate) fn rows(count: u64) {
    counter!("tally_recount_rows_total").increment(count);
}

pub(crate) fn keys(outcome: &'static str, count: u64) {
    counter!("tally_recount_keys_total", "outcome" => outcome).increment(count);
}

pub(crate) fn drift(cause: Cause) {
    counter!("tally_recount_drift_found_total", "cause" => cause.label()).increment(1);
}

pub(crate) fn corrected(what: &'static str, correction: i64) {
    counter!("tally_recount_corrected_total", "what" => what).increment(1);
    let sign = if correction < 0 { "minus" } else { "plus" };
    counter!("tally_recount_likes_corrected_total", "sign" => sign).increment(correction.unsigned_abs());
}

pub(crate) fn withheld() {
    counter!("tally_recount_withheld_total").increment(1);
}

pub(crate) fn window(outcome: &'static str) {
    counter!("tally_recount_windows_total", "outcome" => outcome).increment(1);
}

pub(crate) fn alarm() {
    counter!("tally_recount_alarms_total").increment(1);
}

pub(crate) fn misplaced(count: u64) {
    counter!("tally_recount_misplaced_rows_total").increment(count);
}

pub(crate) fn gap_closed() {
    counter!("tally_recount_gaps_closed_total").increment(1);
}

pub(crate) fn units(kind: &'static str, units: u64) {
    counter!("tally_recount_units_total", "kind" => kind).increment(units);
}

pub(crate) fn faulted(fault: &Fault) {
    counter!("tally_recount_faults_total", "class" => fault.class()).increment(1);
}

pub(crate) fn unlikes(count: u64) {
    counter!("tally_recount_unlikes_total").increment(count);
}

pub(crate) fn succeeded(scope: &'static str, at: UnixMillis) {
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 stay far below 2^52")]
    gauge!("tally_recount_last_success_seconds", "scope" => scope).set((at.0 / 1000) as f64);
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
