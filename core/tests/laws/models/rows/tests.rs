//! Tests of the model of rows, in which two consumers write the likes and unlikes of one Kafka partition: each row ends
//! as its last event says, and without any one of the rules a law breaks.

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
fn each_rule_of_rows_is_necessary() {
    for (rule, world, law, otherwise) in [
        (Rule::Compared, rows("L U", 0, 0), WRONG, "a late copy of an older event wins"),
        (Rule::TombstoneKept, rows("L U", 0, 0), WRONG, "a late copy of the like undoes its removal"),
        (Rule::LikedForGood, rows("U L", 0, 1), WRONG, "a member who likes again expires as a tombstone"),
        (Rule::ClaimConfirmed, rows("L U", 0, 1), WRONG, "a consumer that resumes restores removed members"),
        (Rule::FinishedOnly, rows("L", 0, 0), WRONG, "a commit beyond an unfinished record loses it"),
        (Rule::AttemptsAsked, rows("L U", 0, 1), WRONG, "a retry of an older event outlives a tombstone"),
        (Rule::RefusedReplaced, rows("L u", 0, 0), WRONG, "an event that gave way to a refused one is lost"),
        (Rule::LetterAwaited, rows("u", 0, 0), LOST, "a refused event is lost before it has a dead letter"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Rows { removed: Some(rule), ..world }, law);
    }
}
