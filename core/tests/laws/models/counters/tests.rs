//! The runs: the rules together hold, and each left out alone breaks what it is for.

use super::Operator::{Defines, EditsBack, MovesBack};
use super::Said::{Later, Like, View};
use super::{Counters, REJECTED, Rule, SUM, Said};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

fn defined_meanwhile() -> Counters {
    let log = bounds::<&[Said]>(&[Later, Later], &[Later, Like, Later]);
    Counters { removed: &[], log, operator: Defines, faults: 1 }
}

fn moved_back() -> Counters {
    let log = bounds::<&[Said]>(&[View(1), View(2)], &[View(1), Like, View(2)]);
    Counters { removed: &[], log, operator: MovesBack, faults: bounds(1, 2) }
}

fn without(removed: &'static [Rule], counters: Counters) -> Counters {
    Counters { removed, ..counters }
}

#[test]
fn an_action_is_never_rejected_once_it_was_defined_before_it_was_said() {
    holds_and_ends_well(&defined_meanwhile());
}

#[test]
fn every_event_of_a_sum_counts_once_whatever_goes_wrong_and_when_the_fence_is_moved_back() {
    holds_and_ends_well(&moved_back());
}

#[test]
fn a_fence_that_was_moved_back_by_hand_changes_no_sum() {
    holds(&Counters { operator: EditsBack, ..moved_back() });
}

#[test]
fn a_list_that_was_read_before_the_record_rejects_what_was_defined_before_it_was_said() {
    breaks(&without(&[Rule::ListAfterRecord], defined_meanwhile()), REJECTED);
}

#[test]
fn without_the_cells_own_condition_a_fence_moved_back_by_hand_counts_twice() {
    breaks(&without(&[Rule::CellCondition], Counters { operator: EditsBack, ..moved_back() }), SUM);
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
