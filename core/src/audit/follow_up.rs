//! What happens to row keys that a comparison could not prove, as a machine without I/O: looks at them by themselves,
//! all together, then windows.
//!
//! A look counts a row key's rows between two readings of its counter's version. What keeps changing all the time needs
//! a window anyway, and so does what is wrong for certain.

use std::cmp::Reverse;
use std::time::Duration;

use super::{Batch, Before, Doubt, Drift, ProofEffect, ProofInput, Prover, Weighed, Wrong};
use crate::counter::Counter;
use crate::ids::{CounterId, RowKey};
use crate::ports::Outcome;
use crate::time::{Now, UnixMillis};
use crate::window::Repaired;

/// Looks at a row key before it is recounted by a window.
const LOOKS: u32 = 2;

/// A row key with more rows than this costs as much to look at as to recount.
const MANY: u64 = 10_000;

/// A row key that only a window can settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The row key.
    pub key: RowKey,
    /// What is known to be wrong with it.
    pub wrong: Option<Wrong>,
}

/// What a follow-up asks for, or tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowUpEffect {
    /// Read these counters, consistently, and answer with each of them in this order.
    ReadCounters(Vec<CounterId>),
    /// Count the rows of these row keys and what they weigh, in this order.
    CountRows(Vec<RowKey>),
    /// Say up to when every open stream shard is applied, once that may be after this time.
    AwaitApplied(UnixMillis),
    /// So many row keys are proved.
    Proved(u64),
    /// A count differs, and a dry run leaves it so.
    Differs(Drift),
    /// Recount these by windows, first come first served, and say of each what became of it.
    Repair(Vec<Candidate>),
    /// It is over; so many row keys are left unsettled.
    End(u64),
}

/// What a follow-up is told.
#[derive(Clone, Debug)]
pub enum FollowUpInput {
    /// Begin.
    Begin,
    /// The next counter asked for, or why it cannot be read.
    Counter(Outcome<Option<Counter>>),
    /// Of each row key asked for, how many rows it has and what they weigh.
    Rows(Vec<(u64, i128)>),
    /// Up to when every open stream shard is applied.
    Applied(Option<UnixMillis>),
    /// What became of one of the row keys to be recounted.
    Repaired(Repaired),
}

/// One follow-up under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FollowUp {
    guard: Duration,
    dry_run: bool,
    stage: Stage,
    /// Row keys being looked at.
    open: Vec<RowKey>,
    looks: u32,
    /// Row keys that the looks have left to windows.
    candidates: Vec<Candidate>,
    /// Row keys that windows are at.
    repairing: u64,
    unsettled: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New(Vec<(RowKey, Doubt)>),
    /// The versions before the rows.
    Versions(Vec<u64>),
    Rows(Vec<u64>),
    Proof(Prover),
    Looked,
}

impl FollowUp {
    /// A follow-up of `doubts`. `guard` is how far two records of a row key may be out of order.
    pub fn new(doubts: Vec<(RowKey, Doubt)>, guard: Duration, dry_run: bool) -> Self {
        let (open, candidates, stage) = (Vec::new(), Vec::new(), Stage::New(doubts));
        Self { guard, dry_run, stage, open, looks: 0, candidates, repairing: 0, unsettled: 0 }
    }

    /// Takes an input, and adds what follows to `effects`. `now.wall` is by the clock that is furthest ahead, ours or a
    /// change-streamer's.
    pub fn step(&mut self, now: Now, input: FollowUpInput, effects: &mut Vec<FollowUpEffect>) {
        if let FollowUpInput::Repaired(repaired) = input {
            let Some(repairing) = self.repairing.checked_sub(1) else { return };
            self.repairing = repairing;
            self.unsettled += u64::from(repaired == Repaired::Left);
            return self.end_if_settled(effects);
        }
        match (std::mem::replace(&mut self.stage, Stage::Looked), input) {
            (Stage::New(doubts), FollowUpInput::Begin) => self.begin(doubts, effects),
            (Stage::Versions(mut versions), FollowUpInput::Counter(counter)) => {
                // 0, also of a counter that cannot be read, only ever proves one that is still absent.
                versions.push(counter.ok().flatten().map_or(0, |counter| counter.version));
                if versions.len() < self.open.len() {
                    self.stage = Stage::Versions(versions);
                } else {
                    self.stage = Stage::Rows(versions);
                    effects.push(FollowUpEffect::CountRows(self.open.clone()));
                }
            }
            (Stage::Rows(versions), FollowUpInput::Rows(rows)) => {
                let keys = std::mem::take(&mut self.open).into_iter().zip(versions).zip(rows);
                let weighed =
                    |((key, version), (rows, weight))| Weighed { key, rows, weight, before: Before::Version(version) };
                let batch = Batch { keys: keys.map(weighed).collect(), ended: now.wall, begin: None };
                self.prove(Prover::new(batch, self.guard), ProofInput::Begin, effects);
            }
            (Stage::Proof(prover), FollowUpInput::Applied(as_of)) => {
                self.prove(prover, ProofInput::Applied(as_of), effects);
            }
            (Stage::Proof(prover), FollowUpInput::Counter(counter)) => {
                self.prove(prover, ProofInput::Counter(counter), effects);
            }
            // Not waited for.
            (stage, _) => self.stage = stage,
        }
    }

    fn begin(&mut self, doubts: Vec<(RowKey, Doubt)>, effects: &mut Vec<FollowUpEffect>) {
        let mut certain = Vec::new();
        for (key, doubt) in doubts {
            match doubt {
                Doubt::Unreadable => self.unsettled += 1,
                Doubt::Wrong(wrong) => certain.push(Candidate { key, wrong: Some(wrong) }),
                Doubt::Changed { rows, .. } if rows > MANY && !self.dry_run => {
                    certain.push(Candidate { key, wrong: None });
                }
                Doubt::Changed { .. } => self.open.push(key),
            }
        }
        self.leave_to_windows(certain, effects);
        self.look(effects);
    }

    /// Looks at the open row keys once more, or is through with looking.
    fn look(&mut self, effects: &mut Vec<FollowUpEffect>) {
        if self.open.is_empty() {
            self.stage = Stage::Looked;
            let candidates = std::mem::take(&mut self.candidates);
            self.leave_to_windows(candidates, effects);
            return self.end_if_settled(effects);
        }
        self.looks += 1;
        self.stage = Stage::Versions(Vec::with_capacity(self.open.len()));
        effects.push(FollowUpEffect::ReadCounters(self.open.iter().map(|key| key.counter.clone()).collect()));
    }

    fn prove(&mut self, mut prover: Prover, input: ProofInput, effects: &mut Vec<FollowUpEffect>) {
        let mut proofs = Vec::new();
        prover.step(input, &mut proofs);
        self.stage = Stage::Proof(prover);
        for proof in proofs {
            match proof {
                ProofEffect::AwaitApplied(past) => effects.push(FollowUpEffect::AwaitApplied(past)),
                ProofEffect::ReadCounters(ids) => effects.push(FollowUpEffect::ReadCounters(ids)),
                ProofEffect::End { proved, doubts } => {
                    if proved > 0 {
                        effects.push(FollowUpEffect::Proved(proved));
                    }
                    self.looked(doubts, effects);
                }
            }
        }
    }

    /// What a look has left in doubt: looked at once more, or left to windows, where what seems most wrong comes first.
    fn looked(&mut self, doubts: Vec<(RowKey, Doubt)>, effects: &mut Vec<FollowUpEffect>) {
        let mut seeming = Vec::new();
        for (key, doubt) in doubts {
            match doubt {
                Doubt::Wrong(wrong) => self.candidates.push(Candidate { key, wrong: Some(wrong) }),
                Doubt::Changed { by, .. } => seeming.push((by, key)),
                Doubt::Unreadable => seeming.push((0, key)),
            }
        }
        if self.looks < LOOKS {
            self.open = seeming.into_iter().map(|(_, key)| key).collect();
        } else {
            seeming.sort_by_key(|(by, _)| Reverse(*by));
            self.candidates.extend(seeming.into_iter().map(|(_, key)| Candidate { key, wrong: None }));
        }
        self.look(effects);
    }

    fn leave_to_windows(&mut self, candidates: Vec<Candidate>, effects: &mut Vec<FollowUpEffect>) {
        let many = candidates.len() as u64;
        if self.dry_run {
            self.unsettled += many;
            let drift = |Candidate { key, wrong }: Candidate| Some(FollowUpEffect::Differs(wrong?.drift(&key)));
            effects.extend(candidates.into_iter().filter_map(drift));
        } else if many > 0 {
            self.repairing += many;
            effects.push(FollowUpEffect::Repair(candidates));
        }
    }

    fn end_if_settled(&self, effects: &mut Vec<FollowUpEffect>) {
        if self.stage == Stage::Looked && self.repairing == 0 {
            effects.push(FollowUpEffect::End(self.unsettled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Cause;
    use crate::counter::ShardTally;

    const GUARD: Duration = Duration::from_secs(2);

    fn key(text: &str) -> RowKey {
        text.parse().unwrap()
    }

    fn counter(rows: i64, version: u64) -> Counter {
        let tally = ShardTally { rows, ..ShardTally::default() };
        Counter { version, shards: [(key("p#0").shard, tally)].into(), ..Counter::default() }
    }

    /// Plays a follow-up of row keys with one row each. `counter` says what the n-th reading of a row key's counter is.
    fn play(doubts: &[(&str, Doubt)], dry_run: bool, counter: impl Fn(&str, usize) -> Counter) -> Vec<FollowUpEffect> {
        let doubts = doubts.iter().map(|(text, doubt)| (key(text), *doubt)).collect();
        let mut follow_up = FollowUp::new(doubts, GUARD, dry_run);
        let (mut inputs, mut told, mut reading) = (vec![FollowUpInput::Begin], Vec::new(), 0);
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            follow_up.step(Now { wall: UnixMillis(9), ..Now::default() }, input, &mut effects);
            for effect in effects {
                match &effect {
                    FollowUpEffect::ReadCounters(ids) => {
                        let counters = ids.iter().rev().map(|id| counter(&id.post, reading));
                        inputs.extend(counters.map(|counter| FollowUpInput::Counter(Ok(Some(counter)))));
                        reading += 1;
                    }
                    FollowUpEffect::CountRows(keys) => inputs.push(FollowUpInput::Rows(vec![(1, 1); keys.len()])),
                    FollowUpEffect::AwaitApplied(past) => {
                        assert_eq!(*past, UnixMillis(9).plus(GUARD));
                        inputs.push(FollowUpInput::Applied(Some(UnixMillis(past.0 + 1))));
                    }
                    FollowUpEffect::Repair(keys) => {
                        inputs.splice(0..0, keys.iter().map(|_| FollowUpInput::Repaired(Repaired::Left)));
                    }
                    _ => {}
                }
                told.push(effect);
            }
        }
        told
    }

    fn repairs(told: &[FollowUpEffect]) -> Vec<(String, Option<Cause>)> {
        let repairs = told.iter().filter_map(|effect| match effect {
            FollowUpEffect::Repair(keys) => Some(keys),
            _ => None,
        });
        let repair = |Candidate { key, wrong }: &Candidate| (key.to_string(), wrong.map(|wrong| wrong.cause));
        repairs.flatten().map(repair).collect()
    }

    #[test]
    fn what_agrees_and_stood_still_is_proved_by_a_look() {
        let told = play(&[("p#0", Doubt::UNKNOWN), ("q#0", Doubt::UNKNOWN)], false, |_, _| counter(1, 5));
        assert!(told.contains(&FollowUpEffect::Proved(2)) && repairs(&told).is_empty());
        assert_eq!(told.last(), Some(&FollowUpEffect::End(0)));
    }

    #[test]
    fn what_keeps_changing_gets_a_window_after_two_looks_and_the_most_wrong_first() {
        let moving = |post: &str, reading| counter(if post == "p" { 2 } else { 50 }, reading as u64);
        let told = play(&[("p#0", Doubt::UNKNOWN), ("q#0", Doubt::UNKNOWN)], false, moving);
        assert_eq!(repairs(&told), [("q#0".to_owned(), None), ("p#0".to_owned(), None)]);
        assert_eq!(told.iter().filter(|effect| matches!(effect, FollowUpEffect::CountRows(_))).count(), 2);
        assert_eq!(told.last(), Some(&FollowUpEffect::End(2)), "both were left");
    }

    #[test]
    fn what_is_wrong_for_certain_or_has_many_rows_gets_a_window_at_once() {
        let wrong = Wrong { cause: Cause::Negative, counted: -1, weight: 1 };
        let many = Doubt::Changed { rows: MANY + 1, by: 0 };
        let told = play(&[("p#0", Doubt::Wrong(wrong)), ("q#0", many)], false, |_, _| counter(1, 5));
        assert_eq!(repairs(&told), [("p#0".to_owned(), Some(Cause::Negative)), ("q#0".to_owned(), None)]);
        assert!(!told.iter().any(|effect| matches!(effect, FollowUpEffect::ReadCounters(_))));
    }

    #[test]
    fn a_dry_run_shows_what_differs_and_opens_no_window() {
        let doubts = [("p#0", Doubt::UNKNOWN), ("q#0", Doubt::Unreadable), ("r#0", Doubt::UNKNOWN)];
        let told = play(&doubts, true, |post, reading| match post {
            "p" => counter(4, 5),
            _ => counter(1, reading as u64),
        });
        let shown = Drift { key: "p#0".to_owned(), before: 4, after: 1, cause: Cause::Drift };
        assert!(told.contains(&FollowUpEffect::Differs(shown)) && repairs(&told).is_empty());
        assert_eq!(told.last(), Some(&FollowUpEffect::End(3)), "also what cannot be read or proved");
    }

    #[test]
    fn an_answer_that_is_not_waited_for_changes_nothing() {
        let mut follow_up = FollowUp::new(vec![(key("p#0"), Doubt::UNKNOWN)], GUARD, false);
        follow_up.step(Now::default(), FollowUpInput::Begin, &mut Vec::new());
        let before = follow_up.clone();
        for input in [FollowUpInput::Begin, FollowUpInput::Rows(vec![(1, 1)]), FollowUpInput::Applied(None)] {
            let mut effects = Vec::new();
            follow_up.step(Now::default(), input, &mut effects);
            assert_eq!((&follow_up, effects), (&before, Vec::new()));
        }
    }
}
