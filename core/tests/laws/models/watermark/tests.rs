//! Every record is counted once, and each rule left out breaks that.

use super::{Keys, LOST, Rule, Streamers, TWICE};
use crate::explore::{breaks, holds_and_ends_well};

/// A parent and its child, two records each.
const FAMILY: &[u8] = &[2, 2];
/// A parent and three children, a record each.
const SIBLINGS: &[u8] = &[1, 1, 1, 1];
/// A parent and three children, one of which has two records: with the second it prunes what it saw with the first.
const REMEMBERING: &[u8] = &[1, 1, 2, 1];

#[test]
fn every_record_is_counted_once_however_many_workers_send_it_and_however_often() {
    holds_and_ends_well(&Streamers::new(FAMILY, Keys::Own, 1));
}

#[test]
fn every_record_of_many_shards_is_counted_once_while_watermarks_are_pruned() {
    holds_and_ends_well(&Streamers::new(SIBLINGS, Keys::Own, 1));
}

#[test]
fn every_record_is_counted_once_by_workers_that_act_by_old_pictures() {
    holds_and_ends_well(&Streamers::new(REMEMBERING, Keys::Own, 0).with_closed_parent().with_late_pictures());
}

#[test]
fn a_watermark_seen_in_the_last_reply_is_pruned_by_the_next_update() {
    holds_and_ends_well(&Streamers::new(REMEMBERING, Keys::Own, 0).with_closed_parent());
}

#[test]
fn a_row_key_handed_from_a_closed_parent_to_its_child_stays_exact_and_unsuspected() {
    holds_and_ends_well(&Streamers::new(FAMILY, Keys::Shared, 1));
}

#[test]
fn without_the_watermark_condition_a_repeated_update_counts_twice() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 1).without(Rule::Watermark), TWICE);
}

#[test]
fn a_prefix_sent_before_the_last_is_answered_can_overtake_it() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 0).without(Rule::OneUnanswered), LOST);
}

#[test]
fn a_watermark_dropped_without_a_floor_lets_a_sleeper_count_again() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 0).without(Rule::FloorReplacesMark), TWICE);
}

#[test]
fn a_floor_that_moves_back_readmits_a_finished_shard() {
    let model = Streamers::new(REMEMBERING, Keys::Own, 1).with_closed_parent();
    breaks(&model.without(Rule::FloorForward), TWICE);
}

#[test]
fn an_unknown_outcome_taken_for_success_loses_records() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 1).without(Rule::RepeatUnknown), LOST);
}

#[test]
fn a_checkpoint_ahead_of_the_answers_loses_records() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 1).without(Rule::CheckpointBehind), LOST);
}
