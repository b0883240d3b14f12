//! The window holds, and each rule left out breaks it.

use super::{Budget, Order, Recounts, Rule, WRONG};
use crate::explore::{breaks, holds, holds_and_ends_well};

#[test]
fn a_window_is_exact_while_two_workers_race_and_crash() {
    let budget = Budget { writes: 2, runs: 1, worker_crashes: 1, ..Budget::default() };
    let model = Recounts { drifts: &[-1, 0, 1], rows: &[[0, 0], [1, 0], [1, 1]], ..Recounts::new(2, 1, budget) };
    holds(&model);
}

#[test]
fn two_recounters_and_a_late_copy_of_a_put_or_a_verdict_never_over_correct() {
    let budget = Budget { writes: 1, runs: 2, ghosts: 1, ..Budget::default() };
    holds(&Recounts::new(1, 2, budget));
}

#[test]
fn a_window_that_lost_a_record_proves_nothing() {
    let budget = Budget { writes: 2, runs: 2, trims: 1, worker_crashes: 1, ..Budget::default() };
    holds(&Recounts::new(1, 1, budget));
}

#[test]
fn two_recounters_stay_exact_over_a_trim() {
    let budget = Budget { writes: 1, runs: 2, trims: 1, ..Budget::default() };
    holds(&Recounts::new(1, 2, budget));
}

#[test]
fn a_window_is_exact_though_the_stream_reorders_what_has_not_settled() {
    let budget = Budget { writes: 2, runs: 1, ..Budget::default() };
    let model = Recounts { order: Order::SettlesWithin, drifts: &[-1, 0, 1], ..Recounts::new(1, 1, budget) };
    holds(&model);
}

#[test]
fn a_finished_recount_stays_within_reach() {
    let budget = Budget { writes: 1, runs: 3, worker_crashes: 1, recounter_crashes: 1, ..Budget::default() };
    holds_and_ends_well(&Recounts::new(1, 1, budget));
}

fn broken(rules: &'static [Rule], workers: usize, recounters: usize, budget: Budget) -> usize {
    breaks(&Recounts::new(workers, recounters, budget).without(rules), WRONG)
}

#[test]
fn a_marker_put_without_a_condition_opens_a_window_twice() {
    broken(&[Rule::MarkerChain], 1, 2, Budget { writes: 1, runs: 2, ghosts: 1, ..Budget::default() });
}

#[test]
fn a_capture_kept_over_a_trim_misses_what_was_trimmed() {
    broken(&[Rule::TrimDropsCaptures], 1, 1, Budget { writes: 1, runs: 1, trims: 1, ..Budget::default() });
}

#[test]
fn a_capture_kept_over_a_resume_misses_what_lies_between() {
    broken(&[Rule::ResumeDropsCaptures], 2, 1, Budget { writes: 2, runs: 1, worker_crashes: 1, ..Budget::default() });
}

#[test]
fn without_a_token_two_recounters_correct_the_same_drift_twice() {
    broken(&[Rule::Token], 1, 2, Budget { runs: 2, ..Budget::default() });
}

/// A newer window kills older reports, and so does a verdict of nothing: either is enough, and one of them is needed.
#[test]
fn an_older_report_must_not_correct_after_a_verdict_of_nothing() {
    let budget = Budget { writes: 1, runs: 2, trims: 1, ..Budget::default() };
    for spare in [&[Rule::TokenForNothing], &[Rule::NewerTokenReplaces]] {
        holds(&Recounts::new(1, 2, budget).without(spare));
    }
    broken(&[Rule::TokenForNothing, Rule::NewerTokenReplaces], 1, 2, budget);
}

#[test]
fn a_report_by_a_worker_that_did_not_see_the_opening_marker_misses_users() {
    broken(&[Rule::OpeningSeen], 1, 1, Budget { writes: 1, runs: 1, worker_crashes: 1, ..Budget::default() });
}

#[test]
fn a_closing_marker_written_with_other_records_holds_the_wrong_rows() {
    broken(&[Rule::Boundary], 1, 1, Budget { writes: 1, runs: 1, ..Budget::default() });
}

#[test]
fn a_worker_that_captures_only_what_it_applies_misses_what_another_applied() {
    broken(&[Rule::CaptureApplied], 2, 1, Budget { writes: 1, runs: 1, ..Budget::default() });
}

#[test]
fn either_wait_alone_lets_a_reordered_record_slip_past_the_window() {
    for rules in [&[Rule::WaitAfterLow], &[Rule::WaitBeforeHigh]] {
        let budget = Budget { writes: 2, runs: 1, ..Budget::default() };
        let model = Recounts { order: Order::SettlesWithin, ..Recounts::new(1, 1, budget) };
        breaks(&model.without(rules), WRONG);
    }
}
