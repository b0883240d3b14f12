//! What the streamer measures, and the one place that names it.

use std::time::Duration;

use metrics::{Gauge, counter, gauge, histogram};
use tally_core::fault::Fault;
use tally_core::lineage::Loss;
use tally_core::ports::QueueReason;
use tally_core::tally::{Cut, Quarantine, Record, RecordKind};
use tally_service::metrics::{Catalogue, Kind, Metric, Unit};

use crate::slots::Slot;
use crate::watchdog::Census;

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

/// Every metric of the streamer.
pub const CATALOGUE: Catalogue = Catalogue(&[
    metric(
        "tally_stream_age_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &["slot"],
        "How far behind a stream shard read here is; a slot is given to the next shard when one is done, 0 in between.",
    ),
    metric("tally_stream_shards", Kind::Gauge, Unit::Count, &["state"], "Known stream shards by state."),
    metric(
        "tally_stream_followed",
        Kind::Gauge,
        Unit::Count,
        &[],
        "1 while the table has a stream and none of its shards is forgotten, otherwise 0.",
    ),
    metric("tally_stream_records_total", Kind::Counter, Unit::Count, &["kind"], "Change records read, by kind."),
    metric(
        "tally_stream_quarantined_total",
        Kind::Counter,
        Unit::Count,
        &["reason"],
        "Change records that are none of our rows, and updates the store will never take.",
    ),
    metric("tally_stream_reads_total", Kind::Counter, Unit::Count, &["outcome"], "Reads of the stream, by outcome."),
    metric("tally_stream_gaps_total", Kind::Counter, Unit::Count, &["kind"], "Losses of stream recorded, by kind."),
    metric("tally_flush_posts", Kind::Histogram, Unit::Count, &["cut"], "Posts written in one flush."),
    metric("tally_flush_records", Kind::Histogram, Unit::Count, &["cut"], "Change records covered by one flush."),
    metric("tally_flush_duration_seconds", Kind::Histogram, Unit::Seconds, &["cut"], "Time one flush took."),
    metric("tally_updates_total", Kind::Counter, Unit::Count, &[], "Counter updates the store has taken."),
    metric(
        "tally_updates_refused_total",
        Kind::Counter,
        Unit::Count,
        &["cause"],
        "Counter updates refused by their condition.",
    ),
    metric("tally_faults_total", Kind::Counter, Unit::Count, &["class"], "Failed calls that were tried again."),
    metric("tally_recounts_queued_total", Kind::Counter, Unit::Count, &["reason"], "Row keys queued for a recount."),
    metric(
        "tally_windows_reported_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Recount windows closed, by outcome.",
    ),
    metric(
        "tally_leases_total",
        Kind::Counter,
        Unit::Count,
        &["change"],
        "Leases taken, stolen, lost and handed over.",
    ),
    metric(
        "tally_checkpoint_age_seconds",
        Kind::Gauge,
        Unit::Seconds,
        &["slot"],
        "Time since the stored checkpoint of a stream shard read here was last known to be true, by slot.",
    ),
    metric(
        "tally_cache_updates_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Counts offered to the cache, by outcome.",
    ),
    metric(
        "tally_feed_messages_total",
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Counts offered to the feed, by outcome.",
    ),
]);

pub(crate) fn record_read(record: &Record) {
    let kind = match &record.kind {
        RecordKind::Row { .. } => match record.delta() {
            0 => "unchanged",
            1.. => "liked",
            _ => "unliked",
        },
        RecordKind::Marker { .. } => "marker",
        RecordKind::Reserved => "reserved",
        RecordKind::Foreign(_) => "foreign",
    };
    counter!("tally_stream_records_total", "kind" => kind).increment(1);
}

pub(crate) fn quarantined(quarantine: Quarantine) {
    counter!("tally_stream_quarantined_total", "reason" => quarantine.reason()).increment(1);
}

pub(crate) fn update_quarantined() {
    counter!("tally_stream_quarantined_total", "reason" => "refused_by_store").increment(1);
}

pub(crate) fn stream_read(outcome: &'static str) {
    counter!("tally_stream_reads_total", "outcome" => outcome).increment(1);
}

pub(crate) fn lost(loss: &Loss) {
    counter!("tally_stream_gaps_total", "kind" => loss.kind()).increment(1);
}

pub(crate) fn flushed(cut: Cut, posts: usize, records: usize, took: Duration) {
    let cut = cut.label();
    #[expect(clippy::cast_precision_loss, reason = "a flush has far fewer than 2^52 of either")]
    let (posts, records) = (posts as f64, records as f64);
    histogram!("tally_flush_posts", "cut" => cut).record(posts);
    histogram!("tally_flush_records", "cut" => cut).record(records);
    histogram!("tally_flush_duration_seconds", "cut" => cut).record(took);
}

pub(crate) fn updated() {
    counter!("tally_updates_total").increment(1);
}

pub(crate) fn refused(cause: &'static str) {
    counter!("tally_updates_refused_total", "cause" => cause).increment(1);
}

pub(crate) fn faulted(fault: &Fault) {
    counter!("tally_faults_total", "class" => fault.class()).increment(1);
}

pub(crate) fn queued(reason: QueueReason) {
    let reason = match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Suspect => "suspect",
        QueueReason::Asked => "asked",
    };
    counter!("tally_recounts_queued_total", "reason" => reason).increment(1);
}

pub(crate) fn window(outcome: &'static str) {
    counter!("tally_windows_reported_total", "outcome" => outcome).increment(1);
}

pub(crate) fn lease(change: &'static str, count: usize) {
    counter!("tally_leases_total", "change" => change).increment(count as u64);
}

/// The ages of one stream shard read here; nothing once they are dropped.
pub(crate) struct Ages {
    behind: Gauge,
    checkpoint: Gauge,
    slot: Slot,
}

impl Ages {
    pub(crate) fn new(slot: Slot) -> Self {
        let number = slot.number().to_string();
        let behind = gauge!("tally_stream_age_seconds", "slot" => number.clone());
        let checkpoint = gauge!("tally_checkpoint_age_seconds", "slot" => number);
        Self { behind, checkpoint, slot }
    }

    /// Where they are found.
    pub(crate) fn slot(&self) -> usize {
        self.slot.number()
    }

    /// How far behind the shard is, and how old its stored checkpoint.
    pub(crate) fn set(&self, behind: Duration, checkpoint: Duration) {
        self.behind.set(behind);
        self.checkpoint.set(checkpoint);
    }
}

impl Drop for Ages {
    fn drop(&mut self) {
        self.set(Duration::ZERO, Duration::ZERO);
    }
}

/// Whether the table's stream is followed as it should be.
pub(crate) fn followed(followed: bool) {
    gauge!("tally_stream_followed").set(if followed { 1.0 } else { 0.0 });
}

pub(crate) fn census(census: &Census) {
    for (state, count) in census.counts() {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 stream shards")]
        gauge!("tally_stream_shards", "state" => state).set(count as f64);
    }
}

pub(crate) fn cached(outcome: &'static str, count: usize) {
    counter!("tally_cache_updates_total", "outcome" => outcome).increment(count as u64);
}

pub(crate) fn fed(outcome: &'static str, count: usize) {
    counter!("tally_feed_messages_total", "outcome" => outcome).increment(count as u64);
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
