//! The metrics of `tally-trends`, which makes lists of what is trending, and functions for what takes more than one
//! call.

use std::time::Duration;

use metrics::gauge;
use tally_core::changes::BadMessage;
use tally_core::fault::Fault;
use tally_service::catalogue;
use tally_service::metrics::Label;

const CLASS: Label = Label::of("class", Fault::CLASSES);
const PARTITION: Label = Label::learnt("partition");

catalogue! {
    CHANGES: Counter Count "tally_trends_changes_total" [Label::of("outcome", &["counted", "copy"])],
        "Changes read: new ones, which are counted, and copies, which are not.";
    LATE: Counter Count "tally_trends_late_changes_total" [],
        "Messages with changes that came after their moment was published; lists are inexact for one window.";
    LOSSES: Counter Count "tally_trends_losses_total" [],
        "Losses announced or found in the log; lists are inexact for one window.";
    REPLAYS: Counter Count "tally_trends_replays_total" [],
        "Partitions read again from the log after a gap.";
    KEYS: Gauge Count "tally_trends_keys" [],
        "Keys in memory: subjects, counted once for each counter and region in which they have a sum.";
    SHED: Counter Count "tally_trends_shed_keys_total" [],
        "Keys forgotten because of the limit; lists state a bound.";
    BOARDS: Counter Count "tally_trends_boards_total" [],
        "Boards written.";
    AGE: Gauge Seconds "tally_trends_moment_age_seconds" [PARTITION],
        "Age of the latest moment for which all lists of a partition are written.";
    PARTITIONS: Gauge Count "tally_trends_partitions" [Label::of("state", &["reading", "halted"])],
        "Assigned partitions: reading, or halted by an alarm.";
    ALARMS: Counter Count "tally_trends_alarms_total" [Label::of("alarm", &["version", "deployment", "malformed"])],
        "Partitions halted, by alarm.";
    RETRIES: Counter Count "tally_trends_retries_total" [CLASS],
        "Calls to Kafka and to the tables that were retried.";
    KAFKA_ERRORS: Counter Count "tally_trends_kafka_errors_total" [CLASS],
        "Errors reported by the Kafka client, by class.";
}

pub(crate) fn written(partition: u32, boards: usize, age: Duration) {
    BOARDS.counter(&[]).increment(boards as u64);
    gauge!(AGE.name, PARTITION.name => partition.to_string()).set(age.as_secs_f64());
}

/// Counts a partition that was halted, and returns the name of the alarm.
pub(crate) fn halted(bad: &BadMessage) -> &'static str {
    let alarm = match bad {
        BadMessage::Version(_) => "version",
        BadMessage::Deployment(_) => "deployment",
        BadMessage::Malformed(_) => "malformed",
    };
    ALARMS.counter(&[alarm]).increment(1);
    alarm
}

pub(crate) fn kafka_error(fault: &Fault) {
    KAFKA_ERRORS.counter(&[fault.class()]).increment(1);
}

/// Adds the keys of a partition to the gauge until it is dropped.
#[derive(Default)]
pub(crate) struct Held(usize);

impl Held {
    pub(crate) fn set(&mut self, keys: usize) {
        if keys != self.0 {
            KEYS.gauge(&[]).increment(keys as f64 - self.0 as f64);
            self.0 = keys;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_reference() {
        CATALOGUE.check_reference("trends");
    }
}
