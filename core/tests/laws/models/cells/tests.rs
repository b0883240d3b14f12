//! Tests of the model of a sum, in which two consumers add the events of one Kafka partition to a row: each event is
//! added exactly once, and without any one of the rules one is lost.

use super::{Cells, LOST, Rule};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

#[test]
fn each_event_is_added_exactly_once_across_crashes_zombies_and_replays() {
    holds_and_ends_well(&Cells::new(2, 1));
    holds(&Cells::new(3, bounds(1, 2)));
}

#[test]
fn an_update_that_is_not_compared_takes_a_cell_back() {
    breaks(&Cells { removed: Some(Rule::ToCompared), ..Cells::new(2, 0) }, LOST);
}

#[test]
fn a_commit_beyond_an_event_that_is_not_in_the_cell_loses_it() {
    breaks(&Cells { removed: Some(Rule::FinishedOnly), ..Cells::new(1, 0) }, LOST);
}
