//! Tests of the model of the cache of counts in Redis: a value contains every change before the standing that a reader
//! gets with it, and each rule of the cache is necessary for that. A standing says up to where the changes of a
//! partition are counted.

use super::{AHEAD, Caching, FOREIGN, Left, MISSING, Rule};
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

/// Returns a world of two deployments.
fn sharing(changes: u8, left: Left) -> Caching {
    Caching { shared: true, ..Caching::new(changes, 2, left) }
}

#[test]
fn no_reader_gets_what_another_deployment_counted() {
    holds(&sharing(2, Left { take_overs: 3, fills: 2, ..CALM }));
    holds(&sharing(bounds(1, 2), GIVEN_UP));
}

#[test]
fn each_rule_between_deployments_is_necessary() {
    for (rule, law, otherwise) in [
        (Rule::DeploymentCompared, AHEAD, "a reader believes the standing of another deployment"),
        (Rule::TokenCompared, FOREIGN, "a reader fills the cache of another deployment"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Caching { removed: Some(rule), ..sharing(2, CALM) }, law);
    }
}

#[test]
fn each_rule_of_the_cache_is_necessary() {
    for (rule, left, otherwise) in [
        (Rule::ValuesBeforeStanding, CALM, "a standing comes before its values"),
        (Rule::ToldWhatIsIn, CALM, "the cache lacks a value that another fold had written"),
        (Rule::UnansweredIsUntold, GIVEN_UP, "a value whose write was not answered stays old"),
        (Rule::SequenceCompared, FAILOVER, "a write comes behind one that the cache forgot"),
        (Rule::WriterCompared, FAILOVER, "a fold writes into the take-over of another"),
        (Rule::ReadersCompare, CALM, "a reader takes a value of an earlier take-over"),
        (Rule::NumbersDrawn, CALM, "a number comes twice after a failover"),
        (Rule::FillNeedsToken, CALM, "a late fill restores an old value"),
        (Rule::WriteTakesToken, CALM, "a fill replaces what the fold wrote meanwhile"),
        (Rule::TokenNamesSequence, COPY, "a late copy restores a token"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Caching { removed: Some(rule), ..Caching::new(2, 1, left) }, MISSING);
    }
}
