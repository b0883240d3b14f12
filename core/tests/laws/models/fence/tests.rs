//! The runs: the rules together hold, and each left out alone breaks what it is for.

use tally_core::event::Action::{Like, Unlike};

use super::Fault::{CrashMidway, LandsTwice, LetterUnanswered, Stop, TimeOut, Unreadable};
use super::{Consumers, LETTERS, ROWS, Rule, Said};
use crate::explore::{bounds, breaks, holds_and_ends_well};

fn two_users() -> Consumers {
    let alphabet = vec![Said::Event(0, Like), Said::Event(0, Unlike), Said::Event(1, Like), Said::Event(1, Unlike)];
    Consumers { removed: None, alphabet, lengths: [1, 2], faults: 1, kinds: &[TimeOut] }
}

fn one_user_and(other: Said) -> Consumers {
    let kinds = &[TimeOut, LetterUnanswered, Unreadable];
    Consumers {
        alphabet: vec![Said::Event(0, Like), Said::Event(0, Unlike), other],
        lengths: [1, 1],
        kinds,
        ..two_users()
    }
}

fn without(rule: Rule, consumers: Consumers) -> Consumers {
    Consumers { removed: Some(rule), ..consumers }
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn rows_are_the_fold_of_the_events_before_the_fence() {
    holds_and_ends_well(&Consumers { faults: bounds(1, 2), ..two_users() });
}

#[test]
fn rows_are_the_fold_whatever_goes_wrong() {
    let kinds = &[TimeOut, LandsTwice, CrashMidway, Unreadable, Stop];
    holds_and_ends_well(&Consumers { lengths: bounds([1, 1], [1, 2]), kinds, ..two_users() });
}

#[test]
fn a_record_that_is_no_event_has_its_dead_letter_before_the_fence_passes_it() {
    holds_and_ends_well(&Consumers { lengths: [1, bounds(1, 2)], ..one_user_and(Said::Poison) });
}

#[test]
fn a_row_that_the_table_refuses_has_its_dead_letter_before_the_fence_passes_it() {
    holds_and_ends_well(&Consumers { lengths: [1, bounds(1, 2)], ..one_user_and(Said::Unwelcome) });
}

#[test]
fn without_the_fences_condition_a_late_request_undoes_newer_rows() {
    breaks(&without(Rule::Condition, two_users()), ROWS);
}

#[test]
fn without_cfg_in_the_condition_a_ghost_passes_a_reset_fence() {
    breaks(&without(Rule::CfgInCondition, two_users()), ROWS);
}

#[test]
fn a_time_out_taken_for_a_refusal_writes_old_rows_over_newer_ones() {
    breaks(&without(Rule::ReloadAfterUnknown, two_users()), ROWS);
}

#[test]
fn records_read_before_the_fence_may_be_those_of_another_topic() {
    breaks(&without(Rule::FenceFirst, two_users()), ROWS);
}

#[test]
fn reading_on_from_kafkas_committed_offset_repeats_what_the_fence_has_passed() {
    breaks(&without(Rule::StartAtFence, two_users()), ROWS);
}

#[test]
fn reading_on_where_it_was_after_the_fence_was_read_again_skips_what_was_not_written() {
    breaks(&without(Rule::StartAnew, two_users()), ROWS);
}

#[test]
fn a_fence_that_does_not_wait_for_dead_letters_passes_records_that_are_nowhere() {
    breaks(&without(Rule::LetterFirst, one_user_and(Said::Poison)), LETTERS);
    breaks(&without(Rule::LetterFirst, one_user_and(Said::Unwelcome)), LETTERS);
}

#[test]
fn a_late_acknowledgement_taken_for_one_of_the_topic_created_again_loses_a_record() {
    let consumers = without(Rule::LetterOfItsCfg, one_user_and(Said::Poison));
    breaks(&consumers, ROWS);
    breaks(&Consumers { alphabet: vec![Said::Poison], ..consumers }, LETTERS);
}
