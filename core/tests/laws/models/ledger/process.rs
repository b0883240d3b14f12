//! A process of the model: the machine that ships, and what it waits for.

use std::rc::Rc;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::Ordinal;
use tally_core::ledger::{Answer, Changes, Effect, Fed, Input, Request, RequestId, Rules};
use tally_core::time::{Now, UnixMillis};

use super::{Ledger, Letter, Rule, Sender, State, Step, Stepped, place, sequence};
use crate::intern::Number;

const RULES: Rules = Rules {
    age: Duration::from_secs(1),
    store: Duration::ZERO,
    bytes: usize::MAX,
    patience: Duration::from_secs(60),
    farewell: Duration::from_secs(1),
};
const SHARD: Ordinal = Ordinal(1);

/// When everything happens but the end of what is waited for.
const NOW: Now = Now { at: Duration::ZERO, wall: UnixMillis(0) };
/// When what was gathered is old enough to be sealed.
const AGED: Now = Now { at: RULES.age, ..NOW };
/// When answers come.
const ANSWERED: Now = Now { at: RULES.patience, ..NOW };
/// When what was sealed has waited for too long.
const LATE: Now = Now { at: RULES.age.saturating_add(RULES.patience), ..NOW };

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    /// It is given the records from one to another, and their age passes.
    Read(u8, u8),
    EndOfShard,
    Sent(RequestId),
    TimedOut(RequestId),
    Late,
    Stored(RequestId),
}

/// What a machine wants stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Store {
    Fed(u8),
    /// Records from one to another, both included.
    Lapse(u8, u8),
    End,
}

/// A machine that feeds the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    machine: Number,
    /// How many records it was given.
    read: u8,
    /// It was told that there are no more.
    at_end: bool,
    storing: Option<(RequestId, Store)>,
}

impl Ledger {
    fn happens(&self, machine: Number, happening: Happening) -> Stepped {
        if let Some(known) = self.known.borrow().get(&(machine, happening)) {
            return known.clone();
        }
        let mut after = (*self.machines.get(machine)).clone();
        let mut effects = Vec::new();
        let inputs = match happening {
            Happening::Read(from, to) => {
                let records = (from..=to).map(|at| self.record(at)).collect();
                vec![(NOW, Input::Records(records)), (AGED, Input::Woke)]
            }
            Happening::EndOfShard => vec![(ANSWERED, Input::EndOfShard)],
            Happening::Sent(id) => vec![(ANSWERED, Input::Answered(id, Answer::Sent(Ok(()))))],
            Happening::TimedOut(id) => {
                let fault = Fault::Transient("no answer".to_owned());
                vec![(ANSWERED, Input::Answered(id, Answer::Sent(Err(fault))))]
            }
            Happening::Late => vec![(LATE, Input::Woke)],
            Happening::Stored(id) => vec![(ANSWERED, Input::Answered(id, Answer::Done))],
        };
        for (now, input) in inputs {
            after.step(now, input.clone(), &mut effects);
            if matches!(input, Input::Answered(..)) {
                let (once, wanted) = (after.clone(), effects.len());
                after.step(now, input, &mut effects);
                assert!(after == once && effects.len() == wanted, "an answer was taken twice");
            }
        }
        let stepped = (self.machines.number(after), Rc::from(effects));
        self.known.borrow_mut().insert((machine, happening), stepped.clone());
        stepped
    }

    pub(super) fn begin(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        if state.end {
            return;
        }
        let fed = (state.fed > 0).then(|| sequence(state.fed));
        let machine = Changes::new(SHARD, Fed { sequence: fed, ..Fed::default() }, 2, RULES, NOW);
        let machine = self.machines.number(machine);
        let begun = Process { machine, read: state.fed, at_end: false, storing: None };
        let mut state = state.clone();
        state.processes[at] = Some(begun);
        self.read_on(&state, at, begun, next);
    }

    /// More records, as many as there are or fewer, or the end of the stream shard.
    fn read_on(&self, state: &State, at: usize, process: Process, next: &mut Vec<(Step, State)>) {
        for to in process.read + 1..=self.last() {
            let happening = Happening::Read(process.read + 1, to);
            let mut state = state.clone();
            if !self.obeys(Rule::FedBehindAnswers) {
                state.fed = state.fed.max(to);
            }
            self.follows(Step::Read { process: at, to }, &state, at, happening, next);
        }
        if process.read == self.last() && !process.at_end {
            self.follows(Step::EndOfShard { process: at }, state, at, Happening::EndOfShard, next);
        }
    }

    pub(super) fn work(&self, state: &State, at: usize, process: Process, next: &mut Vec<(Step, State)>) {
        self.read_on(state, at, process, next);
        if let Some((id, store)) = process.storing {
            self.store(state, at, id, store, next);
        }
        if state.lapses > 0 {
            let given_up = State { lapses: state.lapses - 1, ..state.clone() };
            self.follows(Step::GiveUp { process: at }, &given_up, at, Happening::Late, next);
        }
        for (nth, letter) in state.network.iter().enumerate() {
            self.unanswered(state, at, nth, letter.sender, next);
        }
        // What it has sent is under way still, unless it was given up on before.
        let sends = state
            .network
            .iter()
            .any(|letter| matches!(letter.sender, Sender::Waits(of, _) | Sender::Insists(of) if of == at));
        if !sends || state.timeouts > 0 {
            let mut crashed = state.clone();
            crashed.timeouts -= u8::from(sends);
            crashed.processes[at] = None;
            crashed.leave(at);
            next.push((Step::Crash { process: at }, crashed.sorted()));
        }
    }

    /// What may happen while a message of this process is unanswered.
    fn unanswered(&self, state: &State, at: usize, nth: usize, sender: Sender, next: &mut Vec<(Step, State)>) {
        match sender {
            Sender::Waits(of, id) if of == at => {
                if state.timeouts > 0 {
                    let mut late = State { timeouts: state.timeouts - 1, ..state.clone() };
                    late.network[nth].sender = Sender::Gone;
                    self.follows(Step::TimeOut { process: at }, &late, at, Happening::TimedOut(id), next);
                }
                if !self.obeys(Rule::OneUnanswered) {
                    let mut early = state.clone();
                    early.network[nth].sender = Sender::Insists(at);
                    self.follows(Step::GoOnUnanswered { process: at }, &early, at, Happening::Sent(id), next);
                }
            }
            Sender::Insists(of) if of == at && state.timeouts > 0 => {
                let mut late = State { timeouts: state.timeouts - 1, ..state.clone() };
                late.network[nth].sender = Sender::Gone;
                late.network.push(state.network[nth]);
                next.push((Step::TimeOut { process: at }, late.sorted()));
            }
            _ => {}
        }
    }

    fn store(&self, state: &State, at: usize, id: RequestId, store: Store, next: &mut Vec<(Step, State)>) {
        if state.network.iter().any(|letter| letter.sender == Sender::Insists(at)) {
            return;
        }
        let mut stored = state.clone();
        match store {
            Store::Fed(to) => stored.fed = stored.fed.max(to),
            Store::Lapse(..) if !self.obeys(Rule::LapseStored) => {}
            Store::Lapse(first, last) => (first..=last).for_each(|at| stored.lapsed |= 1 << at),
            Store::End => stored.end = true,
        }
        self.follows(Step::Store { process: at, store }, &stored, at, Happening::Stored(id), next);
    }

    /// What follows once something has happened to a machine.
    pub(super) fn follows(
        &self,
        step: Step,
        state: &State,
        at: usize,
        happening: Happening,
        next: &mut Vec<(Step, State)>,
    ) {
        let mut state = state.clone();
        let mut process = state.processes[at].expect("it happens to a process");
        let (machine, effects) = self.happens(process.machine, happening);
        process.machine = machine;
        match happening {
            Happening::Read(_, to) => process.read = to,
            Happening::EndOfShard => process.at_end = true,
            Happening::Stored(_) => process.storing = None,
            _ => {}
        }
        state.processes[at] = Some(process);
        for effect in &*effects {
            match effect {
                Effect::Ask(id, Request::Send { message, .. }) => {
                    let message = self.messages.number((**message).clone());
                    state.network.push(Letter { message, sender: Sender::Waits(at, *id) });
                }
                Effect::Ask(id, request) => {
                    let storing = match request {
                        Request::StoreFed { to, .. } => Store::Fed(place(*to)),
                        Request::StoreLapse(lapse) => {
                            let second = |second| u8::try_from(second).expect("seconds are few");
                            Store::Lapse(second(lapse.seconds.first), second(lapse.seconds.last))
                        }
                        Request::StoreEnd(_) => Store::End,
                        other => panic!("nothing leads to {other:?}"),
                    };
                    process.storing = Some((*id, storing));
                    state.processes[at] = Some(process);
                }
                Effect::Ended(_) => {
                    state.processes[at] = None;
                    state.leave(at);
                }
                Effect::Sealed { .. } | Effect::GaveUp(_) => {}
            }
        }
        next.push((step, state.sorted()));
    }
}

impl State {
    /// Messages of a process that is no more are ghosts.
    fn leave(&mut self, at: usize) {
        for letter in &mut self.network {
            if matches!(letter.sender, Sender::Waits(of, _) | Sender::Insists(of) if of == at) {
                letter.sender = Sender::Gone;
            }
        }
    }
}
