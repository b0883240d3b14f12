//! Tests of the model of answers: numbers that are called exact are exact, and leaving out any rule breaks that.

use super::{LIE, OLD, Rule, World};
use crate::explore::{bounds, breaks, holds};

/// One shard changes and changes back, or both change.
const ONE: [&[i8]; 2] = [&[-5, 5], &[]];
const BOTH: [&[i8]; 2] = [&[-5, 5], &[1]];

/// Returns a world whose cache loses writes.
fn forgetful() -> World {
    World { writes: ONE, failovers: 1, numbers: 2, expires: true, ..World::cached() }
}

/// Returns a world in which two folds write to the cache and nothing is lost. A tick makes older values wrong.
fn shared(writes: [&'static [i8]; 2]) -> World {
    World { writes, lossy: &[], ticks: 1, folds: 2, numbers: 2, ..World::cached() }
}

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
fn cached_values_are_as_recent_as_the_standing_beside_them() {
    let (ticks, writes) = bounds((0, BOTH), (1, ONE));
    holds(&World { ticks, writes, ..World::cached() });
}

#[test]
fn cached_values_are_as_recent_as_the_standing_beside_them_after_a_failover() {
    let (writes, expires) = bounds((ONE, true), (BOTH, false));
    holds(&World { writes, expires, ..forgetful() });
}

#[test]
fn cached_values_are_as_recent_as_the_standing_beside_them_if_commands_are_late() {
    holds(&World { late: 1, failovers: bounds(0, 1), ..forgetful() });
}

#[test]
fn cached_values_are_as_recent_as_the_standing_beside_them_while_two_folds_write() {
    holds(&World { numbers: 3, ..shared([&[-5], &[]]) });
    holds(&shared(bounds([&[-5], &[]], ONE)));
}

#[test]
fn each_rule_of_the_standing_is_necessary() {
    for rule in [Rule::StandingFirst, Rule::AsOfStays, Rule::AnnouncedFirst, Rule::Gap, Rule::StoredBehindCounters] {
        let steps = breaks(&World { ticks: 1, ..World::table() }.without(rule), LIE);
        println!("without {rule:?}: {steps} steps");
    }
}

#[test]
fn losses_are_compared_by_position_since_two_processes_may_announce_theirs_in_another_order() {
    breaks(&World { lossy: &[0, 1], ..World::table() }.without(Rule::ByPlace), LIE);
}

#[test]
fn a_counter_that_changed_and_changed_back_is_written_nevertheless() {
    breaks(&World { writes: ONE, folds: 2, ..World::table() }.without(Rule::ChangedBackWritten), LIE);
}

#[test]
fn exact_answers_contain_every_event_that_kafka_had_acknowledged_by_their_as_of() {
    let (ticks, writes) = bounds((2, ONE), (2, BOTH));
    holds(&World { ticks, writes, ..World::kafka() });
}

#[test]
fn each_rule_of_safe_at_is_necessary() {
    for rule in [Rule::NoLaterThanSafe, Rule::SafeBeforeStanding] {
        let steps = breaks(&World { ticks: 2, writes: ONE, ..World::kafka() }.without(rule), LIE);
        println!("without {rule:?}: {steps} steps");
    }
}

#[test]
fn each_rule_of_the_cache_is_necessary() {
    for (world, rule, law) in [
        (World { folds: 1, ..shared(ONE) }, Rule::MovedBehindValues, LIE),
        (forgetful(), Rule::ForgettingNoticed, OLD),
        (shared([&[-5], &[]]), Rule::ToldWhatIsIn, LIE),
    ] {
        let steps = breaks(&world.without(rule), law);
        println!("without {rule:?}: {steps} steps");
    }
}
