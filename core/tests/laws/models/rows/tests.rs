//! Tests of the model of rows: with all rules the laws hold, and without any one of them a law breaks.

use super::{Budget, Event, LOST, Rows, Rule, WRONG};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

/// Events of one member, or of two if they have a second letter: `L` is a like and `U` an unlike; `l` and `u` are
/// refused by the store.
fn rows(events: &str, resets: u8, nights: u8) -> Rows {
    let event = |word: &str| {
        let action = word.chars().next().expect("an action");
        let likes = action.eq_ignore_ascii_case(&'l');
        Event { member: usize::from(word.ends_with('b')), likes, is_refused: action.is_lowercase() }
    };
    Rows::new(&events.split(' ').map(event).collect::<Vec<_>>(), Budget { resets, nights })
}

#[test]
fn each_row_is_what_its_last_event_says_whichever_consumer_writes_it_and_however_late() {
    for events in ["L", "L U", "L L", "U L"] {
        holds_and_ends_well(&rows(events, 1, 2));
    }
    for events in ["L U L", "U L U", "L U U"] {
        holds(&rows(events, bounds(1, 2), 2));
    }
    holds(&rows("L U L U", bounds(0, 1), bounds(1, 2)));
}

#[test]
fn two_rows_of_one_partition_only_share_its_committed_offset() {
    holds(&rows("L Lb U", bounds(0, 1), bounds(1, 2)));
    holds(&rows("L Ub", 1, 2));
}

#[test]
fn an_event_that_the_store_refuses_becomes_a_dead_letter_and_the_one_before_it_is_written_after_all() {
    for events in ["L u", "l U", "U l"] {
        holds_and_ends_well(&rows(events, 1, 2));
    }
    for events in ["L U l", "U L u", "L u U"] {
        holds(&rows(events, bounds(0, 1), bounds(1, 2)));
    }
}

#[test]
fn without_comparing_versions_a_late_copy_of_an_older_event_wins() {
    breaks(&rows("L U", 0, 0).without(Rule::Compared), WRONG);
}

#[test]
fn a_removal_without_a_tombstone_is_undone_by_a_late_copy_of_the_like() {
    breaks(&rows("L U", 0, 0).without(Rule::TombstoneKept), WRONG);
}

#[test]
fn a_like_again_that_keeps_the_expiry_of_the_tombstone_is_deleted() {
    breaks(&rows("U L", 0, 1).without(Rule::LikedForGood), WRONG);
}

#[test]
fn a_consumer_that_resumes_under_an_old_claim_restores_removed_members() {
    breaks(&rows("L U", 0, 1).without(Rule::ClaimConfirmed), WRONG);
}

#[test]
fn a_commit_beyond_an_unfinished_record_loses_it() {
    breaks(&rows("L", 0, 0).without(Rule::FinishedOnly), WRONG);
}

#[test]
fn a_retry_of_an_older_event_without_regard_to_a_newer_one_outlives_the_tombstone_of_a_removal() {
    breaks(&rows("L U", 0, 1).without(Rule::AttemptsAsked), WRONG);
}

#[test]
fn an_event_that_gave_way_to_a_refused_one_is_lost_unless_it_is_written_after_all() {
    breaks(&rows("L u", 0, 0).without(Rule::RefusedReplaced), WRONG);
}

#[test]
fn a_refused_event_that_is_finished_before_its_dead_letter_is_acknowledged_is_lost() {
    breaks(&rows("u", 0, 0).without(Rule::LetterAwaited), LOST);
}
