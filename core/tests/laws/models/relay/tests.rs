//! Tests of the model of the relay, in which two processes copy one stream shard into the log of changes: the log as it
//! is read equals the stream, record by record, and leaving out any rule breaks that.

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
const LONG_CHILD: &[&[u32]] = &[&[0], &[0, 0]];

/// Returns a world in which the log loses a message.
fn losing() -> Relays {
    Relays { losing: 1, ..Relays::new(ONE, 0) }
}

/// Returns a world in which the first record may be trimmed.
fn trimmed() -> Relays {
    Relays { trimmed: Some(1), ..Relays::new(ONE, 0) }
}

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
    strands(&Relays { jumps: 1, removed: Some(Rule::UnnamedStay), ..Relays::new(CHILD, 0) });
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
fn a_stream_shard_stored_as_fed_before_the_answers_is_stored_too_far() {
    breaks(&Relays { removed: Some(Rule::FedBehindAnswers), ..Relays::new(ONE, 0) }, FED);
}

#[test]
fn a_time_stated_before_its_records_are_passed_on_claims_too_much() {
    breaks(&Relays { removed: Some(Rule::TimeBehindRecords), ..Relays::new(ONE, 0) }, AS_OF);
}

#[test]
fn each_rule_of_the_relay_is_necessary() {
    for (rule, world, law, otherwise) in [
        (Rule::OneUnderWay, Relays::new(ONE, 0), FALSE_HOLE, "two messages overtake each other and look like a hole"),
        (Rule::AnswersDropped, Relays::new(ONE, 1), FALSE_HOLE, "an old answer is taken for that to a later message"),
        (Rule::LinkAtTakeOver, Relays { busy: 1, ..losing() }, AS_OF, "a take-over hides what the log has lost"),
        (Rule::LinksCompared, losing(), AS_OF, "a reader does not notice what the log has lost"),
        (Rule::ClosingBehindEntries, Relays::new(CHILD, 0), CLOSED, "a stream shard is closed that lacks entries"),
        (Rule::TimeWhileOpen, Relays::new(LONG_CHILD, 0), AS_OF, "the time claims records of the child"),
        (Rule::AnnouncedFirst, trimmed(), UNANNOUNCED, "records behind a loss overtake its announcement"),
        (Rule::AnnouncementRaises, trimmed(), RAISED, "a copy of the lost part is accepted"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Relays { removed: Some(rule), ..world }, law);
    }
}
