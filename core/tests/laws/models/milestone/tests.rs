//! Each threshold has the record of what reached it first, and each rule left out breaks that.

use super::{Milestones, Rule};
use crate::explore::{bounds, breaks, holds_and_ends_well};

const WRONG: &str = "recorded is";

/// Two stream shards, the second of which only rises.
const TWO: &[&[i64]] = &[&[1, -1, 1], &[1, 1]];
/// The same, shorter.
const SHORT: &[&[i64]] = &[&[1, -1, 1], &[1]];
/// Three stream shards; one only rises.
const THREE: &[&[i64]] = &[&[1, -1], &[1, 1], &[-1, 1]];
/// Two stream shards that rise, dip and rise.
const DIPS: &[&[i64]] = &[&[1, -1, 1], &[1, -1, 1]];
const FEW_DIPS: &[&[i64]] = &[&[1, -1, 1], &[-1]];
/// One that reaches several thresholds in one prefix, dips and reaches them again.
const LONG: &[&[i64]] = &[&[1, 1, -1, 1, 1], &[-1, 1]];
/// Records that pass several thresholds at once, up and down.
const HEAVY: &[&[i64]] = &[&[3, -2, 2], &[2, -1]];

fn m1() -> Milestones {
    Milestones::new(TWO, &[0, 0, 1], "2")
}

fn m3() -> Milestones {
    Milestones::new(DIPS, &[0, 1], "2").with_corrections(1)
}

#[test]
fn m1_the_counter_decides_with_two_workers_on_one_stream_shard() {
    holds_and_ends_well(&Milestones::new(bounds(SHORT, TWO), &[0, 0, 1], "2").with_timeouts(bounds(0, 1)));
}

#[test]
fn m1_the_counter_decides_where_an_update_that_was_given_up_on_lands_late() {
    holds_and_ends_well(&Milestones::new(TWO, &[0, 1], "2").with_timeouts(1));
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn m2_the_counter_decides_over_three_stream_shards_up_and_down() {
    holds_and_ends_well(&Milestones::new(THREE, &[0, 1, 2], "2").with_timeouts(bounds(0, 1)));
}

#[test]
fn m3_what_a_correction_crosses_has_no_winner_then_or_later() {
    holds_and_ends_well(&m3().with_timeouts(bounds(0, 1)));
}

#[test]
fn m3_the_same_where_an_update_that_was_given_up_on_lands_late() {
    holds_and_ends_well(&Milestones::new(FEW_DIPS, &[0, 1], "2").with_corrections(1).with_timeouts(1));
}

#[test]
fn m4_several_thresholds_in_one_prefix_dips_and_rises() {
    holds_and_ends_well(&Milestones::new(LONG, &[0, 1], "1,2,3").with_timeouts(bounds(0, 1)));
}

#[test]
fn m5_a_record_that_passes_several_thresholds_at_once() {
    holds_and_ends_well(&Milestones::new(HEAVY, &[0, 1], "every:1").with_corrections(1).with_timeouts(bounds(0, 1)));
}

#[test]
fn m6_after_a_correction_a_dip_and_a_rise_make_no_second_winner() {
    holds_and_ends_well(&Milestones::new(bounds(FEW_DIPS, DIPS), &[0, 1], "1,2").with_corrections(2));
}

#[test]
fn m7_a_worker_that_does_not_know_the_ladder_passes_nothing_unrecorded_where_it_is_in_force() {
    holds_and_ends_well(&Milestones::new(TWO, &[0, 1], "2").with_an_unaware_worker().with_timeouts(1));
}

#[test]
fn m8_either_the_counters_note_or_the_records_own_condition_keeps_a_second_crossing_out() {
    holds_and_ends_well(&Milestones::new(LONG, &[0, 1], "1,2,3").without(Rule::Noted));
    holds_and_ends_well(&Milestones::new(LONG, &[0, 1], "1,2,3").without(Rule::IfAbsent));
}

#[test]
fn mx1_an_update_that_does_not_look_where_the_total_stands_passes_a_threshold_unrecorded() {
    breaks(&m1().without(Rule::Below), WRONG);
}

#[test]
fn mx2_an_update_that_does_not_look_at_the_version_names_the_wrong_winner() {
    breaks(&m1().without(Rule::Version), WRONG);
}

#[test]
fn mx3_a_winner_that_is_written_after_the_reply_is_lost_with_its_worker() {
    breaks(&m1().without(Rule::RecordWithUpdate), WRONG);
}

#[test]
fn mx4_a_second_crossing_overwrites_the_winner() {
    breaks(&Milestones::new(LONG, &[0, 1], "1,2,3").without(Rule::Noted).without(Rule::IfAbsent), WRONG);
}

#[test]
fn mx5_a_prefix_that_never_rises_reaches_a_threshold_after_a_correction() {
    breaks(&m3().without(Rule::BelowWithoutRise), WRONG);
}

#[test]
fn mx6_a_prefix_that_only_falls_hides_what_a_correction_crossed() {
    breaks(&m3().without(Rule::BelowWhereAllFall), WRONG);
}

#[test]
fn mx7_a_threshold_found_reached_and_not_recorded_gets_a_winner_later() {
    breaks(&m3().without(Rule::Unwitnessed), WRONG);
}

#[test]
fn mx8_of_several_thresholds_in_one_prefix_each_needs_its_record() {
    breaks(&Milestones::new(LONG, &[0, 1], "1,2,3").without(Rule::EachThreshold), WRONG);
}

#[test]
fn mx9_a_worker_that_does_not_know_the_ladder_and_is_not_refused_passes_a_threshold_unrecorded() {
    breaks(&Milestones::new(TWO, &[0, 1], "2").with_an_unaware_worker().without(Rule::InForce), WRONG);
}
