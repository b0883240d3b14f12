//! What a recounter does: the attempt that ships, told what the tables answer; and what late copies of its requests do.

use std::time::Duration;

use tally_core::ports::{Judged, MarkerPut};
use tally_core::time::{Now, UnixMillis};
use tally_core::weight::Weight;
use tally_core::window::{Attempt, AttemptRules, Effect, Ending, Form, Input, Verdict, WindowRun};

use super::{Entry, Ghost, Item, Order, Put, Recounter, Recounts, Rule, State, Step, Touched};

const RULES: AttemptRules = AttemptRules {
    guard: Duration::from_secs(1),
    report: Duration::from_secs(1),
    passing: Duration::from_secs(1),
    force: true,
};

/// Both of the users fit.
const EXPECTED: u64 = 2;

fn at(at: Duration) -> Now {
    Now { at, ..Now::default() }
}

impl Recounts {
    pub(super) fn recount(&self, state: &State, recounter: usize, next: &mut Vec<(Step, State)>) {
        let begins = state.runs < self.budget.runs && (!self.patient || self.world.weight(state.rows).is_some());
        match &state.recounters[recounter] {
            Recounter::Idle if begins => next.push(self.begin(state, recounter)),
            Recounter::Idle | Recounter::Done => return,
            Recounter::Trying { attempt, asked, .. } => self.answer(state, recounter, attempt, asked, next),
        }
        if state.left.recounter_crashes > 0 && matches!(state.recounters[recounter], Recounter::Trying { .. }) {
            let mut crashed = state.with(recounter, Recounter::Idle);
            crashed.left.recounter_crashes -= 1;
            next.push((Step::CrashRecounter { recounter }, crashed));
        }
    }

    /// A new attempt, up to its opening marker: the marker that stands is read at once.
    fn begin(&self, state: &State, recounter: usize) -> (Step, State) {
        let run = state.runs + 1;
        let (key, roster) = (self.world.key.clone(), self.world.roster.clone());
        let attempt = Attempt::new(key, WindowRun::from(u128::from(run)), EXPECTED, RULES, roster);
        let begun = State { runs: run, ..self.told(state, recounter, &attempt, Now::default(), Input::Begin) };
        let Recounter::Trying { attempt, asked, .. } = &begun.recounters[recounter] else {
            panic!("an attempt that ended")
        };
        assert_eq!(**asked, Effect::ReadMarker, "an attempt begins with the marker that stands");
        let marker = Input::Marker(state.marker);
        (Step::Begin { recounter, run }, self.told(&begun, recounter, attempt, Now::default(), marker))
    }

    /// The state after `recounter`'s attempt is told `input`, and then all it asks for that nothing in this world can
    /// come between.
    fn told(&self, state: &State, recounter: usize, attempt: &Attempt, now: Now, input: Input) -> State {
        let (mut attempt, mut told) = (attempt.clone(), Some((now, input)));
        let mut effects = Vec::new();
        while let Some((now, input)) = told {
            attempt.step(now, input, &mut effects);
            let [effect] = effects.as_slice() else { panic!("an attempt asks for one thing at a time: {effects:?}") };
            told = self.at_once(state, &attempt, effect);
            if told.is_none() {
                let follows = match effect {
                    Effect::End(Ending::Judged(_)) => Recounter::Done,
                    Effect::End(_) => Recounter::Idle,
                    asked => {
                        let (attempt, asked) = (Box::new(attempt.clone()), Box::new(asked.clone()));
                        Recounter::Trying { attempt, asked, read: state.recounters[recounter].read() }
                    }
                };
                return state.with(recounter, follows);
            }
            effects.clear();
        }
        unreachable!("the loop ends with the last answer")
    }

    /// The answer to `asked` where there is but one, whatever else happens. A wait is one of them where the stream
    /// keeps its order, or where a mutant does not wait.
    fn at_once(&self, state: &State, attempt: &Attempt, asked: &Effect) -> Option<(Now, Input)> {
        match asked {
            Effect::TakeRoom(_) | Effect::GrowRoom(_) => Some((Now::default(), Input::Room(true))),
            Effect::TakeTurn => Some((Now::default(), Input::Turn)),
            // There is one stream shard, and its report is written behind the closing marker.
            Effect::ReadApplied => Some((Now::default(), Input::Applied(Some(UnixMillis::MAX)))),
            Effect::ReadCounter => Some((Now::default(), Input::Counter(Some((*state.counter).clone())))),
            Effect::WakeAt(until) => {
                let settles = self.order == Order::SettlesWithin && self.obeys(which_wait(attempt, *until));
                (!settles).then_some((at(*until), Input::Woke))
            }
            _ => None,
        }
    }

    /// What may come of what an attempt has asked for.
    fn answer(
        &self,
        state: &State,
        recounter: usize,
        attempt: &Attempt,
        asked: &Effect,
        next: &mut Vec<(Step, State)>,
    ) {
        let told = |state: &State, input| self.told(state, recounter, attempt, Now::default(), input);
        match asked {
            Effect::PutMarker { marker, required } => {
                self.put(state, recounter, attempt, Put { marker: *marker, required: *required }, next);
            }
            Effect::ReadMarker => {
                next.push((Step::ReadMarker { recounter }, told(state, Input::Marker(state.marker))));
            }
            Effect::WakeAt(until) => {
                let settled = State { settled: state.stream.len(), ..state.clone() };
                let woken = self.told(&settled, recounter, attempt, at(*until), Input::Woke);
                next.push((Step::Settle { recounter }, woken));
            }
            Effect::ReadRows(after) => {
                let row = usize::from(after.is_some());
                let read = if self.obeys(Rule::LastWeight) { state.clone() } else { state.with_read(recounter, row) };
                next.push((Step::Read { recounter, row }, told(&read, self.world.page(state.rows, row))));
            }
            Effect::ReadReport => self.await_report(state, recounter, attempt, next),
            Effect::Judge(verdict, _) => self.judge(state, recounter, attempt, verdict, next),
            other => panic!("nothing in this world answers {other:?}"),
        }
    }

    /// A marker put reaches the table; nothing where its condition does not hold.
    fn landed(&self, state: &State, put: Put) -> Vec<State> {
        if self.obeys(Rule::MarkerChain) && state.marker != put.required {
            return Vec::new();
        }
        let put_down = State { marker: Some(put.marker), ..state.clone() };
        // A put that changes nothing leaves no record.
        if state.marker == Some(put.marker) {
            vec![put_down]
        } else {
            self.streamed(put_down, Entry::Marker(put.marker))
        }
    }

    fn put(&self, state: &State, recounter: usize, attempt: &Attempt, put: Put, next: &mut Vec<(Step, State)>) {
        let marker = put.marker;
        let told = |state: &State, put| self.told(state, recounter, attempt, Now::default(), Input::Put(put));
        let landed = self.landed(state, put);
        if landed.is_empty() {
            next.push((Step::MarkerRefused { recounter }, told(state, MarkerPut::Unclear)));
        }
        let may_be_late = state.left.ghosts > 0 && state.ghost.is_none();
        for landed in landed {
            if may_be_late {
                let late = told(&landed.haunted(Ghost::Put(put)), MarkerPut::Put);
                next.push((Step::PutMarkerWithLateCopy { recounter, marker }, late));
            }
            next.push((Step::PutMarker { recounter, marker }, told(&landed, MarkerPut::Put)));
        }
        if may_be_late {
            let later = told(&state.haunted(Ghost::Put(put)), MarkerPut::Unclear);
            next.push((Step::PutMarkerLater { recounter, marker }, later));
        }
    }

    fn await_report(&self, state: &State, recounter: usize, attempt: &Attempt, next: &mut Vec<(Step, State)>) {
        let run = attempt.run();
        if let Some(report) = state.reports.iter().find(|report| report.run == run) {
            let report =
                if self.obeys(Rule::LastWeight) { *report } else { self.with_changes(state, recounter, *report) };
            let report = Input::Report(Some(self.world.report(report)));
            let taken = self.told(state, recounter, attempt, Now::default(), report);
            next.push((Step::TakeReport { recounter }, taken));
        } else if state.none_will_report(run) {
            let given_up = self.told(state, recounter, attempt, at(RULES.report), Input::Report(None));
            next.push((Step::GiveUp { recounter }, given_up));
        }
    }

    /// What a mutant takes for a report: each touched row as the attempt has read it, and the window's changes of it.
    fn with_changes(&self, state: &State, recounter: usize, mut report: Touched) -> Touched {
        let read = state.recounters[recounter].read();
        for (row, weight) in report.weights.iter_mut().enumerate().filter(|(_, weight)| weight.is_some()) {
            let changes = state.within(report.run).iter().enumerate().filter_map(|(at, entry)| match entry {
                Entry::Row { row: changed, .. } if *changed == row => Some(self.world.record(*entry, at).delta()),
                _ => None,
            });
            let alone = std::array::from_fn(|other| read[other].filter(|_| other == row));
            *weight = Weight::new(self.world.weight(alone).expect("it was read") + changes.sum::<i64>());
        }
        report
    }

    /// A verdict reaches the counter; `None` where its condition does not hold.
    fn judged(&self, state: &State, run: WindowRun, correction: i64, form: Form) -> Option<State> {
        let proved = state.closed_after_trim(run);
        if correction == 0 && !self.obeys(Rule::TokenForNothing) {
            return Some(State { proved: state.proved || proved, ..state.clone() });
        }
        let verdict = Verdict { key: self.world.key.clone(), run, correction, form };
        let admitted = verdict.admitted_by(&state.counter) || state.replaced.contains(&run);
        if self.obeys(Rule::Token) && !admitted {
            return None;
        }
        let counter = Item::new(verdict.apply((*state.counter).clone()).expect("a model counts in single digits"));
        Some(State { counter, replaced: Vec::new(), proved: state.proved || proved, ..state.clone() })
    }

    fn judge(
        &self,
        state: &State,
        recounter: usize,
        attempt: &Attempt,
        verdict: &Verdict,
        next: &mut Vec<(Step, State)>,
    ) {
        let told = |state: &State, judged| self.told(state, recounter, attempt, Now::default(), Input::Judged(judged));
        let Verdict { run, correction, form, .. } = *verdict;
        let Some(judged) = self.judged(state, run, correction, form) else {
            next.push((Step::Void { recounter }, told(state, Judged::Void)));
            return;
        };
        next.push((Step::Judge { recounter, correction }, told(&judged, Judged::Stands)));
        if state.left.ghosts > 0 && state.ghost.is_none() {
            let mut lost = judged;
            lost.left.ghosts -= 1;
            next.push((Step::JudgeWithLostAnswer { recounter }, told(&lost, Judged::Void)));
            let later = state.haunted(Ghost::Verdict { run, correction, form });
            next.push((Step::JudgeLater { recounter }, told(&later, Judged::Void)));
        }
    }

    pub(super) fn haunt(&self, state: &State, ghost: Ghost, next: &mut Vec<(Step, State)>) {
        let gone = State { ghost: None, ..state.clone() };
        let landed = match ghost {
            Ghost::Put(put) => self.landed(&gone, put),
            Ghost::Verdict { run, correction, form } => self.judged(&gone, run, correction, form).into_iter().collect(),
        };
        next.extend(landed.into_iter().map(|landed| (Step::GhostLands, landed)));
        next.push((Step::GhostDies, gone));
    }
}

/// Which of the two waits ends at `until`: the first is followed by the reading of the counter, for the form.
fn which_wait(attempt: &Attempt, until: Duration) -> Rule {
    let (mut woken, mut effects) = (attempt.clone(), Vec::new());
    woken.step(at(until), Input::Woke, &mut effects);
    if effects == [Effect::ReadCounter] { Rule::WaitAfterLow } else { Rule::WaitBeforeHigh }
}
