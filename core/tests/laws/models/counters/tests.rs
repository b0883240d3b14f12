//! The runs: the rules together hold, and each left out alone breaks what it is for.

use super::Operator::{Defines, EditsBack, MovesBack, Nothing};
use super::Said::{Later, Like, Never, Vote};
use super::{Counters, REJECTED, Rule, SUM, Said};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

fn defined_meanwhile() -> Counters {
    let log = bounds::<&[Said]>(&[Later, Later], &[Later, Like, Later]);
    Counters { removed: &[], log, operator: Defines, faults: 1 }
}

fn moved_back() -> Counters {
    let log = bounds::<&[Said]>(&[Vote(1), Vote(-2)], &[Vote(1), Like, Vote(-2)]);
    Counters { removed: &[], log, operator: MovesBack, faults: bounds(1, 2) }
}

/// Votes that come to nothing together.
fn come_to_nothing() -> Counters {
    Counters { log: &[Vote(3), Vote(-3)], ..moved_back() }
}

fn without(removed: &'static [Rule], counters: Counters) -> Counters {
    Counters { removed, ..counters }
}

#[test]
fn an_action_is_never_rejected_once_it_was_defined_before_it_was_said() {
    holds_and_ends_well(&defined_meanwhile());
}

/// What a look at the list says of one action says nothing of another, though both were polled before it.
#[test]
fn nor_is_it_rejected_beside_an_action_that_nothing_defines() {
    holds_and_ends_well(&Counters {
        log: bounds::<&[Said]>(&[Never, Later], &[Never, Later, Later]),
        ..defined_meanwhile()
    });
}

#[test]
fn every_event_of_a_sum_counts_once_whatever_goes_wrong_and_when_the_fence_is_moved_back() {
    holds_and_ends_well(&moved_back());
    holds_and_ends_well(&come_to_nothing());
}

#[test]
fn every_event_of_a_sum_counts_once_in_a_longer_log_that_is_moved_back_anywhere() {
    holds_and_ends_well(&Counters { log: &[Vote(1), Vote(-2), Vote(4)], faults: bounds(0, 1), ..moved_back() });
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn a_fence_that_was_moved_back_by_hand_changes_no_sum() {
    holds(&Counters { operator: EditsBack, ..moved_back() });
    holds(&Counters { operator: EditsBack, ..come_to_nothing() });
}

#[test]
fn a_list_that_was_read_before_the_record_rejects_what_was_defined_before_it_was_said() {
    breaks(&without(&[Rule::ListAfterRecord], defined_meanwhile()), REJECTED);
}

#[test]
fn without_any_condition_a_late_request_counts_twice() {
    breaks(&without(&[Rule::FenceCondition, Rule::CellCondition], Counters { operator: Nothing, ..moved_back() }), SUM);
}

#[test]
fn what_was_read_before_an_unknown_outcome_and_is_sent_under_the_fence_of_afterwards_counts_twice() {
    let removed = &[Rule::ReloadAfterUnknown, Rule::CellCondition];
    breaks(&without(removed, Counters { operator: Nothing, ..moved_back() }), SUM);
}

#[test]
fn without_the_cells_own_condition_a_fence_moved_back_by_hand_counts_twice() {
    breaks(&without(&[Rule::CellCondition], Counters { operator: EditsBack, ..moved_back() }), SUM);
}

/// The condition of one cell says nothing of what is in another.
#[test]
fn additions_to_a_cell_picked_at_will_count_twice_when_the_fence_is_moved_back_by_hand() {
    breaks(&without(&[Rule::OwnCell], Counters { operator: EditsBack, ..moved_back() }), SUM);
}

/// Without the row the cell would say that it has none of these events.
#[test]
fn a_sum_of_nothing_that_is_not_written_counts_its_second_half_when_the_fence_is_moved_into_it() {
    breaks(&without(&[Rule::ZeroIsWritten], come_to_nothing()), SUM);
}

/// The cell's condition would refuse it, for ever.
#[test]
fn folding_what_a_cell_has_already_would_count_twice() {
    breaks(&without(&[Rule::FoldsBehindCell, Rule::CellCondition], moved_back()), SUM);
}

/// So it would stay out by the cell's condition alone, and by the fence's alone.
#[test]
fn a_late_request_would_pass_a_fence_that_was_moved_back_by_its_offset_alone() {
    breaks(&without(&[Rule::CfgInCondition, Rule::CellCondition], moved_back()), SUM);
}
