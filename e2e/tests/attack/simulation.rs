//! Tests the pipeline in the simulation: runs the seeds of `seeds.txt` for every change, while the nightly run draws
//! new ones. The laws hold in each run, a seed gives the same run twice, and each mutant (a pipeline with one rule
//! broken) is found.

use std::collections::BTreeSet;

use clap::ValueEnum;
use tally_e2e::simulation::command::Pool;
use tally_e2e::simulation::{Form, Mutant, Order, Outcome, kinds, kinds_of_lists};

const SEEDS: &str = include_str!("../../seeds.txt");
const LADDER: &str = "50";

/// What the laws say that have to find mutants, and how many of the mutants in the file each has to find.
const FOUND_BY: [(&str, usize); 9] = [
    ("is stored as done and is not", 2),
    ("it differs from the event of its version", 1),
    ("it does not continue at", 1),
    ("its tombstone expires too early", 1),
    ("it comes back after", 1),
    ("losses although nothing was lost", 1),
    ("but the log from", 1),
    ("a correction at", 1),
    ("was answered as exactly", 5),
];

/// The lines of the file: the kind of schedule, and the schedule.
fn orders() -> Vec<(&'static str, Order)> {
    let lines = SEEDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line| order(line).unwrap_or_else(|| panic!("seeds.txt has no such form, or not three words: {line}"));
    lines.map(read).collect()
}

fn order(line: &'static str) -> Option<(&'static str, Order)> {
    let [form, seed, events] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let plain = Form { events: events.parse().ok()?, ..Form::default() };
    let (of, mutant) = match form {
        "plain" => (plain, None),
        "restless" => (Form { restless: true, ..plain }, None),
        "trends" => (Form { trends: true, ..plain }, None),
        "milestones" => (Form { milestones: Some(LADDER.parse().ok()?), ..plain }, None),
        "regions" => (Form { regions: 2, ..plain }, None),
        mutant => (plain, Some(Mutant::from_str(mutant, false).ok()?)),
    };
    Some((form, Order { seed: seed.parse().ok()?, form: of, mutant, ..Order::default() }))
}

/// Runs schedules; with `twice`, it compares the traces of two runs.
fn run(orders: Vec<Order>, twice: bool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let pool = Pool::of(env!("CARGO_BIN_EXE_tally-e2e").into(), None);
    pool.each(orders.into_iter(), twice, |outcome| {
        outcomes.push(outcome);
        true
    })
    .unwrap();
    outcomes
}

fn lines_of(seed: u64) -> Vec<&'static str> {
    SEEDS.lines().filter(|line| line.split(' ').nth(1) == Some(seed.to_string().as_str())).collect()
}

fn assert_unbroken(outcomes: &[Outcome]) {
    for Outcome { seed, broken, .. } in outcomes {
        assert_eq!(*broken, None, "one of {:?} in seeds.txt", lines_of(*seed));
    }
}

#[test]
fn every_law_holds_while_every_kind_of_fault_fires() {
    let mut forms = BTreeSet::new();
    let lawful = orders().into_iter().filter(|(_, order)| order.mutant.is_none());
    let (firsts, others): (Vec<_>, Vec<_>) = lawful.partition(|(form, _)| forms.insert(*form));
    assert_eq!(forms, ["milestones", "plain", "regions", "restless", "trends"].into());
    let run = |schedules: Vec<(_, Order)>, twice| run(schedules.into_iter().map(|(_, order)| order).collect(), twice);
    // The first schedule of each form runs twice, and both traces have to be equal.
    let outcomes = [run(firsts, true), run(others, false)].concat();
    assert_unbroken(&outcomes);
    let fired: BTreeSet<&str> = outcomes.iter().flat_map(|outcome| outcome.faults.keys().map(String::as_str)).collect();
    // `changes_away` makes a schedule last a minute, so it only occurs in the nightly run.
    let of_lists = kinds_of_lists().filter(|kind| *kind != "changes_away");
    let missing: Vec<String> = kinds().chain(of_lists).filter(|kind| !fired.contains(kind.as_str())).collect();
    assert!(missing.is_empty(), "never fired: {missing:?}");
    let checked = |what| outcomes.iter().map(|outcome| outcome.checked(what)).sum::<u64>();
    assert!(checked("verdicts") > 10, "recounts reached verdicts");
    assert!(checked("exact") > 500 && checked("fresh") > 0, "counts were exact, and exact ones fresh");
    assert!(checked("lists_exact") > 500, "lists were exact");
    assert!(checked("milestones") > 0, "milestones were reached");
}

#[test]
fn each_mutant_is_found_and_no_law_breaks_without_it() {
    let mutants: Vec<Order> =
        orders().into_iter().map(|(_, order)| order).filter(|order| order.mutant.is_some()).collect();
    assert!(mutants.len() >= 5);
    let spared = mutants.iter().map(|order| Order { spared: true, ..order.clone() }).collect();
    let found = run(mutants, false);
    for outcome in &found {
        assert!(outcome.mutant_found().is_some(), "none of {:?} in seeds.txt is found", lines_of(outcome.seed));
    }
    for (law, mutants) in FOUND_BY {
        let by = found.iter().filter(|outcome| outcome.mutant_found().is_some_and(|how| how.contains(law)));
        assert!(by.count() >= mutants, "fewer than {mutants} mutants are found by the law that says {law:?}");
    }
    assert_unbroken(&run(spared, false));
}
