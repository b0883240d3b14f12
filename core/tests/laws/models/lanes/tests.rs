//! The runs: the rules together hold, and each left out alone breaks what it is for.

use super::{Lanes, ROWS, Rule, Said};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

/// Two users, of different lanes wherever there are two lanes or more.
const FOUR: &[Said] = &[(0, true), (1, true), (0, false), (1, false)];
const TWO: &[Said] = &[(1, true), (0, true)];
const THREE: &[Said] = &[(0, true), (1, true), (0, false)];

/// Four users, of one lane each where there are four.
const ALL: &[Said] = &[(0, true), (1, true), (2, true), (3, true)];
/// Of two lanes both are in lane 0, of four they are not.
const SPLIT: &[Said] = &[(0, true), (2, true), (2, false)];
/// Of two lanes both are in lane 1, of four they are not.
const SECOND: &[Said] = &[(1, true), (3, true), (3, false)];

fn grows() -> Lanes {
    Lanes { removed: None, log: THREE, first: 1, plan: &[2], consumers: 2, faults: 1, torn: false }
}

fn without(rule: Rule, lanes: Lanes) -> Lanes {
    Lanes { removed: Some(rule), ..lanes }
}

#[test]
fn rows_are_the_fold_of_their_lane_while_one_becomes_two() {
    holds_and_ends_well(&Lanes { log: bounds(TWO, FOUR), faults: bounds(0, 1), ..grows() });
    holds_and_ends_well(&Lanes { log: bounds(THREE, FOUR), consumers: 1, ..grows() });
}

#[test]
fn rows_are_the_fold_of_their_lane_while_one_becomes_two_and_one_again() {
    holds_and_ends_well(&Lanes { log: bounds(TWO, THREE), plan: &[2, 1], faults: 0, ..grows() });
    holds(&Lanes { plan: &[2, 1], consumers: bounds(1, 2), ..grows() });
}

#[test]
fn rows_are_the_fold_of_their_lane_while_two_become_four() {
    holds_and_ends_well(&Lanes { log: bounds(&SECOND[1..2], SECOND), first: 2, plan: &[4], faults: 0, ..grows() });
    holds(&Lanes {
        log: bounds(&SPLIT[..2], ALL),
        first: 2,
        plan: &[4],
        consumers: 1,
        faults: bounds(0, 1),
        ..grows()
    });
}

#[test]
fn rows_are_the_fold_of_their_lane_while_four_become_two() {
    holds_and_ends_well(&Lanes { log: bounds(&SPLIT[1..2], SPLIT), first: 4, plan: &[2], faults: 0, ..grows() });
    holds(&Lanes {
        log: bounds(&SPLIT[..2], ALL),
        first: 4,
        plan: &[2],
        consumers: 1,
        faults: bounds(0, 1),
        ..grows()
    });
}

#[test]
fn fences_that_are_read_one_by_one_are_read_again_unless_they_stand_together() {
    holds_and_ends_well(&Lanes { torn: true, log: bounds(TWO, THREE), faults: 0, ..grows() });
    let log = bounds(&SECOND[1..2], SECOND);
    holds(&Lanes { torn: true, log, first: 2, plan: &[4], faults: 0, ..grows() });
}

#[test]
fn fences_of_two_configurations_taken_for_one_write_what_another_lane_has_written() {
    breaks(
        &without(Rule::Together, Lanes { torn: true, log: SECOND, first: 2, plan: &[4], faults: 0, ..grows() }),
        ROWS,
    );
}

#[test]
fn without_cfg_in_the_condition_a_lane_of_before_the_change_writes_what_another_owns() {
    breaks(&without(Rule::CfgInCondition, Lanes { faults: 0, ..grows() }), ROWS);
}

#[test]
fn a_lane_that_keeps_its_cfg_over_a_change_admits_who_knows_nothing_of_it() {
    breaks(&without(Rule::CfgRises, Lanes { plan: &[2, 1], faults: 0, ..grows() }), ROWS);
}

#[test]
fn a_change_where_lanes_are_at_different_offsets_skips_what_one_has_not_written() {
    breaks(&without(Rule::Drained, Lanes { plan: &[2, 1], consumers: 1, ..grows() }), ROWS);
}

#[test]
fn a_lane_drawn_anew_on_a_replay_writes_old_rows_over_newer_ones() {
    breaks(
        &without(Rule::LaneOfRecord, Lanes { first: 2, plan: &[], consumers: 1, faults: 0, log: FOUR, ..grows() }),
        ROWS,
    );
}

#[test]
fn reading_that_starts_at_the_first_lanes_fence_skips_what_another_has_not_written() {
    breaks(&without(Rule::StartAtLeast, Lanes { first: 2, plan: &[], consumers: 1, ..grows() }), ROWS);
}

#[test]
fn a_fence_that_passes_a_record_that_waits_for_its_batch_loses_it() {
    breaks(
        &without(Rule::EndAtWaiting, Lanes { log: SPLIT, first: 2, plan: &[], consumers: 1, faults: 0, ..grows() }),
        ROWS,
    );
}
