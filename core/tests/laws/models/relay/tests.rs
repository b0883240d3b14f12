//! Tests of the model of the relay: the log as it is read equals the stream, and leaving out any rule breaks that.

use super::{AS_OF, CLOSED, FALSE_HOLE, FED, RAISED, Relays, Rule, UNANNOUNCED};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well, strands};

/// Records of one subject, which share a partition.
const ONE: &[&[u32]] = &[&[0, 0]];
/// Records of two subjects in two partitions.
const TWO: &[&[u32]] = &[&[0, 1]];
const THREE: &[&[u32]] = &[&[0, 1, 0]];
/// A stream shard that ends, and its child.
const CHILD: &[&[u32]] = &[&[0], &[0]];
const CHILD_OF_TWO: &[&[u32]] = &[&[0, 1], &[0]];

#[test]
fn each_record_is_accepted_once_however_often_and_by_how_many_processes_it_is_sent() {
    holds_and_ends_well(&Relays::new(TWO, 1));
    holds_and_ends_well(&Relays::new(THREE, bounds(0, 1)));
}

#[test]
fn each_record_is_accepted_once_if_acknowledgements_take_seconds() {
    holds_and_ends_well(&Relays { busy: bounds(1, 2), ..Relays::new(TWO, 0) });
}

#[test]
fn a_message_that_the_log_loses_is_a_hole_or_nothing_is_missing() {
    holds_and_ends_well(&Relays { losing: 1, ..Relays::new(bounds(THREE, TWO), bounds(0, 1)) });
    holds_and_ends_well(&Relays { losing: 1, busy: bounds(0, 1), ..Relays::new(CHILD, 0) });
    holds_and_ends_well(&Relays { losing: 1, busy: bounds(1, 2), ..Relays::new(ONE, 0) });
}

#[test]
fn a_stream_shard_is_closed_after_its_records_and_its_child_is_not_a_hole() {
    holds_and_ends_well(&Relays::new(bounds(CHILD, CHILD_OF_TWO), 1));
}

#[test]
fn a_reader_that_has_jumped_learns_all_stream_shards_again_even_while_one_of_them_ends() {
    holds_and_ends_well(&Relays { jumps: 1, ..Relays::new(bounds(CHILD, CHILD_OF_TWO), 0) });
    holds_and_ends_well(&Relays { jumps: bounds(1, 2), ..Relays::new(ONE, 0) });
}

#[test]
fn an_announcement_that_ends_stream_shards_it_does_not_name_ends_a_child_forever() {
    strands(&Relays { jumps: 1, ..Relays::new(CHILD, 0) }.without(Rule::UnnamedStay));
}

#[test]
fn a_process_that_is_asked_to_leave_may_begin_again_before_it_has_left() {
    holds_and_ends_well(&Relays { leaves: bounds(2, 1), ..Relays::new(ONE, bounds(0, 1)) });
    holds_and_ends_well(&Relays { losing: bounds(0, 1), leaves: bounds(1, 2), ..Relays::new(CHILD, 0) });
}

#[test]
fn trimmed_records_are_announced_before_what_follows_and_not_accepted_afterwards() {
    holds(&Relays { trimmed: Some(2), ..Relays::new(&[&[0, 0, 0]], 0) });
    holds(&Relays { trimmed: Some(1), ..Relays::new(ONE, bounds(0, 1)) });
}

#[test]
fn two_messages_under_way_overtake_each_other_and_look_like_a_hole() {
    breaks(&Relays::new(ONE, 0).without(Rule::OneUnderWay), FALSE_HOLE);
}

#[test]
fn an_answer_from_before_everything_was_dropped_is_taken_for_another_one() {
    breaks(&Relays::new(ONE, 1).without(Rule::AnswersDropped), FALSE_HOLE);
}

#[test]
fn a_stream_shard_stored_as_fed_before_the_answers_is_stored_too_far() {
    breaks(&Relays::new(ONE, 0).without(Rule::FedBehindAnswers), FED);
}

#[test]
fn a_take_over_without_a_back_link_does_not_notice_what_the_log_has_lost() {
    breaks(&Relays { losing: 1, busy: 1, ..Relays::new(ONE, 0) }.without(Rule::LinkAtTakeOver), AS_OF);
}

#[test]
fn a_reader_that_does_not_compare_back_links_does_not_notice_what_the_log_has_lost() {
    breaks(&Relays { losing: 1, ..Relays::new(ONE, 0) }.without(Rule::LinksCompared), AS_OF);
}

#[test]
fn a_closing_sent_before_the_entries_closes_a_stream_shard_that_lacks_some() {
    breaks(&Relays::new(CHILD, 0).without(Rule::ClosingBehindEntries), CLOSED);
}

#[test]
fn a_time_stated_before_its_records_are_passed_on_claims_too_much() {
    breaks(&Relays::new(ONE, 0).without(Rule::TimeBehindRecords), AS_OF);
}

#[test]
fn the_time_at_which_the_end_of_a_stream_shard_was_found_claims_records_of_its_child() {
    breaks(&Relays::new(&[&[0], &[0, 0]], 0).without(Rule::TimeWhileOpen), AS_OF);
}

#[test]
fn records_after_a_loss_wait_for_the_announcement() {
    breaks(&Relays { trimmed: Some(1), ..Relays::new(ONE, 0) }.without(Rule::AnnouncedFirst), UNANNOUNCED);
}

#[test]
fn an_announcement_that_does_not_advance_the_filter_lets_a_copy_of_the_lost_part_in() {
    breaks(&Relays { trimmed: Some(1), ..Relays::new(ONE, 0) }.without(Rule::AnnouncementRaises), RAISED);
}
