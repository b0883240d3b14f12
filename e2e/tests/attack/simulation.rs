//! The simulation's short form: schedules under which every law holds and every kind of fault fires, the same
//! again from the same seeds, and mutants that have to be found.

use std::collections::BTreeSet;

use tally_e2e::simulation::command::Pool;
use tally_e2e::simulation::{Mutant, Order, Outcome, kinds, kinds_of_lists};

const EVENTS: u64 = 240;

/// The campaigns beside it have deadlines of seconds, and a schedule has ten minutes.
fn pool(jobs: Option<usize>) -> Pool {
    Pool::of(env!("CARGO_BIN_EXE_tally-e2e").into(), jobs).last()
}

fn run(seeds: impl Iterator<Item = u64> + Send, twice: bool) -> Vec<Outcome> {
    outcomes(seeds.map(|seed| Order { seed, events: EVENTS, ..Order::default() }), twice)
}

fn outcomes(orders: impl Iterator<Item = Order> + Send, twice: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    pool(None)
        .each(orders, twice, |outcome| {
            outcomes.push(outcome);
            true
        })
        .unwrap();
    outcomes
}

fn assert_unbroken(outcomes: &[Outcome]) {
    for Outcome { seed, broken, .. } in outcomes {
        assert_eq!(*broken, None, "seed {seed}: `tally-e2e schedule --seed {seed} --events {EVENTS}`");
    }
}

#[test]
fn every_law_holds_while_every_kind_of_fault_fires() {
    let outcomes = run(21..=36, false);
    assert_unbroken(&outcomes);
    let fired: BTreeSet<&str> = outcomes.iter().flat_map(|outcome| outcome.faults.keys().map(String::as_str)).collect();
    assert_eq!(fired, kinds().collect());
    assert!(outcomes.iter().map(|outcome| outcome.verdicts).sum::<u64>() > 20, "recounts came to their verdicts");
}

#[test]
fn lanes_and_homes_that_change_every_second_break_no_law() {
    let order = |seed| Order { seed, events: EVENTS, restless: true, ..Order::default() };
    let outcomes = outcomes((1..=4).map(order), false);
    assert_unbroken(&outcomes);
    for kind in ["lanes_changed", "homes_changed"] {
        let fired: u64 = outcomes.iter().filter_map(|outcome| outcome.faults.get(kind)).sum();
        assert!(fired >= 4, "{kind}: {fired}");
    }
}

#[test]
fn lists_that_say_that_they_are_exact_are_what_rows_gained() {
    let order = |seed| Order { seed, events: EVENTS, listed: true, ..Order::default() };
    let outcomes = outcomes((2..=4).map(order), false);
    assert_unbroken(&outcomes);
    let fired: BTreeSet<&str> = outcomes.iter().flat_map(|outcome| outcome.faults.keys().map(String::as_str)).collect();
    assert!(kinds_of_lists().any(|kind| fired.contains(kind)), "{fired:?}");
    assert!(outcomes.iter().map(|outcome| outcome.lists_exact).sum::<u64>() > 1_000, "lists were exact");
}

#[test]
fn one_seed_has_one_trace() {
    assert_unbroken(&run(101..=102, true));
    let listed = Order { seed: 3, events: EVENTS, listed: true, ..Order::default() };
    assert_unbroken(&outcomes(std::iter::once(listed), true));
}

#[test]
fn mutants_are_found_and_nothing_is_once_they_are_spared() {
    let of_counts = [Mutant::NoFence, Mutant::Pipelined, Mutant::NoFloor, Mutant::NoBoundary, Mutant::SilentZero];
    for mutant in of_counts.into_iter().chain([Mutant::Unfiltered, Mutant::NoRefill]) {
        let order = |seed| Order { seed, events: EVENTS, mutant: Some(mutant), ..Order::default() };
        let mut found = None;
        // One after the other: most are found by the first schedule or the second.
        pool(Some(1))
            .each((1..=12).map(order), false, |outcome| {
                if outcome.broken.is_some() && !outcome.endless {
                    found = Some(outcome.seed);
                }
                found.is_none()
            })
            .unwrap();
        let seed = found.unwrap_or_else(|| panic!("{} is not found", mutant.name()));
        let spared = std::iter::once(Order { spared: true, ..order(seed) });
        pool(Some(1))
            .each(spared, false, |outcome| {
                assert_eq!(outcome.broken, None, "{}, seed {seed}, spared", mutant.name());
                true
            })
            .unwrap();
    }
}
