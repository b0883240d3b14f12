//! The streamer's metrics: their catalogue, and functions for what takes more than one call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, gauge};
use parking_lot::Mutex;
use tally_adapters::dynamodb::changes::StoredShard;
use tally_core::fault::Fault;
use tally_core::ids::StreamShard;
use tally_core::tally::{Record, RecordKind};
use tally_service::catalogue;
use tally_service::metrics::{Label, Metric};

const SLOT: Label = Label::learnt("slot");
const CUT: Label = Label::of("cut", &["size", "age", "stop"]);
/// Why a record is none that can be counted.
const REASON: Label =
    Label::of("reason", &["no_key", "bad_row_key", "bad_user", "no_images", "bad_marker", "bad_weight"]);
const READ: Label =
    Label::of("outcome", &["records", "empty", "expired", "lost", "gone", "transient", "throttled", "poison", "fatal"]);
/// What a loss is of.
const LOSS: Label = Label::of(
    "kind",
    &["trimmed", "outage", "vanished", "unfollowed", "unreadable", "childless", "hole", "jump", "damaged"],
);

catalogue! {
    STREAM_AGE: Gauge Seconds "tally_stream_age_seconds" [SLOT],
        "How far behind a stream shard read here is; a slot is given to the next shard when one is done, 0 in between.";
    SHARDS: Gauge Count "tally_stream_shards" [Label::of("state", &["closed", "here", "elsewhere"])],
        "Known stream shards by state.";
    FOLLOWED: Gauge Count "tally_stream_followed" [],
        "1 while the table has a stream and each of its shards is read, otherwise 0.";
    RECORDS: Counter Count "tally_stream_records_total" [Label::of("kind", KINDS)],
        "Change records read, by kind.";
    QUARANTINED: Counter Count "tally_stream_quarantined_total" [REASON],
        "Change records that are none of our rows, and those whose weight cannot be read.";
    READS: Counter Count "tally_stream_reads_total" [READ],
        "Reads of the stream, by outcome.";
    GAPS: Counter Count "tally_stream_gaps_total" [LOSS],
        "Losses of the stream, the log or a counter found, by kind.";
    FLUSH_POSTS: Histogram Count "tally_flush_posts" [CUT],
        "Posts written in one flush.";
    FLUSH_RECORDS: Histogram Count "tally_flush_records" [CUT],
        "Entries and corrections of the log covered by one flush.";
    FLUSH_SECONDS: Histogram Seconds "tally_flush_duration_seconds" [CUT],
        "Time one flush took.";
    UPDATES: Counter Count "tally_updates_total" [],
        "Counter updates the store has taken.";
    REFUSED: Counter Count "tally_updates_refused_total" [Label::of("cause", &["changed", "overflow"])],
        "Counter updates refused since another fold or a person changed the counter, and changes that would leave the range of 64 bits.";
    MILESTONES: Counter Count "tally_milestones_total" [Label::of("state", &["located", "in_log", "unwitnessed"])],
        "Thresholds that counters have reached, by how far the winner is known.";
    FAULTS: Counter Count "tally_faults_total" [Label::of("class", Fault::CLASSES)],
        "Failed calls that were tried again.";
    LEASES: Counter Count "tally_leases_total" [Label::of("change", &["renewed", "taken", "stolen", "lost"])],
        "Leases renewed, taken, stolen and lost.";
    CACHE_UPDATES: Counter Count "tally_cache_updates_total" [Label::of("outcome", &["replaced", "absent_or_newer", "failed"])],
        "Counts offered to the cache, by outcome.";
    CHANGES_MESSAGES: Counter Count "tally_changes_messages_total" [Label::of("outcome", &["sent", "failed"])],
        "Messages written to the log of changes, by outcome; one that failed is sent again.";
    CHANGES_WAITING: Gauge Bytes "tally_changes_waiting_bytes" [],
        "Changes that wait for Kafka; past 32 MiB the stream is read no further, and after 6 h they are read again.";
    CHANGES_AGE: Gauge Seconds "tally_changes_age_seconds" [SLOT],
        "How far behind the log of changes is with a stream shard read here, by slot; 0 in between.";
    REMOTE_ENTRIES: Counter Count "tally_remote_entries_total" [Label::of("outcome", &["written", "known"])],
        "Entries of other Regions: written, or known here already in this or a later version.";
    PUBLISHED: Counter Count "tally_published_total" [Label::of("outcome", &["published", "failed"])],
        "Transactions that publish counts for other Regions, by outcome; what failed is published again.";
}

/// The kinds of change records, as the metric names them.
const KINDS: &[&str] = &["liked", "unliked", "unchanged", "marker", "reserved", "foreign", "unreadable"];

/// Counts a page of records at once, each kind by itself.
pub(crate) fn records_read(records: &[Record]) {
    let mut counts = [0; KINDS.len()];
    for record in records {
        counts[kind(record)] += 1;
        quarantined(&record.kind);
    }
    for (kind, count) in KINDS.iter().zip(counts).filter(|(_, count)| *count > 0) {
        RECORDS.counter(&[kind]).increment(count);
    }
}

/// Returns the index of a record's kind in [`KINDS`].
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

/// Counts a record that is none of our rows, or whose weight cannot be read.
fn quarantined(kind: &RecordKind) {
    let reason = match kind {
        RecordKind::Foreign(quarantine) => quarantine.reason(),
        RecordKind::Unreadable { .. } => "bad_weight",
        _ => return,
    };
    QUARANTINED.counter(&[reason]).increment(1);
}

/// Counts entries of another Region, by whether they were written.
pub(crate) fn remote_entries(written: &[bool]) {
    let new = written.iter().filter(|is_new| **is_new).count();
    REMOTE_ENTRIES.counter(&["written"]).increment(new as u64);
    REMOTE_ENTRIES.counter(&["known"]).increment((written.len() - new) as u64);
}

/// Records a written flush of so many counters and items of the log.
pub(crate) fn flushed(cut: &'static str, counters: usize, items: usize, took: Duration) {
    #[expect(clippy::cast_precision_loss, reason = "a flush has far fewer than 2^52 of either")]
    let (counters, items) = (counters as f64, items as f64);
    FLUSH_POSTS.histogram(&[cut]).record(counters);
    FLUSH_RECORDS.histogram(&[cut]).record(items);
    FLUSH_SECONDS.histogram(&[cut]).record(took);
}

/// Numbers (*slots*) for the stream shards read here, as a metric's label. A number is used again once its stream shard
/// is done with, so there are never more numbers than stream shards read at once. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Mutex<BTreeSet<usize>>>);

/// A number, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    number: usize,
    slots: Slots,
}

impl Slots {
    /// Takes the least number that is free.
    pub(crate) fn take(&self) -> Slot {
        let mut used = self.0.lock();
        let number = (0..).find(|number| !used.contains(number)).expect("numbers do not run out");
        used.insert(number);
        Slot { number, slots: self.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.0.lock().remove(&self.number);
    }
}

/// A gauge of how far behind one stream shard read here is; 0 once this is dropped.
pub(crate) struct Age {
    gauge: Gauge,
    _slot: Slot,
}

impl Age {
    /// Takes a slot in `metric`, which is [`STREAM_AGE`] or [`CHANGES_AGE`].
    pub(crate) fn of(metric: Metric, slots: &Slots) -> Self {
        let slot = slots.take();
        Self { gauge: gauge!(metric.name, SLOT.name => slot.number.to_string()), _slot: slot }
    }

    pub(crate) fn set(&self, behind: Duration) {
        self.gauge.set(behind);
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        self.set(Duration::ZERO);
    }
}

pub(crate) fn waiting(bytes: usize) {
    #[expect(clippy::cast_precision_loss, reason = "memory has far fewer than 2^52 bytes")]
    CHANGES_WAITING.gauge(&[]).set(bytes as f64);
}

/// Sets whether the table's stream is followed as it should be.
pub(crate) fn followed(followed: bool) {
    FOLLOWED.gauge(&[]).set(if followed { 1.0 } else { 0.0 });
}

/// Counts the stored stream shards by state; this process reads those in `here`.
pub(crate) fn stream_shards(stored: &[StoredShard], here: &BTreeSet<StreamShard>) {
    let closed = stored.iter().filter(|stored| stored.closed.is_some()).count();
    let elsewhere = stored.len() - closed - here.len();
    for (state, count) in [("closed", closed), ("here", here.len()), ("elsewhere", elsewhere)] {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 stream shards")]
        SHARDS.gauge(&[state]).set(count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_documented_one() {
        insta::assert_snapshot!(CATALOGUE);
        assert_eq!(CATALOGUE.misnamed(), [""; 0]);
    }

    #[test]
    fn as_many_numbers_are_ever_given_as_were_in_use_at_once() {
        let slots = Slots::default();
        let (first, second) = (slots.take(), slots.take());
        assert_eq!((first.number, second.number), (0, 1));
        drop(first);
        for _ in 0..100 {
            assert_eq!(slots.take().number, 0);
            assert_eq!(slots.0.lock().len(), 1, "the second");
        }
    }
}
