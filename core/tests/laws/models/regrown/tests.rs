//! Tests of the model of a log that grows again: with all rules the laws hold, and without any one of them a law
//! breaks.

use super::{Budget, LIE, Regrown, Rule, Step, WRONG};
use crate::explore::{bounds, breaks, holds};

fn regrown(records: u8, statements: u8, restarts: u8, ends: u8) -> Regrown {
    Regrown::new(Budget { records, statements, falls: 1, ends, restarts })
}

/// Returns a world in which one fold has read what the log has lost since, and the other one has not.
fn zombie(records: u8, statements: u8, restarts: u8) -> Regrown {
    const READS: Step = Step::Read { fold: 0 };
    const BEGUN: &[Step] = &[Step::State, READS, READS, READS, Step::LoseEnd { to: 1 }];
    Regrown { begun: BEGUN, ..regrown(records, statements + 1, restarts, 1) }
}

#[test]
fn a_log_that_lost_its_end_and_grew_again_is_noticed_before_an_answer_is_wrong() {
    holds(&regrown(1, 1, 1, 1));
    holds(&regrown(bounds(1, 2), 0, bounds(1, 2), 1));
    holds(&regrown(1, bounds(0, 1), bounds(1, 2), bounds(1, 2)));
    holds(&zombie(1, bounds(0, 1), 2));
}

#[test]
fn a_log_that_lost_nothing_is_never_taken_for_another_one() {
    // With three restarts there are more than 60,000,000 states.
    holds(&regrown(bounds(1, 2), 1, 2, 0));
}

#[test]
fn a_counter_written_beyond_the_statement_makes_new_messages_count_as_old() {
    breaks(&regrown(2, 1, 1, 1).without(&[Rule::ReadStated]), WRONG);
}

#[test]
fn a_fold_that_only_compares_the_end_of_the_log_notices_nothing_once_it_has_grown() {
    breaks(&regrown(2, 1, 1, 1).without(&[Rule::Compared]), WRONG);
}

#[test]
fn a_fold_that_writes_before_it_has_found_the_furthest_message_adds_a_copy_again() {
    breaks(&regrown(2, 1, 1, 1).without(&[Rule::SureFirst]), LIE);
}

#[test]
fn a_statement_that_replaces_another_uncompared_lets_a_zombie_write_lost_messages() {
    breaks(&regrown(1, 1, 1, 1).without(&[Rule::StatementsCompared]), WRONG);
}

#[test]
fn a_position_without_its_message_has_the_filter_of_a_lost_log() {
    breaks(&zombie(1, 0, 2).without(&[Rule::PositionMarked]), WRONG);
}
