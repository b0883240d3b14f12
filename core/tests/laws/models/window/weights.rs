//! The window over weights: a cell that is added to beside a member, and a cell whose weight is damaged.

use super::{Budget, Kind, Order, Recounts, Rule, UNMARKED, WRONG};
use crate::explore::{bounds, breaks, holds, holds_and_ends_well};

/// A cell, from any of its beginnings with any of its drifts.
fn weighing(kind: Kind, workers: usize, writes: u8) -> Recounts {
    let budget = Budget { writes, runs: 1, ..Budget::default() };
    let model = Recounts::new(workers, 1, budget).over(kind);
    let (drifts, rows) =
        bounds::<(&[i64], &[[i64; 2]])>((&[0, 2], &[[2, 1]]), (&[-1, 0, 2], &[[0, 0], [2, 1], [3, 0]]));
    Recounts { drifts, rows, ..model }
}

fn reordered(model: Recounts) -> Recounts {
    Recounts { order: Order::SettlesWithin, ..model }
}

/// A cell of 2 whose weight may become unreadable, and is set right again.
fn damaged(writes: u8) -> Recounts {
    let model = reordered(weighing(Kind::DamagedCell, 1, writes));
    Recounts { drifts: &[0, 1], rows: &[[2, 1]], ..model }
}

fn crashing(mut model: Recounts) -> Recounts {
    model.budget.worker_crashes = 1;
    model
}

#[test]
fn a_window_over_weights_is_exact_while_two_workers_race_and_crash() {
    holds(&crashing(weighing(Kind::CellAndMember, 2, 2)));
}

#[test]
fn a_window_over_weights_is_exact_though_the_stream_reorders_what_has_not_settled() {
    holds(&reordered(weighing(Kind::CellAndMember, 2, 2)));
}

#[test]
fn a_window_over_a_cell_alone_is_exact_though_the_stream_reorders_and_a_worker_crashes() {
    holds(&crashing(reordered(weighing(Kind::CellAlone, bounds(1, 2), 3))));
}

#[test]
fn a_report_that_says_whether_a_cell_is_there_is_wrong_by_its_weight() {
    breaks(&weighing(Kind::CellAndMember, 1, 2).without(&[Rule::WeightReported]), WRONG);
}

#[test]
fn the_windows_changes_added_to_what_was_read_count_twice_what_was_read_late() {
    for kind in [Kind::CellAndMember, Kind::CellAlone] {
        breaks(&weighing(kind, 1, 2).without(&[Rule::LastWeight]), WRONG);
    }
}

#[test]
fn either_wait_alone_lets_a_reordered_addition_slip_past_the_window() {
    for rules in [&[Rule::WaitAfterLow], &[Rule::WaitBeforeHigh]] {
        breaks(&reordered(weighing(Kind::CellAndMember, 1, 3)).without(rules), WRONG);
    }
}

#[test]
#[ignore = "night: walks hundreds of thousands of states"]
fn a_weight_that_is_not_readable_leaves_a_count_that_is_right_or_suspect() {
    for suspect in [false, true] {
        holds(&crashing(Recounts { suspect, ..damaged(bounds(2, 3)) }));
    }
}

#[test]
fn a_recount_of_a_counter_with_an_unreadable_weight_stays_within_reach() {
    let budget = Budget { writes: 1, runs: 3, ..Budget::default() };
    holds_and_ends_well(&Recounts { budget, patient: true, ..damaged(1) });
}

#[test]
fn an_unreadable_weight_that_makes_no_suspect_leaves_a_wrong_count_unmarked() {
    breaks(&damaged(2).without(&[Rule::DoubtMarksSuspect]), UNMARKED);
}

#[test]
fn an_unreadable_weight_that_is_no_switch_lets_a_verdict_clear_its_mark() {
    let model = Recounts { suspect: true, ..damaged(2) };
    breaks(&model.without(&[Rule::DoubtCountsAsSwitch]), UNMARKED);
}

#[test]
fn a_report_of_a_window_that_has_captured_an_unreadable_weight_is_wrong() {
    let model = Recounts { suspect: true, ..damaged(2) };
    breaks(&model.without(&[Rule::UnreadableEndsCapture]), WRONG);
}
