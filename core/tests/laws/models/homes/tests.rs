//! The runs: the rules together hold, and each left out alone breaks what it is for.

use super::{FOLD, Homes, OUTSIDE, Rule, TWICE};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

const TWO: &[bool] = &[true, false];
const THREE: &[bool] = &[true, false, true];

fn grows() -> Homes {
    Homes { removed: None, log: TWO, plan: bounds(&[2], &[2, 1]), faults: 1 }
}

fn without(rule: Rule, homes: Homes) -> Homes {
    Homes { removed: Some(rule), ..homes }
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn a_member_has_one_row_under_a_home_on_the_map_while_homes_grow() {
    holds_and_ends_well(&grows());
}

#[test]
fn a_member_has_one_row_while_homes_grow_and_newest_goes_back() {
    holds(&Homes { log: bounds(&TWO[..1], TWO), plan: &[2, 0], faults: 0, ..grows() });
    holds(&Homes { log: bounds(&TWO[..1], TWO), plan: &[1, 2], faults: 0, ..grows() });
}

#[test]
fn a_map_that_was_read_before_the_fence_lacks_a_home_that_has_the_row() {
    breaks(&without(Rule::MapBehindFence, grows()), FOLD);
}

#[test]
fn a_map_kept_over_a_reload_lacks_a_home_that_has_the_row() {
    breaks(&without(Rule::DroppedOnReload, grows()), FOLD);
}

#[test]
fn a_row_that_is_not_looked_for_stays_where_it_was() {
    breaks(&without(Rule::LookedFor, grows()), FOLD);
}

#[test]
fn a_row_that_was_looked_for_before_the_answer_to_its_put_is_missed() {
    breaks(&without(Rule::LookedForInTurn, Homes { log: THREE, plan: &[2, 0], faults: 0, ..grows() }), FOLD);
}

#[test]
fn a_row_that_the_store_did_not_answer_for_is_put_a_second_time() {
    breaks(&without(Rule::UnansweredAskedAgain, Homes { log: &[true, true], ..grows() }), TWICE);
}

#[test]
fn a_home_taken_off_the_map_has_rows_of_a_consumer_that_does_not_know() {
    breaks(&without(Rule::HomesStay, grows()), OUTSIDE);
}
