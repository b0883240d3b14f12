//! Tests of the model of the cache: the law holds, and each rule is necessary.

use super::{Caching, Left, MISSING, Rule};
use crate::explore::{bounds, breaks, holds};

const CALM: Left = Left { take_overs: 2, fills: 1, failovers: 0, given_up: 0, copies: 0 };
const FAILOVER: Left = Left { failovers: 1, ..CALM };
const GIVEN_UP: Left = Left { given_up: 1, ..CALM };
const COPY: Left = Left { copies: 1, ..CALM };

#[test]
fn no_value_is_older_than_its_standing_during_take_overs_and_fills() {
    let left = Left { fills: 2, ..CALM };
    holds(&Caching::new(2, 2, bounds(left, Left { take_overs: 3, fills: 3, ..left })));
}

#[test]
fn no_value_is_older_than_its_standing_after_a_failover() {
    holds(&Caching::new(2, 1, bounds(FAILOVER, Left { given_up: 1, fills: 2, ..FAILOVER })));
}

#[test]
fn no_value_is_older_than_its_standing_if_requests_arrive_after_they_were_given_up() {
    holds(&Caching::new(2, 1, bounds(GIVEN_UP, Left { copies: 1, fills: 2, ..GIVEN_UP })));
}

#[test]
fn no_value_is_older_than_its_standing_if_requests_arrive_twice() {
    holds(&Caching::new(2, 1, bounds(COPY, Left { failovers: 1, fills: 2, ..COPY })));
}

#[track_caller]
fn needed(rule: Rule, left: Left) {
    breaks(&Caching::new(2, 1, left).without(rule), MISSING);
}

#[test]
fn a_standing_written_before_its_values_breaks_the_law() {
    needed(Rule::ValuesBeforeStanding, CALM);
}

#[test]
fn a_value_that_is_not_told_because_another_fold_had_written_it_breaks_the_law() {
    needed(Rule::ToldWhatIsIn, CALM);
}

#[test]
fn a_value_whose_unanswered_write_is_not_repeated_breaks_the_law() {
    needed(Rule::UnansweredIsUntold, GIVEN_UP);
}

#[test]
fn a_write_after_a_lost_one_breaks_the_law() {
    needed(Rule::SequenceCompared, FAILOVER);
}

#[test]
fn a_write_under_another_take_over_breaks_the_law() {
    needed(Rule::WriterCompared, FAILOVER);
}

#[test]
fn a_value_of_an_earlier_take_over_breaks_the_law() {
    needed(Rule::ReadersCompare, CALM);
}

#[test]
fn take_over_numbers_that_count_up_break_the_law() {
    needed(Rule::NumbersDrawn, CALM);
}

#[test]
fn a_fill_without_its_token_breaks_the_law() {
    needed(Rule::FillNeedsToken, CALM);
}

#[test]
fn a_token_that_survives_a_write_breaks_the_law() {
    needed(Rule::WriteTakesToken, CALM);
}

#[test]
fn a_token_that_a_late_copy_restores_breaks_the_law() {
    needed(Rule::TokenNamesSequence, COPY);
}
