use super::*;
use crate::audit::Cause;
use crate::counter::ShardTally;
use crate::ids::MemberKey;
use crate::weight::Weight;
use crate::window::Roster;

const GUARD: Duration = Duration::from_secs(2);

fn key(text: &str) -> RowKey {
    text.parse().unwrap()
}

fn counter(rows: i64, version: u64) -> Counter {
    let tally = ShardTally { rows, ..ShardTally::default() };
    Counter { version, shards: [(key("p#0").shard, tally)].into(), ..Counter::default() }
}

/// The one row of each row key, held.
fn one_row() -> RowsRead {
    let mut roster = Roster::new(crate::window::by_name);
    roster.extend(&[(MemberKey::new("a").unwrap(), Weight::ONE)]);
    roster.seal();
    RowsRead { rows: 1, weight: 1, roster: Some(roster) }
}

/// What a follow-up is answered.
struct World<'a> {
    /// The n-th reading of a row key's counter.
    counter: &'a dyn Fn(&str, usize) -> Counter,
    /// What the trail says of each row key.
    touched: Option<&'a [(&'static str, i64)]>,
    repaired: Repaired,
}

/// Plays a follow-up of row keys with one row each.
fn play(doubts: &[(&str, Doubt)], dry_run: bool, world: &World<'_>) -> Vec<FollowUpEffect> {
    let doubts = doubts.iter().map(|(text, doubt)| (key(text), *doubt)).collect();
    let mut follow_up = FollowUp::new(doubts, GUARD, dry_run);
    let (mut inputs, mut told, mut reading) = (vec![FollowUpInput::Begin], Vec::new(), 0);
    while let Some(input) = inputs.pop() {
        let mut effects = Vec::new();
        follow_up.step(Now { wall: UnixMillis(9), ..Now::default() }, input, &mut effects);
        for effect in effects {
            match &effect {
                FollowUpEffect::BeginTrail => inputs.push(FollowUpInput::TrailBegun),
                FollowUpEffect::ReadCounters(ids) => {
                    let counters = ids.iter().rev().map(|id| (world.counter)(&id.post, reading));
                    inputs.extend(counters.map(|counter| FollowUpInput::Counter(Ok(Some(counter)))));
                    reading += 1;
                }
                FollowUpEffect::CountRows(keys) => inputs.push(FollowUpInput::Rows(vec![one_row(); keys.len()])),
                FollowUpEffect::AwaitApplied(past) => {
                    assert_eq!(*past, UnixMillis(9).plus(GUARD));
                    inputs.push(FollowUpInput::Applied(Some(UnixMillis(past.0 + 1))));
                }
                FollowUpEffect::ReadTrail(of) => {
                    let row = |(name, n): &(&str, i64)| (MemberKey::new(name).unwrap(), Weight::new(*n).unwrap());
                    let touched = world.touched.map(|rows| rows.iter().map(row).collect());
                    inputs.push(FollowUpInput::Touched(vec![touched; of.len()]));
                }
                FollowUpEffect::Repair(keys) => {
                    let repaired = keys.iter().map(|candidate| (candidate.key.clone(), world.repaired));
                    inputs.splice(0..0, repaired.map(|(key, repaired)| FollowUpInput::Repaired(key, repaired)));
                }
                _ => {}
            }
            told.push(effect);
        }
    }
    told
}

/// A world without a trail, whose windows leave everything.
fn without_trail(counter: &dyn Fn(&str, usize) -> Counter) -> World<'_> {
    World { counter, touched: None, repaired: Repaired::Left }
}

fn repairs(told: &[FollowUpEffect]) -> Vec<(String, Option<Cause>)> {
    let repairs = told.iter().filter_map(|effect| match effect {
        FollowUpEffect::Repair(keys) => Some(keys),
        _ => None,
    });
    let repair = |Candidate { key, wrong, .. }: &Candidate| (key.to_string(), wrong.map(|wrong| wrong.cause));
    repairs.flatten().map(repair).collect()
}

const UNKNOWN: [(&str, Doubt); 2] = [("p#0", Doubt::UNKNOWN), ("q#0", Doubt::UNKNOWN)];

#[test]
fn what_agrees_and_stood_still_is_proved_by_a_look() {
    let told = play(&UNKNOWN, false, &without_trail(&|_, _| counter(1, 5)));
    assert!(told.contains(&FollowUpEffect::Proved(2)) && repairs(&told).is_empty());
    assert!(!told.iter().any(|effect| matches!(effect, FollowUpEffect::ReadTrail(_))), "nothing moved");
    assert_eq!(told.last(), Some(&FollowUpEffect::End(0)));
}

#[test]
fn what_merely_moved_is_proved_by_one_look_where_its_counter_stands() {
    // One row was read, another came, and the first is gone.
    let moving = |_: &str, reading| counter(1, reading as u64);
    let world = World { touched: Some(&[("a", 0), ("b", 1)]), ..without_trail(&moving) };
    let told = play(&UNKNOWN, false, &world);
    assert!(told.contains(&FollowUpEffect::Proved(2)) && repairs(&told).is_empty());
    assert_eq!(told.iter().filter(|effect| matches!(effect, FollowUpEffect::CountRows(_))).count(), 1);
}

#[test]
fn what_moved_and_differs_goes_to_a_window_by_what_it_differs_and_is_looked_at_once_it_is_corrected() {
    let moving = |post: &str, reading: usize| match (post, reading) {
        ("p", 0..2) => counter(4, reading as u64),
        ("q", 0..2) => counter(9, reading as u64),
        _ => counter(2, reading as u64),
    };
    let world = World { touched: Some(&[("b", 1)]), repaired: Repaired::Corrected, ..without_trail(&moving) };
    let told = play(&UNKNOWN, false, &world);
    assert_eq!(repairs(&told), [("q#0".to_owned(), Some(Cause::Drift)), ("p#0".to_owned(), Some(Cause::Drift))]);
    let confirmed = |effect: &FollowUpEffect| if let FollowUpEffect::Confirmed(n) = effect { *n } else { 0 };
    assert_eq!(told.iter().map(confirmed).sum::<u64>(), 2);
    assert!(!told.iter().any(|effect| matches!(effect, FollowUpEffect::Proved(_))));
    assert_eq!(told.last(), Some(&FollowUpEffect::End(0)));
}

#[test]
fn what_is_wrong_again_after_a_correction_goes_to_a_window_that_may_only_alarm() {
    let wrong = |_: &str, _| counter(7, 5);
    let mut follow_up = FollowUp::new(vec![(key("p#0"), Doubt::UNKNOWN)], GUARD, false);
    let (mut inputs, mut windows) = (vec![FollowUpInput::Begin], Vec::new());
    while let Some(input) = inputs.pop() {
        let mut effects = Vec::new();
        follow_up.step(Now::default(), input, &mut effects);
        for effect in effects {
            match effect {
                FollowUpEffect::BeginTrail => inputs.push(FollowUpInput::TrailBegun),
                FollowUpEffect::ReadCounters(_) => inputs.push(FollowUpInput::Counter(Ok(Some(wrong("p", 0))))),
                FollowUpEffect::CountRows(_) => inputs.push(FollowUpInput::Rows(vec![one_row()])),
                FollowUpEffect::AwaitApplied(_) => inputs.push(FollowUpInput::Applied(Some(UnixMillis::MAX))),
                FollowUpEffect::Repair(candidates) => {
                    let after = [Repaired::Corrected, Repaired::Proved][windows.len()];
                    windows.extend(candidates.iter().map(|candidate| candidate.corrected));
                    inputs.push(FollowUpInput::Repaired(key("p#0"), after));
                }
                FollowUpEffect::End(unsettled) => assert_eq!(unsettled, 0),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(windows, [false, true]);
}

#[test]
fn what_keeps_changing_without_a_trail_gets_a_window_after_two_looks_and_the_most_wrong_first() {
    let moving = |post: &str, reading| counter(if post == "p" { 2 } else { 50 }, reading as u64);
    let told = play(&UNKNOWN, false, &without_trail(&moving));
    assert_eq!(repairs(&told), [("q#0".to_owned(), None), ("p#0".to_owned(), None)]);
    assert_eq!(told.iter().filter(|effect| matches!(effect, FollowUpEffect::CountRows(_))).count(), 2);
    assert_eq!(told.last(), Some(&FollowUpEffect::End(2)), "both were left");
}

#[test]
fn what_is_wrong_for_certain_or_has_many_rows_gets_a_window_at_once() {
    let wrong = Wrong { cause: Cause::Negative, counted: -1, weight: 1 };
    let many = Doubt::Changed { rows: MANY + 1, by: 0 };
    let told = play(&[("q#0", many), ("p#0", Doubt::Wrong(wrong))], false, &without_trail(&|_, _| counter(1, 5)));
    assert_eq!(repairs(&told), [("p#0".to_owned(), Some(Cause::Negative)), ("q#0".to_owned(), None)]);
    assert!(!told.iter().any(|effect| matches!(effect, FollowUpEffect::ReadCounters(_))));
}

#[test]
fn a_dry_run_shows_what_differs_and_opens_no_window() {
    let doubts = [("p#0", Doubt::UNKNOWN), ("q#0", Doubt::Unreadable), ("r#0", Doubt::UNKNOWN)];
    let told = play(
        &doubts,
        true,
        &without_trail(&|post, reading| match post {
            "p" => counter(4, 5),
            _ => counter(1, reading as u64),
        }),
    );
    let shown = Drift { key: "p#0".to_owned(), before: 4, after: 1, cause: Cause::Drift };
    assert!(told.contains(&FollowUpEffect::Differs(shown)) && repairs(&told).is_empty());
    assert_eq!(told.last(), Some(&FollowUpEffect::End(3)), "also what cannot be read or proved");
}

#[test]
fn an_answer_that_is_not_waited_for_changes_nothing() {
    let mut follow_up = FollowUp::new(vec![(key("p#0"), Doubt::UNKNOWN)], GUARD, false);
    follow_up.step(Now::default(), FollowUpInput::Begin, &mut Vec::new());
    let before = follow_up.clone();
    let touched = FollowUpInput::Touched(vec![None]);
    let others = [FollowUpInput::Begin, FollowUpInput::Rows(vec![one_row()]), FollowUpInput::Applied(None), touched];
    for input in others {
        let mut effects = Vec::new();
        follow_up.step(Now::default(), input, &mut effects);
        assert_eq!((&follow_up, effects), (&before, Vec::new()));
    }
}
