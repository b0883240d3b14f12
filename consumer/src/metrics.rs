//! The consumer's metrics: their catalogue, and one function for each thing that is measured.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use tally_core::batch::{Events, Trigger};
use tally_core::fault::Fault;
use tally_core::ports::log::Over;
use tally_service::metrics::{Catalogue, Kind, Metric, Unit};

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    description: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, description }
}

/// Every metric of this binary.
pub const CATALOGUE: Catalogue = Catalogue(&[
    metric(
        RECORDS,
        Kind::Counter,
        Unit::Count,
        &["outcome"],
        "Records taken: applied, rejected, or stale. Those of a transaction whose outcome was never told are not counted.",
    ),
    metric(
        MISROUTED,
        Kind::Counter,
        Unit::Count,
        &[],
        "Events that lie in another partition than their key scheme says.",
    ),
    metric(DEAD_LETTERS, Kind::Counter, Unit::Count, &["reason"], "Dead letters acknowledged, by reason."),
    metric(DEAD_LETTER_RETRIES, Kind::Counter, Unit::Count, &["class"], "Dead letters refused and tried again."),
    metric(LAG, Kind::Gauge, Unit::Count, &["partition"], "Records between the fence and the end of the log."),
    metric(
        LAG_SECONDS,
        Kind::Gauge,
        Unit::Seconds,
        &["partition"],
        "Age of the oldest record not yet in the rows, or since one is known to be there; 0 when there is none.",
    ),
    metric(BATCH_ROWS, Kind::Histogram, Unit::Count, &[], "Rows a transaction changed."),
    metric(
        COLLAPSE,
        Kind::Gauge,
        Unit::Ratio,
        &["partition"],
        "Rows per event in the last batch: 1 where nothing collapsed.",
    ),
    metric(FLUSHES, Kind::Counter, Unit::Count, &["trigger"], "Batches written, by what made them due."),
    metric(
        FLUSH_SECONDS,
        Kind::Histogram,
        Unit::Seconds,
        &["trigger"],
        "Time from a batch being due to its rows being there.",
    ),
    metric(RETRIES, Kind::Counter, Unit::Count, &["call", "class"], "Calls tried again, by call and class of fault."),
    metric(RELOADS, Kind::Counter, Unit::Count, &["cause"], "Fences read, by what made it necessary."),
    metric(BISECTIONS, Kind::Counter, Unit::Count, &[], "Batches halved to find the row the table does not take."),
    metric(REBALANCES, Kind::Counter, Unit::Count, &["kind"], "Partitions assigned, revoked and lost."),
    metric(
        PARTITIONS,
        Kind::Gauge,
        Unit::Count,
        &["state"],
        "Partitions held here: reading, or standing still with an alarm.",
    ),
    metric(ALARMS, Kind::Counter, Unit::Count, &["alarm"], "Partitions that came to stand still, by alarm."),
    metric(KAFKA_ERRORS, Kind::Counter, Unit::Count, &["class"], "Errors reported by the Kafka client, by class."),
]);

const RECORDS: &str = "tally_consumer_records_total";
const MISROUTED: &str = "tally_consumer_misrouted_records_total";
const DEAD_LETTERS: &str = "tally_consumer_dead_letters_total";
const DEAD_LETTER_RETRIES: &str = "tally_consumer_dead_letter_retries_total";
const LAG: &str = "tally_consumer_lag_records";
const LAG_SECONDS: &str = "tally_consumer_lag_seconds";
const BATCH_ROWS: &str = "tally_consumer_batch_rows";
const COLLAPSE: &str = "tally_consumer_collapse_ratio";
const FLUSHES: &str = "tally_consumer_flushes_total";
const FLUSH_SECONDS: &str = "tally_consumer_flush_seconds";
const RETRIES: &str = "tally_consumer_retries_total";
const RELOADS: &str = "tally_consumer_fence_reloads_total";
const BISECTIONS: &str = "tally_consumer_bisections_total";
const REBALANCES: &str = "tally_consumer_rebalanced_partitions_total";
const PARTITIONS: &str = "tally_consumer_partitions";
const ALARMS: &str = "tally_consumer_alarms_total";
const KAFKA_ERRORS: &str = "tally_consumer_kafka_errors_total";

pub(crate) fn records(outcome: &'static str, count: u64) {
    if count > 0 {
        counter!(RECORDS, "outcome" => outcome).increment(count);
    }
}

pub(crate) fn misrouted(count: u64) {
    if count > 0 {
        counter!(MISROUTED).increment(count);
    }
}

pub(crate) fn dead_letter(reason: &'static str) {
    counter!(DEAD_LETTERS, "reason" => reason).increment(1);
}

pub(crate) fn dead_letter_refused(fault: &Fault) {
    counter!(DEAD_LETTER_RETRIES, "class" => fault.class()).increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; offsets stay far below 2^53")]
pub(crate) fn lag(partition: u32, records: u64, age: Duration) {
    let partition = partition.to_string();
    gauge!(LAG, "partition" => partition.clone()).set(records as f64);
    gauge!(LAG_SECONDS, "partition" => partition).set(age.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "a batch has far fewer events than 2^53")]
pub(crate) fn flushed(partition: u32, trigger: Trigger, events: &Events, rows: usize, took: Duration) {
    counter!(FLUSHES, "trigger" => trigger.label()).increment(1);
    histogram!(FLUSH_SECONDS, "trigger" => trigger.label()).record(took);
    histogram!(BATCH_ROWS).record(rows as f64);
    if !events.is_empty() {
        let ratio = rows as f64 / events.len() as f64;
        gauge!(COLLAPSE, "partition" => partition.to_string()).set(ratio);
    }
}

pub(crate) fn retried(call: &'static str, class: &'static str) {
    counter!(RETRIES, "call" => call, "class" => class).increment(1);
}

pub(crate) fn reloaded(cause: &'static str) {
    counter!(RELOADS, "cause" => cause).increment(1);
}

pub(crate) fn bisected() {
    counter!(BISECTIONS).increment(1);
}

pub(crate) fn assigned(partitions: usize) {
    rebalanced("assigned", partitions);
}

pub(crate) fn ended(over: Over, partitions: usize) {
    rebalanced(over.label(), partitions);
}

fn rebalanced(kind: &'static str, partitions: usize) {
    counter!(REBALANCES, "kind" => kind).increment(partitions as u64);
}

pub(crate) fn alarm(name: &'static str) {
    counter!(ALARMS, "alarm" => name).increment(1);
}

pub(crate) fn kafka_error(fault: &Fault) {
    counter!(KAFKA_ERRORS, "class" => fault.class()).increment(1);
}

/// A partition counted in the state it is in, for as long as this lives.
pub(crate) struct InState(&'static str);

impl InState {
    pub(crate) fn reading() -> Self {
        Self::enter("reading")
    }

    pub(crate) fn halted() -> Self {
        Self::enter("halted")
    }

    fn enter(state: &'static str) -> Self {
        gauge!(PARTITIONS, "state" => state).increment(1.0);
        Self(state)
    }
}

impl Drop for InState {
    fn drop(&mut self) {
        gauge!(PARTITIONS, "state" => self.0).decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_reference() {
        assert_eq!(CATALOGUE.misnamed(), [""; 0]);
        insta::assert_snapshot!(CATALOGUE);
    }
}
