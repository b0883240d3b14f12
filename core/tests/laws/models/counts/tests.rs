//! Tests of the model of counting, in which relays copy changes of rows into a log, folds add them up, and recounts
//! correct the counter: with all rules the laws hold, and without any one of them a law breaks.

use super::{Budget, Counts, FALSE_HOLE, LIE, Rule, STRAY, WORSE, WRONG};
use crate::explore::{bounds, breaks, holds};

/// Returns a world in which nothing goes wrong except for zombies.
fn sound(changes: u8, moves: u8) -> Counts {
    Counts::new(Budget { changes, moves, ..Budget::default() }, 0)
}

/// Returns a world in which the counter is edited by hand.
fn edited(changes: u8, moves: u8, recounts: usize) -> Counts {
    Counts { edit: [1, 1], ..Counts::new(Budget { changes, moves, edits: 1, ..Budget::default() }, recounts) }
}

/// Returns a world in which the stream loses a record that was not read, and the counter is wrong at first.
fn trimmed(changes: u8, moves: u8, recounts: usize) -> Counts {
    Counts { error: 1, ..Counts::new(Budget { changes, moves, losses: 1, ..Budget::default() }, recounts) }
}

/// Returns a world in which the log loses a message.
fn holed(changes: u8, moves: u8, recounts: usize) -> Counts {
    Counts::new(Budget { changes, moves, holes: 1, ..Budget::default() }, recounts)
}

/// Returns a world in which the positions of folds are no longer in the log.
fn jumping(changes: u8, jumps: u8) -> Counts {
    Counts::new(Budget { changes, jumps, ..Budget::default() }, 0)
}

/// Returns a world in which the log loses its end after a fold has read it, and the fold writes it late.
fn ended(changes: u8, recounts: usize) -> Counts {
    Counts::new(Budget { changes, ends: 1, ..Budget::default() }, recounts)
}

#[test]
fn a_recount_corrects_the_late_write_of_lost_messages_if_it_begins_after_it() {
    holds(&ended(bounds(2, 3), 1));
}

#[test]
fn folds_that_jump_to_different_positions_agree_on_the_last_loss_once_the_log_names_their_losses() {
    holds(&jumping(bounds(3, 4), 2));
}

#[test]
fn each_change_is_added_once_by_any_relay_and_any_fold() {
    holds(&sound(3, bounds(1, 2)));
}

#[test]
fn a_recount_corrects_an_edit_while_rows_change_and_the_lease_moves() {
    holds(&edited(2, 1, bounds(1, 2)));
}

#[test]
fn two_concurrent_recounts_correct_an_edit_or_a_loss_once() {
    for world in [edited(1, 1, 2), trimmed(1, 1, 2), holed(1, 1, 2), Counts { error: -1, ..holed(1, 1, 2) }] {
        holds(&world);
    }
}

#[test]
fn a_recount_corrects_an_edit_of_only_the_total_or_only_a_shard() {
    for edit in [[1, 0], [0, 1]] {
        holds(&Counts { edit, ..edited(bounds(1, 2), 1, 1) });
    }
}

#[test]
fn a_recount_that_began_after_the_announcement_corrects_a_loss_of_the_stream() {
    holds(&trimmed(2, 1, bounds(1, 2)));
}

#[test]
fn a_message_that_the_log_lost_is_a_loss_that_a_recount_corrects() {
    holds(&holed(2, 1, bounds(1, 2)));
}

#[test]
fn losses_may_follow_each_other_and_the_log_may_lose_announcements() {
    let lossy = |changes, moves, losses, holes| Budget { changes, moves, losses, holes, ..Budget::default() };
    for budget in [lossy(2, bounds(0, 1), 2, 0), lossy(bounds(1, 2), 1, 1, 1), lossy(bounds(1, 2), 1, 0, 2)] {
        holds(&Counts::new(budget, 1));
    }
}

#[test]
fn a_relay_that_begins_after_unacknowledged_messages_is_found_out_by_the_back_link() {
    holds(&Counts { recounts: 1, removed: &[Rule::BeginsAtFed], ..sound(2, 1) });
}

#[test]
fn a_relay_that_begins_after_unacknowledged_messages_loses_changes_if_back_links_are_not_compared() {
    breaks(&Counts { removed: &[Rule::BeginsAtFed, Rule::BackLink], ..sound(1, 1) }, WRONG);
}

#[test]
fn each_rule_of_counting_is_necessary() {
    for (rule, world, law, otherwise) in [
        (&[Rule::LateAwaited], ended(2, 1), WORSE, "a late write of lost messages makes a correction wrong"),
        (&[Rule::NamedOnce], jumping(3, 2), STRAY, "the counter of a fold that jumped stays inexact"),
        (&[Rule::BackLink], holed(1, 1, 1), WRONG, "changes that the log loses go unnoticed"),
        (&[Rule::Filter], sound(1, 1), LIE, "a copy is added again"),
        (&[Rule::Filter], trimmed(1, 1, 1), WRONG, "also behind a loss"),
        (&[Rule::FilterStored], sound(1, 1), LIE, "a fold that begins again adds a copy again"),
        (&[Rule::FilterStored], trimmed(1, 1, 1), WRONG, "also behind a loss"),
        (&[Rule::MarkerAwaited], edited(1, 1, 1), WORSE, "a recount counts changes that are still to come"),
        (&[Rule::TailFromFold], edited(1, 1, 1), WRONG, "a recount counts a copy as a change"),
        (&[Rule::TailBeforeRows], edited(1, 1, 1), WRONG, "a recount misses changes that the counter lacks"),
        (&[Rule::TailToVersion], edited(1, 1, 1), WORSE, "a recount misses changes that the counter has"),
        (&[Rule::ValuesCompared], edited(1, 1, 1), WORSE, "an update overwrites an edit that is corrected then"),
        (&[Rule::Seen], edited(1, 0, 2), WORSE, "two recounts correct an edit twice"),
        (&[Rule::Raised], trimmed(1, 1, 1), FALSE_HOLE, "a lost part is found again as a hole"),
        (&[Rule::TailBehindLosses], trimmed(1, 1, 2), WRONG, "a recount from before a loss corrects nothing"),
        (&[Rule::TailBehindLosses], holed(1, 1, 1), WRONG, "a recount from before a hole corrects nothing"),
        (&[Rule::LossNamed], trimmed(1, 1, 1), WORSE, "a recount treats lost changes as still to come"),
    ] {
        println!("without {rule:?} {otherwise}");
        breaks(&Counts { removed: rule, ..world }, law);
    }
}
