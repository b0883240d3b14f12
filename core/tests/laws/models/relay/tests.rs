//! The log read with the filter equals the stream, and each rule left out breaks that.

use super::{AS_OF, CLOSED, FALSE_HOLE, FED, RAISED, Relays, Rule, UNANNOUNCED};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well, strands};

/// Records of one subject: they share a partition.
const ONE: &[&[u32]] = &[&[0, 0]];
/// Records of two subjects, in two partitions.
const TWO: &[&[u32]] = &[&[0, 1]];
const THREE: &[&[u32]] = &[&[0, 1, 0]];
/// A stream shard that ends, and its child.
const CHILD: &[&[u32]] = &[&[0], &[0]];
const CHILD_OF_TWO: &[&[u32]] = &[&[0, 1], &[0]];

#[test]
fn each_record_is_accepted_once_however_many_processes_send_it_and_however_often() {
    holds_and_ends_well(&Relays::new(TWO, 1));
    holds_and_ends_well(&Relays::new(THREE, bounds(0, 1)));
}

#[test]
fn each_record_is_accepted_once_while_seconds_pass_before_anything_is_acknowledged() {
    holds_and_ends_well(&Relays { busy: bounds(1, 2), ..Relays::new(TWO, 0) });
}

#[test]
fn a_message_that_the_log_loses_is_a_hole_or_nothing_is_missing() {
    holds_and_ends_well(&Relays::new(bounds(THREE, TWO), bounds(0, 1)).losing(1));
    holds_and_ends_well(&Relays { busy: bounds(0, 1), ..Relays::new(CHILD, 0).losing(1) });
    holds_and_ends_well(&Relays { busy: bounds(1, 2), ..Relays::new(ONE, 0).losing(1) });
}

#[test]
fn a_stream_shard_is_closed_behind_its_records_and_its_child_is_no_hole() {
    holds_and_ends_well(&Relays::new(bounds(CHILD, CHILD_OF_TWO), 1));
}

#[test]
fn a_reader_that_has_jumped_knows_all_stream_shards_again_also_while_one_of_them_ends() {
    holds_and_ends_well(&Relays { jumps: 1, ..Relays::new(bounds(CHILD, CHILD_OF_TWO), 0) });
    holds_and_ends_well(&Relays { jumps: bounds(1, 2), ..Relays::new(ONE, 0) });
}

#[test]
fn an_announcement_that_ends_what_it_does_not_name_ends_a_child_for_ever() {
    strands(&Relays { jumps: 1, ..Relays::new(CHILD, 0) }.without(Rule::UnnamedStay));
}

#[test]
fn a_process_that_is_to_leave_may_begin_again_before_it_has() {
    holds_and_ends_well(&Relays::new(ONE, bounds(0, 1)).leaving(bounds(2, 1)));
    holds_and_ends_well(&Relays::new(CHILD, 0).losing(bounds(0, 1)).leaving(bounds(1, 2)));
}

#[test]
fn what_is_trimmed_is_announced_before_what_is_behind_it_and_not_accepted_afterwards() {
    holds(&Relays::new(&[&[0, 0, 0]], 0).trimming(2));
    holds(&Relays::new(ONE, bounds(0, 1)).trimming(1));
}

#[test]
fn two_messages_under_way_overtake_each_other_and_seem_a_hole() {
    breaks(&Relays::new(ONE, 0).without(Rule::OneUnderWay), FALSE_HOLE);
}

#[test]
fn an_answer_to_what_was_sent_before_everything_was_dropped_is_taken_for_another_one() {
    breaks(&Relays::new(ONE, 1).without(Rule::AnswersDropped), FALSE_HOLE);
}

#[test]
fn a_stream_shard_stored_as_fed_before_the_answers_is_fed_too_far() {
    breaks(&Relays::new(ONE, 0).without(Rule::FedBehindAnswers), FED);
}

#[test]
fn a_take_over_without_a_back_link_does_not_see_what_the_log_has_lost() {
    breaks(&Relays { busy: 1, ..Relays::new(ONE, 0).losing(1) }.without(Rule::LinkAtTakeOver), AS_OF);
}

#[test]
fn a_reader_that_does_not_compare_back_links_does_not_see_what_the_log_has_lost() {
    breaks(&Relays::new(ONE, 0).losing(1).without(Rule::LinksCompared), AS_OF);
}

#[test]
fn a_closing_said_before_the_entries_closes_a_stream_shard_that_misses_some() {
    breaks(&Relays::new(CHILD, 0).without(Rule::ClosingBehindEntries), CLOSED);
}

#[test]
fn a_time_stated_before_the_records_of_before_it_claims_too_much() {
    breaks(&Relays::new(ONE, 0).without(Rule::TimeBehindRecords), AS_OF);
}

#[test]
fn the_time_at_which_the_end_of_a_stream_shard_was_found_claims_records_of_its_child() {
    breaks(&Relays::new(&[&[0], &[0, 0]], 0).without(Rule::TimeWhileOpen), AS_OF);
}

#[test]
fn what_is_behind_a_loss_waits_for_the_announcement() {
    breaks(&Relays::new(ONE, 0).trimming(1).without(Rule::AnnouncedFirst), UNANNOUNCED);
}

#[test]
fn an_announcement_that_does_not_raise_the_filter_lets_a_copy_of_the_lost_piece_in() {
    breaks(&Relays::new(ONE, 0).trimming(1).without(Rule::AnnouncementRaises), RAISED);
}
