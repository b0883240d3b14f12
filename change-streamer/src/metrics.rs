//! The streamer's metrics: their catalogue, and one function for each thing that is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Gauge, counter, gauge, histogram};
use tally_core::apply::{Flushed, RefusedBy, WindowEnd};
use tally_core::fault::Fault;
use tally_core::lineage::Loss;
use tally_core::ports::QueueReason;
use tally_core::shards::Place;
use tally_core::tally::{Quarantine, Record, RecordKind};
use tally_service::metrics::{Catalogue, Kind, Metric, Unit};

use crate::slots::Slot;

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
        STREAM_AGE,
        Kind::Gauge,
        Unit::Seconds,
        &["slot"],
        "How far behind a stream shard read here is; a slot is given to the next shard when one is done, 0 in between.",
    ),
    metric(SHARDS, Kind::Gauge, Unit::Count, &["state"], "Known stream shards by state."),
    metric(
        FOLLOWED,
        Kind::Gauge,
        Unit::Count,
        &[],
        "1 while the table has a stream and none of its shards is forgotten, otherwise 0.",
    ),
    metric(RECORDS, Kind::Counter, Unit::Count, &["kind"], "Change records read, by kind."),
    metric(
        QUARANTINED,
        Kind::Counter,
        Unit::Count,
        &["reason"],
        "Change records that are none of our rows, and updates the store will never take.",
    ),
    metric(READS, Kind::Counter, Unit::Count, &["outcome"], "Reads of the stream, by outcome."),
    metric(GAPS, Kind::Counter, Unit::Count, &["kind"], "Losses of stream recorded, by kind."),
    metric(FLUSH_POSTS, Kind::Histogram, Unit::Count, &["cut"], "Posts written in one flush."),
    metric(FLUSH_RECORDS, Kind::Histogram, Unit::Count, &["cut"], "Change records covered by one flush."),
    metric(FLUSH_SECONDS, Kind::Histogram, Unit::Seconds, &["cut"], "Time one flush took."),
    metric(UPDATES, Kind::Counter, Unit::Count, &[], "Counter updates the store has taken."),
    metric(REFUSED, Kind::Counter, Unit::Count, &["cause"], "Counter updates refused by their condition."),
    metric(FAULTS, Kind::Counter, Unit::Count, &["class"], "Failed calls that were tried again."),
    metric(QUEUED, Kind::Counter, Unit::Count, &["reason"], "Row keys queued for a recount."),
    metric(WINDOWS, Kind::Counter, Unit::Count, &["outcome"], "Recount windows closed, by outcome."),
    metric(LEASES, Kind::Counter, Unit::Count, &["change"], "Leases taken, stolen, lost and handed over."),
    metric(
        CHECKPOINT_AGE,
        Kind::Gauge,
        Unit::Seconds,
        &["slot"],
        "Time since the stored checkpoint of a stream shard read here was last known to be true, by slot.",
    ),
    metric(CACHE_UPDATES, Kind::Counter, Unit::Count, &["outcome"], "Counts offered to the cache, by outcome."),
    metric(FEED_MESSAGES, Kind::Counter, Unit::Count, &["outcome"], "Counts offered to the feed, by outcome."),
]);

const STREAM_AGE: &str = "tally_stream_age_seconds";
const SHARDS: &str = "tally_stream_shards";
const FOLLOWED: &str = "tally_stream_followed";
const RECORDS: &str = "tally_stream_records_total";
const QUARANTINED: &str = "tally_stream_quarantined_total";
const READS: &str = "tally_stream_reads_total";
const GAPS: &str = "tally_stream_gaps_total";
const FLUSH_POSTS: &str = "tally_flush_posts";
const FLUSH_RECORDS: &str = "tally_flush_records";
const FLUSH_SECONDS: &str = "tally_flush_duration_seconds";
const UPDATES: &str = "tally_updates_total";
const REFUSED: &str = "tally_updates_refused_total";
const FAULTS: &str = "tally_faults_total";
const QUEUED: &str = "tally_recounts_queued_total";
const WINDOWS: &str = "tally_windows_reported_total";
const LEASES: &str = "tally_leases_total";
const CHECKPOINT_AGE: &str = "tally_checkpoint_age_seconds";
const CACHE_UPDATES: &str = "tally_cache_updates_total";
const FEED_MESSAGES: &str = "tally_feed_messages_total";

/// Counts a page of records at once, each kind by itself.
pub(crate) fn records_read(records: &[Record]) {
    const KINDS: [&str; 6] = ["liked", "unliked", "unchanged", "marker", "reserved", "foreign"];
    let mut counts = [0; KINDS.len()];
    for record in records {
        counts[kind(record)] += 1;
    }
    for (kind, count) in KINDS.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
        counter!(RECORDS, "kind" => kind).increment(count);
    }
}

/// The place of a record's kind among their names.
fn kind(record: &Record) -> usize {
    match &record.kind {
        RecordKind::Row { .. } => match record.delta() {
            1.. => 0,
            ..0 => 1,
            0 => 2,
        },
        RecordKind::Marker { .. } => 3,
        RecordKind::Reserved => 4,
        RecordKind::Foreign(_) => 5,
    }
}

pub(crate) fn quarantined(quarantine: Quarantine) {
    counter!(QUARANTINED, "reason" => quarantine.reason()).increment(1);
}

pub(crate) fn update_quarantined() {
    counter!(QUARANTINED, "reason" => "refused_by_store").increment(1);
}

pub(crate) fn stream_read(outcome: &'static str) {
    counter!(READS, "outcome" => outcome).increment(1);
}

pub(crate) fn lost(loss: &Loss) {
    counter!(GAPS, "kind" => loss.kind()).increment(1);
}

pub(crate) fn flushed(flushed: &Flushed) {
    let cut = flushed.cut.label();
    #[expect(clippy::cast_precision_loss, reason = "a flush has far fewer than 2^52 of either")]
    let (posts, records) = (flushed.counters as f64, flushed.records as f64);
    histogram!(FLUSH_POSTS, "cut" => cut).record(posts);
    histogram!(FLUSH_RECORDS, "cut" => cut).record(records);
    histogram!(FLUSH_SECONDS, "cut" => cut).record(flushed.took);
}

pub(crate) fn updated() {
    counter!(UPDATES).increment(1);
}

pub(crate) fn refused(by: RefusedBy) {
    counter!(REFUSED, "cause" => by.label()).increment(1);
}

pub(crate) fn faulted(fault: &Fault) {
    counter!(FAULTS, "class" => fault.class()).increment(1);
}

pub(crate) fn queued(reason: QueueReason) {
    let reason = match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Suspect => "suspect",
        QueueReason::Asked => "asked",
    };
    counter!(QUEUED, "reason" => reason).increment(1);
}

pub(crate) fn window(end: &WindowEnd) {
    let outcome = match end {
        WindowEnd::Reported => "reported",
        WindowEnd::Incomplete => "incomplete",
        WindowEnd::Failed(..) => "failed",
    };
    counter!(WINDOWS, "outcome" => outcome).increment(1);
}

pub(crate) fn lease(change: &'static str, count: usize) {
    counter!(LEASES, "change" => change).increment(count as u64);
}

/// The ages of one stream shard read here; 0 once they are dropped.
pub(crate) struct Ages {
    behind: Gauge,
    checkpoint: Gauge,
    slot: Slot,
}

impl Ages {
    pub(crate) fn new(slot: Slot) -> Self {
        let number = slot.number().to_string();
        let behind = gauge!(STREAM_AGE, "slot" => number.clone());
        let checkpoint = gauge!(CHECKPOINT_AGE, "slot" => number);
        Self { behind, checkpoint, slot }
    }

    /// The label they have.
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
    gauge!(FOLLOWED).set(if followed { 1.0 } else { 0.0 });
}

pub(crate) fn places(places: &BTreeMap<Place, usize>) {
    for (place, count) in places {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 stream shards")]
        gauge!(SHARDS, "state" => place.label()).set(*count as f64);
    }
}

pub(crate) fn cached(outcome: &'static str, count: usize) {
    counter!(CACHE_UPDATES, "outcome" => outcome).increment(count as u64);
}

pub(crate) fn fed(outcome: &'static str, count: usize) {
    counter!(FEED_MESSAGES, "outcome" => outcome).increment(count as u64);
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
