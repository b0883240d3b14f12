//! Defines the consumer's metrics, and functions that record those for which one call is not enough.

use std::time::Duration;

use metrics::gauge;
use tally_core::fault::Fault;
use tally_core::ports::log::Rebalance;
use tally_service::catalogue;
use tally_service::metrics::Label;

/// What made a batch due.
const TRIGGERS: Label = Label::of("trigger", &["rows", "bytes", "age", "shutdown"]);
const CLASS: Label = Label::of("class", Fault::CLASSES);
/// The faults after which a call is tried again.
const AGAIN: Label = Label::of("class", &["transient", "throttled"]);
const PARTITION: Label = Label::learnt("partition");
const CALL: Label = Label::of("call", &["write", "cells", "keep", "definitions"]);
/// Why a record is no event.
const REASON: Label = Label::of("reason", &tally_core::event::Rejection::REASONS);
/// Why a partition stands still.
const ALARM: Label = Label::of("alarm", tally_core::register::Standstill::NAMES);

catalogue! {
    RECORDS: Counter Count "tally_consumer_records_total" [Label::of("outcome", &["applied", "rejected", "stale"])],
        "Records taken: applied, rejected, or stale, which were read twice or put back for another deployment.";
    MISROUTED: Counter Count "tally_consumer_misrouted_records_total" [],
        "Events that lie in another partition than their key says.";
    BAD_REGIONS: Counter Count "tally_consumer_bad_regions_total" [],
        "Events that state something as their region that is none; they are taken without one.";
    OLD_TIMES: Counter Count "tally_consumer_old_times_total" [],
        "Events whose time is before the year 2000, most likely seconds in place of milliseconds; they are taken with it.";
    DEAD_LETTERS: Counter Count "tally_consumer_dead_letters_total" [REASON],
        "Dead letters acknowledged, by reason.";
    DEAD_LETTER_RETRIES: Counter Count "tally_consumer_dead_letter_retries_total" [CLASS],
        "Dead letters refused and tried again.";
    LAG: Gauge Count "tally_consumer_lag_records" [PARTITION],
        "Records between the first that is not finished and the end of the log.";
    LAG_SECONDS: Gauge Seconds "tally_consumer_lag_seconds" [PARTITION],
        "Age of the oldest record not yet in the rows, or since one is known to be there; 0 when there is none.";
    BATCH_ROWS: Histogram Count "tally_consumer_batch_rows" [],
        "Statements of a request, each about another row.";
    FLUSHES: Counter Count "tally_consumer_flushes_total" [TRIGGERS],
        "Batches written, by what made them due.";
    FLUSH_SECONDS: Histogram Seconds "tally_consumer_flush_seconds" [TRIGGERS],
        "Time until a request was answered.";
    RETRIES: Counter Count "tally_consumer_retries_total" [CALL, AGAIN],
        "Calls tried again, by call and class of fault.";
    CLAIMS: Counter Count "tally_consumer_claims_total" [],
        "Partitions claimed: one for each assignment, and one more each time that a partition was given up.";
    REPLAYS: Counter Count "tally_consumer_replays_total" [],
        "Partitions begun so far back that removed members may come back until they have passed.";
    REBALANCES: Counter Count "tally_consumer_rebalanced_partitions_total"
        [Label::of("kind", &["assigned", "revoked", "lost"])],
        "Partitions assigned, revoked and lost.";
    PARTITIONS: Gauge Count "tally_consumer_partitions" [Label::of("state", &["reading", "halted"])],
        "Partitions held here: reading, or standing still with an alarm.";
    ALARMS: Counter Count "tally_consumer_alarms_total"
        [ALARM],
        "Partitions that came to stand still, by alarm.";
    KAFKA_ERRORS: Counter Count "tally_consumer_kafka_errors_total" [CLASS],
        "Errors reported by the Kafka client, by class.";
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; offsets stay far below 2^53")]
pub(crate) fn lag(partition: u32, records: u64, age: Duration) {
    gauge!(LAG.name, PARTITION.name => partition.to_string()).set(records as f64);
    lag_seconds(partition, age);
}

pub(crate) fn lag_seconds(partition: u32, age: Duration) {
    gauge!(LAG_SECONDS.name, PARTITION.name => partition.to_string()).set(age.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "a request has at most 25 statements")]
pub(crate) fn flushed(trigger: &'static str, statements: usize, took: Duration) {
    FLUSHES.counter(&[trigger]).increment(1);
    FLUSH_SECONDS.histogram(&[trigger]).record(took);
    BATCH_ROWS.histogram(&[]).record(statements as f64);
}

pub(crate) fn rebalanced(rebalance: &Rebalance) {
    let (kind, partitions) = match rebalance {
        Rebalance::Assigned(partitions) => ("assigned", partitions.len()),
        Rebalance::Revoked(revocation, partitions) => (revocation.label(), partitions.len()),
        Rebalance::Foreign(_) => return,
    };
    REBALANCES.counter(&[kind]).increment(partitions as u64);
}

pub(crate) fn kafka_error(fault: &Fault) {
    KAFKA_ERRORS.counter(&[fault.class()]).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("consumer");
    }
}
