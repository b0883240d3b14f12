//! Tests of the model of a log of changes that loses its end and grows again: folds notice that before an answer is
//! wrong, and without any one of their rules a law breaks.

use super::{Budget, LIE, Regrown, Rule, Step, WRONG};
use crate::explore::{bounds, breaks, holds};

fn regrown(records: u8, statements: u8, restarts: u8, ends: u8) -> Regrown {
    let budget = Budget { records, statements, falls: 1, ends, restarts };
    Regrown { budget, ..Regrown::default() }
}

/// Returns a world in which one fold has read what the log has lost since, and the other one has not.
fn zombie(records: u8, statements: u8, restarts: u8) -> Regrown {
    const READS: Step = Step("reads", 0);
    const BEGUN: &[Step] = &[Step("states", 0), READS, READS, READS, Step("loses its end", 1)];
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
fn each_rule_of_a_log_that_grew_again_is_necessary() {
    for (rule, world, law, otherwise) in [
        (Rule::ReadStated, regrown(2, 1, 1, 1), WRONG, "a counter beyond the statement takes new messages for old"),
        (Rule::Compared, regrown(2, 1, 1, 1), WRONG, "nothing is noticed once the log has grown"),
        (Rule::SureFirst, regrown(2, 1, 1, 1), LIE, "a fold that begins adds a copy again"),
        (Rule::StatementsCompared, regrown(1, 1, 1, 1), WRONG, "a zombie writes lost messages"),
        (Rule::PositionMarked, zombie(1, 0, 2), WRONG, "a fold begins with the filter of a lost log"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Regrown { removed: Some(rule), ..world }, law);
    }
}
