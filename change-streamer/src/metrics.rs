//! The streamer's metrics: their catalogue, and one function for each thing that is measured.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Gauge, gauge};
use tally_core::apply::{Flushed, RefusedBy, WindowEnd};
use tally_core::fault::Fault;
use tally_core::lineage::Loss;
use tally_core::milestone::Milestone;
use tally_core::ports::QueueReason;
use tally_core::shards::Place;
use tally_core::tally::{Quarantine, Record, RecordKind};
use tally_service::metrics::{Catalogue, Kind, Label, Metric, Unit};

use crate::slots::Slot;

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [Label],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

const fn count(name: &'static str, labels: &'static [Label], description: &'static str) -> Metric {
    metric(name, Kind::Counter, Unit::Count, labels, description)
}

const SLOT: Label = Label::learnt("slot");
const CUT: &[Label] = &[Label::of("cut", &["size", "age", "boundary", "width", "stop"])];

const STREAM_AGE: Metric = metric(
    "tally_stream_age_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[SLOT],
    "How far behind a stream shard read here is; a slot is given to the next shard when one is done, 0 in between.",
);
const SHARDS: Metric = metric(
    "tally_stream_shards",
    Kind::Gauge,
    Unit::Count,
    &[Label::of("state", &["closed", "here", "elsewhere", "waiting", "orphaned"])],
    "Known stream shards by state.",
);
const FOLLOWED: Metric = metric(
    "tally_stream_followed",
    Kind::Gauge,
    Unit::Count,
    &[],
    "1 while the table has a stream and none of its shards is forgotten, otherwise 0.",
);
const RECORDS: Metric =
    count("tally_stream_records_total", &[Label::of("kind", KINDS)], "Change records read, by kind.");
const QUARANTINED: Metric = count(
    "tally_stream_quarantined_total",
    &[Label::of(
        "reason",
        &["no_key", "bad_row_key", "bad_user", "no_images", "bad_marker", "bad_weight", "refused_by_store"],
    )],
    "Change records that are none of our rows, and updates the store will never take.",
);
const READS: Metric = count(
    "tally_stream_reads_total",
    &[Label::of(
        "outcome",
        &["records", "empty", "expired", "lost", "gone", "transient", "throttled", "poison", "fatal"],
    )],
    "Reads of the stream, by outcome.",
);
const GAPS: Metric = count(
    "tally_stream_gaps_total",
    &[Label::of("kind", &["trimmed", "outage", "vanished", "unfollowed", "unreadable", "refused", "fence_reset"])],
    "Losses of stream recorded, by kind.",
);
const FLUSH_POSTS: Metric =
    metric("tally_flush_posts", Kind::Histogram, Unit::Count, CUT, "Posts written in one flush.");
const FLUSH_RECORDS: Metric =
    metric("tally_flush_records", Kind::Histogram, Unit::Count, CUT, "Change records covered by one flush.");
const FLUSH_SECONDS: Metric =
    metric("tally_flush_duration_seconds", Kind::Histogram, Unit::Seconds, CUT, "Time one flush took.");
const UPDATES: Metric = count("tally_updates_total", &[], "Counter updates the store has taken.");
const REFUSED: Metric = count(
    "tally_updates_refused_total",
    &[Label::of("cause", &["applied", "finished", "floor", "feeder", "ladder", "total", "standing", "unexplained"])],
    "Counter updates refused by their condition.",
);
const MILESTONES: Metric = count(
    "tally_milestones_total",
    &[Label::of("state", &["located", "in_log", "unwitnessed"])],
    "Thresholds that counters have reached, by how far the winner is known.",
);
const FAULTS: Metric =
    count("tally_faults_total", &[Label::of("class", Fault::CLASSES)], "Failed calls that were tried again.");
const QUEUED: Metric = count(
    "tally_recounts_queued_total",
    &[Label::of("reason", &["drift", "negative", "suspect", "asked"])],
    "Row keys queued for a recount.",
);
const WINDOWS: Metric = count(
    "tally_windows_reported_total",
    &[Label::of("outcome", &["reported", "incomplete", "failed"])],
    "Recount windows closed, by outcome.",
);
const LEASES: Metric = count(
    "tally_leases_total",
    &[Label::of("change", &["renewed", "taken", "stolen", "lost", "handed_over"])],
    "Leases taken, stolen, lost and handed over.",
);
const CHECKPOINT_AGE: Metric = metric(
    "tally_checkpoint_age_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[SLOT],
    "Time since the stored checkpoint of a stream shard read here was last known to be true, by slot.",
);
const CACHE_UPDATES: Metric = count(
    "tally_cache_updates_total",
    &[Label::of("outcome", &["replaced", "absent_or_newer", "failed", "dropped"])],
    "Counts offered to the cache, by outcome.",
);
const FEED_MESSAGES: Metric = count(
    "tally_feed_messages_total",
    &[Label::of("outcome", &["sent", "failed", "dropped"])],
    "Counts offered to the feed, by outcome.",
);
const CHANGES_MESSAGES: Metric = count(
    "tally_changes_messages_total",
    &[Label::of("outcome", &["sent", "failed"])],
    "Messages written to the ledger of changes, by outcome; one that failed is sent again.",
);
const CHANGES_WAITING: Metric = metric(
    "tally_changes_waiting_bytes",
    Kind::Gauge,
    Unit::Bytes,
    &[],
    "Changes that wait for Kafka; past 64 MiB, or after 10 minutes, they are given up.",
);
const CHANGES_LAPSES: Metric = count(
    "tally_changes_lapses_total",
    &[],
    "Seconds of a stream shard that the ledger of changes lacks, recorded: what is trending is not exact until they are past.",
);
const CHANGES_AGE: Metric = metric(
    "tally_changes_age_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[SLOT],
    "How far behind the ledger of changes is with a stream shard read here, by slot; 0 in between.",
);

/// Every metric of the streamer.
pub const CATALOGUE: Catalogue = Catalogue(&[
    STREAM_AGE,
    SHARDS,
    FOLLOWED,
    RECORDS,
    QUARANTINED,
    READS,
    GAPS,
    FLUSH_POSTS,
    FLUSH_RECORDS,
    FLUSH_SECONDS,
    UPDATES,
    REFUSED,
    MILESTONES,
    FAULTS,
    QUEUED,
    WINDOWS,
    LEASES,
    CHECKPOINT_AGE,
    CACHE_UPDATES,
    FEED_MESSAGES,
    CHANGES_MESSAGES,
    CHANGES_WAITING,
    CHANGES_LAPSES,
    CHANGES_AGE,
]);

/// What a change record may be.
const KINDS: &[&str] = &["liked", "unliked", "unchanged", "marker", "reserved", "foreign", "unreadable"];

/// Counts a page of records at once, each kind by itself.
pub(crate) fn records_read(records: &[Record]) {
    let mut counts = [0; KINDS.len()];
    for record in records {
        counts[kind(record)] += 1;
    }
    for (kind, count) in KINDS.iter().zip(counts).filter(|(_, count)| *count > 0) {
        RECORDS.counter(&[kind]).increment(count);
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
        RecordKind::Unreadable { .. } => 6,
    }
}

pub(crate) fn quarantined(quarantine: Quarantine) {
    QUARANTINED.counter(&[quarantine.reason()]).increment(1);
}

pub(crate) fn unreadable() {
    QUARANTINED.counter(&["bad_weight"]).increment(1);
}

pub(crate) fn update_quarantined() {
    QUARANTINED.counter(&["refused_by_store"]).increment(1);
}

pub(crate) fn stream_read(outcome: &'static str) {
    READS.counter(&[outcome]).increment(1);
}

pub(crate) fn lost(loss: &Loss) {
    GAPS.counter(&[loss.kind()]).increment(1);
}

pub(crate) fn flushed(flushed: &Flushed) {
    let cut = flushed.cut.label();
    #[expect(clippy::cast_precision_loss, reason = "a flush has far fewer than 2^52 of either")]
    let (posts, records) = (flushed.counters as f64, flushed.records as f64);
    FLUSH_POSTS.histogram(&[cut]).record(posts);
    FLUSH_RECORDS.histogram(&[cut]).record(records);
    FLUSH_SECONDS.histogram(&[cut]).record(flushed.took);
}

pub(crate) fn updated() {
    UPDATES.counter(&[]).increment(1);
}

pub(crate) fn refused(by: RefusedBy) {
    REFUSED.counter(&[by.label()]).increment(1);
}

pub(crate) fn reached(milestone: &Milestone) {
    MILESTONES.counter(&[milestone.by.state()]).increment(1);
}

pub(crate) fn faulted(fault: &Fault) {
    FAULTS.counter(&[fault.class()]).increment(1);
}

pub(crate) fn queued(reason: QueueReason) {
    let reason = match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Suspect => "suspect",
        QueueReason::Asked => "asked",
    };
    QUEUED.counter(&[reason]).increment(1);
}

pub(crate) fn window(end: &WindowEnd) {
    let outcome = match end {
        WindowEnd::Reported => "reported",
        WindowEnd::Incomplete => "incomplete",
        WindowEnd::Failed(..) => "failed",
    };
    WINDOWS.counter(&[outcome]).increment(1);
}

pub(crate) fn lease(change: &'static str, count: usize) {
    LEASES.counter(&[change]).increment(count as u64);
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
        let behind = gauge!(STREAM_AGE.name, SLOT.name => number.clone());
        let checkpoint = gauge!(CHECKPOINT_AGE.name, SLOT.name => number);
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

/// The age of the ledger of changes in one stream shard; 0 once it is dropped.
pub(crate) struct LedgerAge {
    behind: Gauge,
    _slot: Slot,
}

impl LedgerAge {
    pub(crate) fn new(slot: Slot) -> Self {
        Self { behind: gauge!(CHANGES_AGE.name, SLOT.name => slot.number().to_string()), _slot: slot }
    }

    pub(crate) fn set(&self, behind: Duration) {
        self.behind.set(behind);
    }
}

impl Drop for LedgerAge {
    fn drop(&mut self) {
        self.set(Duration::ZERO);
    }
}

pub(crate) fn recorded(outcome: &'static str) {
    CHANGES_MESSAGES.counter(&[outcome]).increment(1);
}

pub(crate) fn lapsed() {
    CHANGES_LAPSES.counter(&[]).increment(1);
}

pub(crate) fn ledger_waiting(bytes: usize) {
    #[expect(clippy::cast_precision_loss, reason = "memory has far fewer than 2^52 bytes")]
    CHANGES_WAITING.gauge(&[]).set(bytes as f64);
}

/// Whether the table's stream is followed as it should be.
pub(crate) fn followed(followed: bool) {
    FOLLOWED.gauge(&[]).set(if followed { 1.0 } else { 0.0 });
}

pub(crate) fn places(places: &BTreeMap<Place, usize>) {
    for (place, count) in places {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 stream shards")]
        SHARDS.gauge(&[place.label()]).set(*count as f64);
    }
}

pub(crate) fn cached(outcome: &'static str, count: usize) {
    CACHE_UPDATES.counter(&[outcome]).increment(count as u64);
}

pub(crate) fn fed(outcome: &'static str, count: usize) {
    FEED_MESSAGES.counter(&[outcome]).increment(count as u64);
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
