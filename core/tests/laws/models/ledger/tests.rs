//! The log read with the filter equals the stream, and each rule left out breaks that.

use super::{LOST, Ledger, Rule, TWICE};
use crate::explore::{bounds, breaks, holds_and_ends_well};

/// Records of one subject: they share a partition.
const ONE: &[u32] = &[0, 0, 0];
/// Records of two subjects, in two partitions.
const TWO: &[u32] = &[0, 1, 0];

#[test]
fn each_record_counts_once_however_many_processes_send_it_and_however_often() {
    holds_and_ends_well(&Ledger::new(bounds(ONE, &[0, 0, 0, 0]), 1));
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn each_record_counts_once_over_several_partitions() {
    holds_and_ends_well(&Ledger::new(bounds(TWO, &[0, 1, 1, 0]), 1));
}

#[test]
fn what_is_given_up_is_in_a_lapse_that_is_stored_before_anything_behind_it_is_sent() {
    holds_and_ends_well(&Ledger::new(bounds(&[0, 0], ONE), 1).giving_up(1));
    holds_and_ends_well(&Ledger::new(bounds(&[0, 1], TWO), 1).giving_up(1));
}

#[test]
fn t1_a_stream_shard_fed_before_the_answers_loses_records() {
    breaks(&Ledger::new(ONE, 1).without(Rule::FedBehindAnswers), LOST);
}

#[test]
fn t2_two_messages_under_way_overtake_each_other() {
    breaks(&Ledger::new(ONE, 1).without(Rule::OneUnanswered), LOST);
}

#[test]
fn t3_without_the_filter_a_repeated_message_counts_twice() {
    breaks(&Ledger::new(ONE, 1).without(Rule::Filter), TWICE);
}

#[test]
fn t4_a_filter_by_message_counts_what_another_process_cut_otherwise_twice() {
    breaks(&Ledger::new(ONE, 1).without(Rule::FilterByRecord), TWICE);
}

#[test]
fn t12_the_sides_of_a_change_filtered_apart_lose_one_of_them() {
    breaks(&Ledger::new(ONE, 1).without(Rule::OneEntry), LOST);
}

#[test]
fn t13_a_process_that_does_not_feed_and_says_how_far_is_fed_loses_records() {
    breaks(&Ledger::new(ONE, 1).without(Rule::FedByFeeding), LOST);
}

#[test]
fn a_lapse_that_is_not_stored_before_what_is_behind_it_is_sent_is_forgotten() {
    breaks(&Ledger::new(&[0, 0], 1).giving_up(1).without(Rule::LapseStored), LOST);
}
