//! Defines the change-streamer's metrics, and functions that record those for which one call is not enough.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, gauge};
use parking_lot::Mutex;
use tally_adapters::dynamodb::changes::StoredShard;
use tally_core::changes::Effect;
use tally_core::fault::Fault;
use tally_core::ids::StreamShard;
use tally_core::tally::{Record, RecordKind};
use tally_service::catalogue;
use tally_service::metrics::{Label, Metric};

const SLOT: Label = Label::learnt("slot");
const CUT: Label = Label::of("cut", &["size", "age", "stop"]);
const KIND: Label =
    Label::of("kind", &["liked", "unliked", "unchanged", "marker", "reserved", "foreign", "unreadable"]);
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
    RECORDS: Counter Count "tally_stream_records_total" [KIND],
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

/// Counts a record of the stream, also by the reason if it is none of our rows or its weight cannot be read.
pub(crate) fn record_read(record: &Record) {
    let (kind, quarantined) = match &record.kind {
        RecordKind::Row(_, Effect::Weighed { .. }) => match record.delta() {
            1.. => ("liked", None),
            ..0 => ("unliked", None),
            0 => ("unchanged", None),
        },
        RecordKind::Row(_, Effect::Unreadable { .. }) => ("unreadable", Some("bad_weight")),
        RecordKind::Row(_, Effect::Marked(_)) => ("marker", None),
        RecordKind::Reserved => ("reserved", None),
        RecordKind::Foreign(quarantine) => ("foreign", Some(quarantine.reason())),
    };
    RECORDS.counter(&[kind]).increment(1);
    if let Some(reason) = quarantined {
        QUARANTINED.counter(&[reason]).increment(1);
    }
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

/// The numbers (*slots*) of the stream shards read here, as a metric's label. A number is used again once its stream
/// shard is done with, so there are never more numbers than stream shards read at once.
pub(crate) type Slots = Arc<Mutex<BTreeSet<usize>>>;

/// A gauge of how far behind one stream shard read here is. Once this is dropped it is 0, and its number is free.
pub(crate) struct Age {
    gauge: Gauge,
    number: usize,
    slots: Slots,
}

impl Age {
    /// Takes the least number that is free in `metric`, which is [`STREAM_AGE`] or [`CHANGES_AGE`].
    pub(crate) fn of(metric: Metric, slots: &Slots) -> Self {
        let number = (0..).find(|number| slots.lock().insert(*number)).expect("numbers do not run out");
        Self { gauge: gauge!(metric.name, SLOT.name => number.to_string()), number, slots: Arc::clone(slots) }
    }

    pub(crate) fn set(&self, behind: Duration) {
        self.gauge.set(behind);
    }
}

impl Drop for Age {
    fn drop(&mut self) {
        self.set(Duration::ZERO);
        self.slots.lock().remove(&self.number);
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
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("change-streamer");
    }

    #[test]
    fn as_many_numbers_are_ever_given_as_were_in_use_at_once() {
        let slots = Slots::default();
        let take = || Age::of(STREAM_AGE, &slots);
        let (first, second) = (take(), take());
        assert_eq!((first.number, second.number), (0, 1));
        drop(first);
        for _ in 0..100 {
            assert_eq!(take().number, 0);
            assert_eq!(slots.lock().len(), 1, "the second");
        }
    }
}
