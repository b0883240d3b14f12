//! Tests of the model of counting: with all rules the laws hold, and without any one of them a law breaks.

use super::{Budget, Counts, Edit, FALSE_HOLE, LIE, Rule, STRAY, WORSE, WRONG};
use crate::explore::{bounds, breaks, holds};

/// Returns a world in which nothing goes wrong except for zombies.
fn sound(changes: u8, moves: u8) -> Counts {
    Counts::new(Budget { changes, moves, ..Budget::default() }, 0)
}

/// Returns a world in which the counter is edited by hand.
fn edited(changes: u8, moves: u8, recounts: usize) -> Counts {
    Counts::new(Budget { changes, moves, edits: 1, ..Budget::default() }, recounts)
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
fn a_recount_that_does_not_wait_for_the_late_write_of_lost_messages_makes_an_error_larger() {
    breaks(&ended(2, 1).without(&[Rule::LateAwaited]), WORSE);
}

#[test]
fn folds_that_jump_to_different_positions_agree_on_the_last_loss_once_the_log_names_their_losses() {
    holds(&jumping(bounds(3, 4), 2));
}

#[test]
fn the_counter_of_a_fold_that_jumped_stays_inexact_if_only_other_folds_take_its_loss_for_announced() {
    breaks(&jumping(3, 2).without(&[Rule::NamedOnce]), STRAY);
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
fn two_concurrent_recounts_correct_an_edit_once() {
    holds(&edited(1, 1, 2));
}

#[test]
fn a_recount_corrects_an_edit_of_only_the_total_or_only_a_shard() {
    for edit in [Edit::Total, Edit::Part] {
        holds(&Counts { edit, ..edited(bounds(1, 2), 1, 1) });
    }
}

#[test]
fn a_recount_that_began_after_the_announcement_corrects_a_loss_of_the_stream() {
    holds(&trimmed(2, 1, bounds(1, 2)));
}

#[test]
fn two_concurrent_recounts_correct_a_loss_of_the_stream() {
    holds(&trimmed(1, 1, 2));
}

#[test]
fn a_message_that_the_log_lost_is_a_loss_that_a_recount_corrects() {
    holds(&holed(2, 1, bounds(1, 2)));
}

#[test]
fn two_concurrent_recounts_correct_a_loss_of_the_log() {
    holds(&holed(1, 1, 2));
    holds(&Counts { error: -1, ..holed(1, 1, 2) });
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
    holds(&Counts { recounts: 1, ..sound(2, 1) }.without(&[Rule::BeginsAtFed]));
}

#[test]
fn a_relay_that_begins_after_unacknowledged_messages_loses_changes_if_back_links_are_not_compared() {
    breaks(&sound(1, 1).without(&[Rule::BeginsAtFed, Rule::BackLink]), WRONG);
}

#[test]
fn a_log_that_loses_a_message_loses_changes_if_back_links_are_not_compared() {
    breaks(&holed(1, 1, 1).without(&[Rule::BackLink]), WRONG);
}

#[test]
fn without_the_filter_a_copy_is_added_again() {
    breaks(&sound(1, 1).without(&[Rule::Filter]), LIE);
    breaks(&trimmed(1, 1, 1).without(&[Rule::Filter]), WRONG);
}

#[test]
fn without_the_filter_of_its_position_a_fold_adds_a_copy_again() {
    breaks(&sound(1, 1).without(&[Rule::FilterStored]), LIE);
    breaks(&trimmed(1, 1, 1).without(&[Rule::FilterStored]), WRONG);
}

#[test]
fn a_recount_that_does_not_wait_for_its_marker_counts_changes_that_are_still_to_come() {
    breaks(&edited(1, 1, 1).without(&[Rule::MarkerAwaited]), WORSE);
}

#[test]
fn a_tail_without_the_folds_position_and_filter_counts_a_copy_as_a_change() {
    breaks(&edited(1, 1, 1).without(&[Rule::TailFromFold]), WRONG);
}

#[test]
fn a_tail_that_begins_after_the_rows_were_read_misses_changes_that_the_counter_lacks() {
    breaks(&edited(1, 1, 1).without(&[Rule::TailBeforeRows]), WRONG);
}

#[test]
fn a_tail_that_ends_before_the_counters_version_misses_changes_that_the_counter_has() {
    breaks(&edited(1, 1, 1).without(&[Rule::TailToVersion]), WORSE);
}

#[test]
fn an_update_that_only_compares_the_version_overwrites_an_edit_that_is_corrected_then() {
    breaks(&edited(1, 1, 1).without(&[Rule::ValuesCompared]), WORSE);
}

#[test]
fn a_correction_that_does_not_state_what_it_has_seen_corrects_twice() {
    breaks(&edited(1, 0, 2).without(&[Rule::Seen]), WORSE);
}

/// A copy of the lost records is not added, either, once there is a section after it.
#[test]
fn an_announcement_that_does_not_advance_the_filter_is_found_again_as_a_hole() {
    breaks(&trimmed(1, 1, 1).without(&[Rule::Raised]), FALSE_HOLE);
}

#[test]
fn a_tail_that_begins_before_an_announcement_corrects_nothing() {
    breaks(&trimmed(1, 1, 2).without(&[Rule::TailBehindLosses]), WRONG);
    breaks(&holed(1, 1, 1).without(&[Rule::TailBehindLosses]), WRONG);
}

#[test]
fn a_correction_that_does_not_name_the_loss_treats_lost_changes_as_still_to_come() {
    breaks(&trimmed(1, 1, 1).without(&[Rule::LossNamed]), WORSE);
}
