//! Tests of the model of what the API's answers claim: a number that is called exact lies between the least and the
//! greatest value that the rows had from the answer's `as_of` on, and leaving out any rule breaks that.

use super::{LIE, Rule, World};
use crate::explore::{bounds, breaks, holds};

/// One shard changes and changes back, or both change.
const ONE: [&[i8]; 2] = [&[-5, 5], &[]];
const BOTH: [&[i8]; 2] = [&[-5, 5], &[1]];

#[test]
fn exact_answers_are_right_around_a_loss_however_long_any_process_stops() {
    holds(&World { ticks: bounds(1, 2), ..World::table() });
}

#[test]
fn exact_answers_are_right_around_two_losses_in_any_order() {
    holds(&World { ticks: bounds(0, 1), lossy: &[0, 1], ..World::table() });
}

#[test]
fn exact_answers_are_right_while_two_folds_work_concurrently() {
    holds(&World { ticks: 1, writes: bounds(ONE, BOTH), folds: 2, ..World::table() });
}

#[test]
fn each_rule_of_the_standing_is_necessary() {
    for rule in [Rule::StandingFirst, Rule::AsOfStays, Rule::AnnouncedFirst, Rule::Gap, Rule::StoredBehindCounters] {
        println!("without {rule:?}");
        breaks(&World { ticks: 1, removed: Some(rule), ..World::table() }, LIE);
    }
}

#[test]
fn losses_are_compared_by_position_since_two_processes_may_announce_theirs_in_another_order() {
    breaks(&World { lossy: &[0, 1], removed: Some(Rule::ByPlace), ..World::table() }, LIE);
}

#[test]
fn a_counter_that_changed_and_changed_back_is_written_nevertheless() {
    breaks(&World { writes: ONE, folds: 2, removed: Some(Rule::ChangedBackWritten), ..World::table() }, LIE);
}

#[test]
fn exact_answers_contain_every_event_that_kafka_had_acknowledged_by_their_as_of() {
    let (ticks, writes) = bounds((2, ONE), (2, BOTH));
    holds(&World { ticks, writes, ..World::kafka() });
}

#[test]
fn each_rule_of_safe_at_is_necessary() {
    for rule in [Rule::NoLaterThanSafe, Rule::SafeBeforeStanding] {
        println!("without {rule:?}");
        breaks(&World { ticks: 2, writes: ONE, removed: Some(rule), ..World::kafka() }, LIE);
    }
}
