//! Tests of the model of two Regions, A and B, in which B answers with counts that A has published: what B calls exact
//! was so at A, and leaving out any rule breaks that.

use super::log::Item::{self, Closes, Corrects, Gains, Loses, Passes};
use super::{LIE, Left, Rule, World};
use crate::explore::{bounds, breaks, holds};

/// A counter changes, and a statement of time comes between the changes or after them.
const STAYS: &[Item] = &[Gains(0, 5), Passes, Gains(0, -3)];
const CHANGES: &[Item] = &[Gains(0, 5), Gains(0, -3), Passes];
/// A record is lost, and a later one is counted.
const LOST: &[Item] = &[Gains(0, 5), Passes, Loses(0, -3), Gains(0, 1)];
/// A record is lost, a later one is counted, and an audit corrects the counter.
const REPAIRED: &[Item] = &[Gains(0, 5), Loses(0, -3), Gains(0, 1), Corrects(0), Closes];
/// A record is counted before the loss of the table is announced, and an audit corrects the counter.
const EMPTIED: &[Item] = &[Gains(0, 5), Passes, Gains(0, 1), ANNOUNCED, Corrects(0), Closes];
/// Nothing is counted between the loss of the table and the audit.
const FORGOTTEN: &[Item] = &[Gains(0, 5), Passes, ANNOUNCED, Corrects(0), Closes];
/// The announcement that the table was lost, and no record.
const ANNOUNCED: Item = Loses(0, 0);

/// Lets this many other folds take over.
fn taken_over(take_overs: u8, ticks: u8, script: &'static [Item]) -> World {
    World { halts: true, left: Left { take_overs, ..Left::default() }, ..World::new(ticks, script) }
}

/// Lets a fold take over early, and B begin to read once records may be compacted away.
fn begun_late(take_overs: u8) -> World {
    World { halts: false, begins: 2, times: Some(&[0, 0, 3]), ..taken_over(take_overs, 3, CHANGES) }
}

/// Lets another reader take over once.
fn replaced(ticks: u8, script: &'static [Item]) -> World {
    World { left: Left { replacements: 1, ..Left::default() }, ..World::new(ticks, script) }
}

/// Lets the table be lost once, while items happen in fixed ticks.
fn emptied(script: &'static [Item], times: &'static [u8]) -> World {
    World { left: Left { lost_tables: 1, ..Left::default() }, times: Some(times), ..World::new(2, script) }
}

/// Lets B read a copy of the topic.
fn mirrored(ticks: u8, script: &'static [Item]) -> World {
    World { mirrored: true, ..World::new(ticks, script) }
}

#[test]
fn what_another_region_calls_exact_was_so_however_long_it_does_not_read() {
    holds(&World::new(3, STAYS));
    holds(&World::new(bounds(2, 3), CHANGES));
}

#[test]
fn what_another_region_calls_exact_was_so_of_each_of_two_counters() {
    holds(&World::new(bounds(1, 2), &[Gains(0, 5), Gains(1, 2), Gains(0, -3), Passes]));
}

#[test]
fn what_another_region_calls_exact_was_so_around_a_loss() {
    holds(&World::new(1, bounds(REPAIRED, &[Gains(0, 5), Passes, Loses(0, -3), Gains(0, 1), Corrects(0), Closes])));
}

#[test]
fn what_another_region_calls_exact_was_so_although_the_table_of_counters_is_lost_and_published_anew() {
    let usual: &[&[u8]] = &[&[0, 1, 1, 1, 1, 1], &[0, 1, 1, 2, 2, 2]];
    let large: &[&[u8]] = &[usual[0], usual[1], &[0, 1, 1, 1, 1, 2], &[0, 1, 1, 1, 2, 2]];
    for times in bounds(usual, large) {
        holds(&emptied(EMPTIED, times));
        holds(&emptied(FORGOTTEN, &times[..5]));
    }
}

#[test]
fn what_another_region_calls_exact_was_so_while_folds_take_over_and_go_on() {
    holds(&taken_over(1, 1, bounds(&[Gains(0, 5), Passes], STAYS)));
    holds(&begun_late(1));
}

#[test]
fn what_another_region_calls_exact_was_so_although_the_mirror_stands_still_and_repeats() {
    holds(&mirrored(bounds(2, 3), CHANGES));
    holds(&World { left: Left { repeats: 1, ..Left::default() }, ..mirrored(bounds(1, 2), &CHANGES[..2]) });
}

#[test]
fn what_another_region_calls_exact_was_so_while_two_readers_write() {
    holds(&replaced(1, CHANGES));
}

#[test]
fn each_rule_of_who_publishes_is_needed() {
    for (world, rule) in [
        (begun_late(1), Rule::Fenced),
        (begun_late(2), Rule::NothingOlder),
        (taken_over(1, 1, &[Gains(0, 5), Passes]), Rule::PublishesWhatIsIn),
        (taken_over(1, 1, &[Gains(0, 5), Passes, Passes]), Rule::PublishedFirst),
        (World::new(2, CHANGES), Rule::StandingLast),
        (World::new(1, LOST), Rule::GapPublished),
        (World::new(1, LOST), Rule::OpenPublished),
        (emptied(FORGOTTEN, &[0, 1, 1, 1, 2]), Rule::LossPublished),
        (emptied(EMPTIED, &[0, 1, 1, 2, 2, 2]), Rule::DoubtPublished),
    ] {
        println!("without {rule:?}");
        breaks(&World { removed: Some(rule), ..world }, LIE);
    }
}

#[test]
fn each_rule_of_who_reads_is_needed() {
    for (world, rule) in [
        (World::new(1, CHANGES), Rule::NewerWins),
        (replaced(1, CHANGES), Rule::OlderRefused),
        (World::new(1, STAYS), Rule::OwnStanding),
        (World::new(3, STAYS), Rule::DoubtsWhatWasThere),
        (World::new(1, STAYS), Rule::EntriesFirst),
    ] {
        println!("without {rule:?}");
        breaks(&World { removed: Some(rule), ..world }, LIE);
    }
}

#[test]
fn a_reader_behind_a_mirror_that_stood_still_doubts_what_was_published_before() {
    let times: &[u8] = &[0, 0, 1, 3];
    let still = mirrored(3, &[Gains(0, 5), Gains(0, -3), Passes, Gains(0, 1)]);
    breaks(&World { times: Some(times), removed: Some(Rule::DoubtsAfterStandstill), ..still }, LIE);
}

#[test]
fn a_topic_that_is_compacted_early_and_clocks_that_differ_are_not_survived() {
    let early = World::new(1, &[Gains(1, 1), Gains(0, 5), Passes, Gains(0, -3)]);
    breaks(&World { removed: Some(Rule::Lag), ..early }, LIE);
    breaks(&World { removed: Some(Rule::ClocksAgree), ..World::new(3, STAYS) }, LIE);
}
