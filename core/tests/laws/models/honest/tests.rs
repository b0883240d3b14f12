//! What is called exact was so, and each rule left out breaks that.

use super::{LIE, OLD, Rule, World};
use crate::explore::{bounds, breaks, holds};

/// One shard changes and changes back, or both change.
const ONE: [&[i8]; 2] = [&[-5, 5], &[]];
const BOTH: [&[i8]; 2] = [&[-5, 5], &[1]];

/// The cache forgets.
fn forgetful() -> World {
    World { writes: ONE, failovers: 1, numbers: 2, expires: true, ..World::cached() }
}

/// Two folds write to the cache, and nothing is lost: a tick makes older values wrong.
fn shared(writes: [&'static [i8]; 2]) -> World {
    World { writes, lossy: &[], ticks: 1, folds: 2, numbers: 2, ..World::cached() }
}

#[test]
fn what_is_called_exact_was_so_around_a_loss_however_long_anything_stands_still() {
    holds(&World { ticks: bounds(1, 2), ..World::table() });
}

#[test]
fn what_is_called_exact_was_so_around_two_losses_in_any_order() {
    holds(&World { ticks: bounds(0, 1), lossy: &[0, 1], ..World::table() });
}

#[test]
fn what_is_called_exact_was_so_while_two_folds_work_at_once() {
    holds(&World { ticks: 1, writes: bounds(ONE, BOTH), folds: 2, ..World::table() });
}

#[test]
fn what_the_cache_has_is_as_young_as_the_standing_beside_it() {
    let (ticks, writes) = bounds((0, BOTH), (1, ONE));
    holds(&World { ticks, writes, ..World::cached() });
}

#[test]
fn what_the_cache_has_is_as_young_as_the_standing_beside_it_although_it_forgets() {
    let (writes, expires) = bounds((ONE, true), (BOTH, false));
    holds(&World { writes, expires, ..forgetful() });
}

#[test]
fn what_the_cache_has_is_as_young_as_the_standing_beside_it_although_commands_are_late() {
    holds(&World { late: 1, failovers: bounds(0, 1), ..forgetful() });
}

#[test]
fn what_the_cache_has_is_as_young_as_the_standing_beside_it_while_two_folds_write_to_it() {
    holds(&World { numbers: 3, ..shared([&[-5], &[]]) });
    holds(&shared(bounds([&[-5], &[]], ONE)));
}

#[test]
fn each_rule_of_the_standing_is_needed() {
    for rule in [Rule::StandingFirst, Rule::AsOfStays, Rule::AnnouncedFirst, Rule::Gap, Rule::StoredBehindCounters] {
        let steps = breaks(&World { ticks: 1, ..World::table() }.without(rule), LIE);
        println!("without {rule:?}: {steps} steps");
    }
}

#[test]
fn losses_are_compared_by_their_places_as_two_finders_announce_theirs_in_another_order() {
    breaks(&World { lossy: &[0, 1], ..World::table() }.without(Rule::ByPlace), LIE);
}

#[test]
fn a_counter_that_changed_and_changed_back_is_written_all_the_same() {
    breaks(&World { writes: ONE, folds: 2, ..World::table() }.without(Rule::ChangedBackWritten), LIE);
}

#[test]
fn what_is_called_exact_has_every_event_that_kafka_had_acknowledged_by_its_as_of() {
    let (ticks, writes) = bounds((2, ONE), (2, BOTH));
    holds(&World { ticks, writes, ..World::kafka() });
}

#[test]
fn each_rule_of_safe_at_is_needed() {
    for rule in [Rule::NoLaterThanSafe, Rule::SafeBeforeStanding] {
        let steps = breaks(&World { ticks: 2, writes: ONE, ..World::kafka() }.without(rule), LIE);
        println!("without {rule:?}: {steps} steps");
    }
}

#[test]
fn each_rule_of_the_cache_is_needed() {
    for (world, rule, law) in [
        (World { folds: 1, ..shared(ONE) }, Rule::MovedBehindValues, LIE),
        (forgetful(), Rule::ForgettingNoticed, OLD),
        (shared([&[-5], &[]]), Rule::ToldWhatIsIn, LIE),
    ] {
        let steps = breaks(&world.without(rule), law);
        println!("without {rule:?}: {steps} steps");
    }
}
