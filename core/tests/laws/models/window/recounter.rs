//! What a recounter does: markers, reading the rows, and a verdict; and what late copies of its requests do.

use tally_core::recount::{AfterPut, Form, Marker, Verdict, WindowRun, after_put, verdict};

use super::{Entry, Ghost, Item, Order, Put, Recounter, Recounts, Rule, State, Step, Users};

impl Recounts {
    pub(super) fn recount(&self, state: &State, recounter: usize, next: &mut Vec<(Step, State)>) {
        match state.recounters[recounter] {
            Recounter::Idle if state.runs < self.budget.runs => {
                let run = state.runs + 1;
                let marker = Marker::low(u128::from(run).into());
                let put = Put { marker, required: marker.requires(state.marker) };
                let begun = State { runs: run, ..state.with(recounter, Recounter::Putting { put, read: 0 }) };
                next.push((Step::Begin { recounter, run }, begun));
            }
            Recounter::Idle | Recounter::Done => {}
            Recounter::Putting { put, read } => self.put(state, recounter, put, read, next),
            Recounter::Unsure { put, read } => {
                let follows = match after_put(put.marker, state.marker) {
                    AfterPut::Stands => self.stands(put.marker, read),
                    AfterPut::Repeat => Recounter::Putting { put, read },
                    AfterPut::Lost => Recounter::Idle,
                };
                next.push((Step::ReadMarker { recounter }, state.with(recounter, follows)));
            }
            Recounter::SettlingLow { run } => {
                let reading = state.with(recounter, Recounter::Reading { run, user: 0, read: 0 });
                next.push((Step::Settle { recounter }, State { settled: state.stream.len(), ..reading }));
            }
            Recounter::Reading { run, user, read } => {
                let read = read | state.rows & 1 << user;
                let follows = if user == 0 { Recounter::Reading { run, user: 1, read } } else { self.read(run, read) };
                next.push((Step::Read { recounter, user }, state.with(recounter, follows)));
            }
            Recounter::SettlingHigh { run, read } => {
                let putting = state.with(recounter, closing(run, read));
                next.push((Step::Settle { recounter }, State { settled: state.stream.len(), ..putting }));
            }
            Recounter::Awaiting { run, read } => self.await_report(state, recounter, run, read, next),
            Recounter::Judging { run, correction } => self.judge(state, recounter, run, correction, next),
        }
        let crashes = !matches!(state.recounters[recounter], Recounter::Idle | Recounter::Done);
        if crashes && state.left.recounter_crashes > 0 {
            let mut crashed = state.with(recounter, Recounter::Idle);
            crashed.left.recounter_crashes -= 1;
            next.push((Step::CrashRecounter { recounter }, crashed));
        }
    }

    fn waits(&self, rule: Rule) -> bool {
        self.order == Order::SettlesWithin && self.obeys(rule)
    }

    /// What follows a marker that stands.
    fn stands(&self, marker: Marker, read: Users) -> Recounter {
        let run = marker.run;
        if marker == Marker::high(run) {
            Recounter::Awaiting { run, read }
        } else if self.waits(Rule::WaitAfterLow) {
            Recounter::SettlingLow { run }
        } else {
            Recounter::Reading { run, user: 0, read: 0 }
        }
    }

    /// What follows once all rows are read.
    fn read(&self, run: WindowRun, read: Users) -> Recounter {
        if self.waits(Rule::WaitBeforeHigh) { Recounter::SettlingHigh { run, read } } else { closing(run, read) }
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

    fn put(&self, state: &State, recounter: usize, put: Put, read: Users, next: &mut Vec<(Step, State)>) {
        let marker = put.marker;
        let unsure = Recounter::Unsure { put, read };
        let landed = self.landed(state, put);
        if landed.is_empty() {
            next.push((Step::MarkerRefused { recounter }, state.with(recounter, unsure)));
        }
        let may_be_late = state.left.ghosts > 0 && state.ghost.is_none();
        for landed in landed {
            next.push((Step::PutMarker { recounter, marker }, landed.with(recounter, self.stands(marker, read))));
            if may_be_late {
                let late = landed.haunted(Ghost::Put(put)).with(recounter, self.stands(marker, read));
                next.push((Step::PutMarkerWithLateCopy { recounter, marker }, late));
            }
        }
        if may_be_late {
            let later = state.haunted(Ghost::Put(put)).with(recounter, unsure);
            next.push((Step::PutMarkerLater { recounter, marker }, later));
        }
    }

    fn await_report(
        &self,
        state: &State,
        recounter: usize,
        run: WindowRun,
        read: Users,
        next: &mut Vec<(Step, State)>,
    ) {
        if let Some(report) = state.reports.iter().find(|report| report.run == run) {
            let report = self.world.report(run, report.touched, report.likes);
            let follows = verdict(&self.world.named(read), &report, &state.counter, Form::Plain)
                .map_or(Recounter::Idle, |verdict| Recounter::Judging { run, correction: verdict.correction });
            next.push((Step::TakeReport { recounter }, state.with(recounter, follows)));
        } else if state.none_will_report(run) {
            next.push((Step::GiveUp { recounter }, state.with(recounter, Recounter::Idle)));
        }
    }

    /// A verdict reaches the counter; `None` where its condition does not hold.
    fn judged(&self, state: &State, run: WindowRun, correction: i64) -> Option<State> {
        let proved = state.closed_after_trim(run);
        if correction == 0 && !self.obeys(Rule::TokenForNothing) {
            return Some(State { proved: state.proved || proved, ..state.clone() });
        }
        let verdict = Verdict { key: self.world.key.clone(), run, correction, form: Form::Plain };
        let admitted = verdict.admitted_by(&state.counter) || state.replaced.contains(&run);
        if self.obeys(Rule::Token) && !admitted {
            return None;
        }
        let counter = Item::new(verdict.apply((*state.counter).clone()).expect("a model counts in single digits"));
        Some(State { counter, replaced: Vec::new(), proved: state.proved || proved, ..state.clone() })
    }

    fn judge(&self, state: &State, recounter: usize, run: WindowRun, correction: i64, next: &mut Vec<(Step, State)>) {
        let idle = state.with(recounter, Recounter::Idle);
        let Some(judged) = self.judged(state, run, correction) else {
            next.push((Step::Void { recounter }, idle));
            return;
        };
        next.push((Step::Judge { recounter, correction }, judged.with(recounter, Recounter::Done)));
        if state.left.ghosts > 0 && state.ghost.is_none() {
            let mut lost = judged.with(recounter, Recounter::Idle);
            lost.left.ghosts -= 1;
            next.push((Step::JudgeWithLostAnswer { recounter }, lost));
            next.push((Step::JudgeLater { recounter }, idle.haunted(Ghost::Verdict { run, correction })));
        }
    }

    pub(super) fn haunt(&self, state: &State, ghost: Ghost, next: &mut Vec<(Step, State)>) {
        let gone = State { ghost: None, ..state.clone() };
        let landed = match ghost {
            Ghost::Put(put) => self.landed(&gone, put),
            Ghost::Verdict { run, correction } => self.judged(&gone, run, correction).into_iter().collect(),
        };
        next.extend(landed.into_iter().map(|landed| (Step::GhostLands, landed)));
        next.push((Step::GhostDies, gone));
    }
}

fn closing(run: WindowRun, read: Users) -> Recounter {
    let marker = Marker::high(run);
    Recounter::Putting { put: Put { marker, required: marker.requires(None) }, read }
}
