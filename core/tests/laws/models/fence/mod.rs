//! Two consumers on one partition, neither of them its owner: each is the real machine, and this is its other runner.
//! Transactions are delayed, given up on, and land late or twice; consumers crash and are stopped; the topic is
//! re-created under its old name and an operator resets the fence.
//!
//! In every state the rows are the fold of the events before the fence, and every record before it that is not in the
//! rows has a dead letter.

mod consumer;
mod table;
mod tests;

use std::sync::Arc;

use tally_core::consume::Input;
use tally_core::event::Action;
use tally_core::fence::Commit;
use tally_core::ids::Lane;

use self::consumer::{Ask, Consumer};
use self::table::{Place, Request, Table};
use super::late;
use crate::explore::Model;

/// A rule of the consumer that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Every row change carries the fence's condition.
    Condition,
    /// The condition covers `cfg` too.
    CfgInCondition,
    /// After an unknown outcome the fence is read again, and reading goes on from there.
    ReloadAfterUnknown,
    /// The fence is read before the log.
    FenceFirst,
    /// Reading starts at the fence, and not where Kafka was last told.
    StartAtFence,
    /// After each load reading starts anew, and does not go on where it was.
    StartAnew,
    /// A dead letter is acknowledged before the fence passes its record.
    LetterFirst,
    /// An acknowledgement counts for the configuration of the fence that its record was read under.
    LetterOfItsCfg,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    /// One of two users likes or unlikes.
    Event(u8, Action),
    /// Nothing that is an event.
    Poison,
    /// An event of a row that the table does not take.
    Unwelcome,
}

/// Which of the topic's two lives: the broker knows no topic ids, so both have one name.
type Life = usize;

struct Consumers {
    removed: Option<Rule>,
    /// What records may say.
    alphabet: Vec<Said>,
    /// How many records the topic has before and after it is re-created.
    lengths: [usize; 2],
    /// How many things may go wrong, and which.
    faults: u8,
    kinds: &'static [Fault],
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// A transaction's answer is lost, and it lands later or never.
    TimeOut,
    /// A transaction is answered, and lands once more later.
    LandsTwice,
    /// A consumer dies while its transaction is under way.
    CrashMidway,
    /// The acknowledgement of a dead letter is lost.
    LetterUnanswered,
    /// The position cannot be read any more.
    Unreadable,
    /// A consumer is stopped in order.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    topic: Arc<[Vec<Said>; 2]>,
    life: Life,
    table: Table,
    /// Dead letters that are stored.
    letters: Vec<Place>,
    consumers: [Arc<Consumer>; 2],
    /// Transactions whose sender does not wait for them any more.
    ghosts: Vec<Request>,
    faults: u8,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    ReadFence { consumer: usize },
    ReadLog { consumer: usize },
    CreateFence { consumer: usize },
    Send { consumer: usize, to: u64, ending: Ending },
    Answered { consumer: usize },
    TimeOut { consumer: usize },
    LandsTwice { consumer: usize },
    LetterStored { consumer: usize, at: Place },
    LetterUnanswered { consumer: usize, at: Place },
    Crash { consumer: usize },
    GhostLands { to: u64 },
    GhostDies,
    TopicRecreatedAndFenceReset,
}

/// How a stretch of reading ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// What was read is due.
    Due,
    /// The consumer is stopped in order.
    Stopped,
    /// The position cannot be read any more, so nothing is written.
    Unreadable,
}

impl Consumers {
    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn may(&self, fault: Fault, state: &State) -> bool {
        state.faults > 0 && self.kinds.contains(&fault)
    }

    /// The machine of consumer `i` is told `input`.
    fn tell(&self, state: &mut State, i: usize, input: Input) {
        let life = state.life;
        Arc::make_mut(&mut state.consumers[i]).take(input, life, self);
    }

    fn every_step(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (i, consumer) in state.consumers.iter().enumerate() {
            self.answer(state, i, next);
            self.letters(state, i, next);
            if consumer.machine.reads() {
                self.send(state, i, next);
            }
            if consumer.ask.is_none() {
                next.push((Step::Crash { consumer: i }, state.clone().restarted(i, self)));
            }
        }
        for (ghost, ghosts) in late::each_ghost(&state.ghosts) {
            let dead = State { ghosts, ..state.clone() };
            let mut landed = dead.clone();
            landed.table.land(ghost, self);
            next.push((Step::GhostLands { to: ghost.advance.to.0 }, landed));
            next.push((Step::GhostDies, dead));
        }
        if let (Some(fence), false) = (state.table.fence, state.is_recreated()) {
            let mut recreated = state.clone();
            recreated.life = 1;
            recreated.table.reset(fence);
            next.push((Step::TopicRecreatedAndFenceReset, recreated));
        }
    }

    /// Answers what consumer `i` has asked for.
    fn answer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = i;
        match &state.consumers[i].ask {
            None => {}
            Some(Ask::Fence) => {
                let stored = state.table.fence.map(table::Known::fence);
                let mut answered = state.clone();
                Arc::make_mut(&mut answered.consumers[i]).take_fence(stored, state.life, self);
                next.push((Step::ReadFence { consumer }, answered));
            }
            Some(Ask::Log) => {
                let mut looked = state.clone();
                Arc::make_mut(&mut looked.consumers[i]).look(&state.topic, state.life, self);
                next.push((Step::ReadLog { consumer }, looked));
            }
            Some(Ask::Create(fence)) => {
                let mut created = state.clone();
                created.table.create(fence);
                self.tell(&mut created, i, Input::FenceStored(Ok(())));
                next.push((Step::CreateFence { consumer }, created));
            }
            Some(Ask::Commit(request)) => self.arrive(state, i, request, next),
        }
    }

    /// The transaction of consumer `i` reaches the table and is answered; or its answer is lost, or it lands once more.
    fn arrive(&self, state: &State, i: usize, request: &Request, next: &mut Vec<(Step, State)>) {
        let consumer = i;
        let mut landed = state.clone();
        let commit = landed.table.land(request, self);
        self.tell(&mut landed, i, Input::Committed(Lane::FIRST, commit));
        if self.may(Fault::LandsTwice, state) {
            next.push((Step::LandsTwice { consumer }, landed.clone().with_ghost(request)));
        }
        if self.may(Fault::CrashMidway, state) {
            next.push((Step::Crash { consumer }, state.clone().with_ghost(request).restarted(i, self)));
        }
        if self.may(Fault::TimeOut, state) {
            let mut late = state.clone().with_ghost(request);
            Arc::make_mut(&mut late.consumers[i]).times_out(request, self);
            self.tell(&mut late, i, Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())));
            next.push((Step::TimeOut { consumer }, late));
        }
        next.push((Step::Answered { consumer }, landed));
    }

    /// A consumer that reads takes some of the records there are until something ends that. Nothing is seen of it before,
    /// so this is one step.
    fn send(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = i;
        let at = state.consumers[i].at;
        let log = &state.topic[state.consumers[i].life];
        for to in at + 1..=log.len() as u64 {
            for ending in [Ending::Due, Ending::Stopped, Ending::Unreadable] {
                let mut sent = state.clone();
                match ending {
                    Ending::Due => {}
                    Ending::Stopped if self.may(Fault::Stop, state) => sent.faults -= 1,
                    Ending::Unreadable if self.may(Fault::Unreadable, state) => sent.faults -= 1,
                    _ => continue,
                }
                Arc::make_mut(&mut sent.consumers[i]).read(log, to, ending, state.life, self);
                next.push((Step::Send { consumer, to, ending }, sent));
            }
        }
    }

    /// The dead letters of consumer `i` that are under way are stored, in any order, and acknowledged or not.
    fn letters(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = i;
        for (n, (at, letter)) in state.consumers[i].letters.iter().enumerate() {
            let (at, letter) = (*at, Arc::clone(letter));
            let mut stored = state.clone().with_letter(at);
            Arc::make_mut(&mut stored.consumers[i]).letters.remove(n);
            if self.may(Fault::LetterUnanswered, state) {
                let mut unanswered = stored.clone();
                unanswered.faults -= 1;
                self.tell(&mut unanswered, i, Input::LetterRefused(Arc::clone(&letter)));
                next.push((Step::LetterUnanswered { consumer, at }, unanswered));
            }
            Arc::make_mut(&mut stored.consumers[i]).take_letter(&letter, state.life, self);
            next.push((Step::LetterStored { consumer, at }, stored));
        }
    }
}

impl State {
    fn with_ghost(mut self, request: &Request) -> Self {
        self.faults -= 1;
        late::give_up(&mut self.ghosts, request, Request::order);
        self
    }

    fn with_letter(mut self, at: Place) -> Self {
        if let Err(place) = self.letters.binary_search(&at) {
            self.letters.insert(place, at);
        }
        self
    }

    fn restarted(mut self, i: usize, rules: &Consumers) -> Self {
        self.consumers[i] = Arc::new(Consumer::assigned(self.life, rules));
        self
    }

    fn is_recreated(&self) -> bool {
        self.life == 1
    }

    fn end(&self) -> u64 {
        self.topic[self.life].len() as u64
    }
}

impl Model for Consumers {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let [first, second] = self.lengths.map(|length| table::logs(&self.alphabet, length));
        // The users are alike, so the first event of the topic's first life is user 0's.
        let first = first.into_iter().filter(|log| !matches!(log.first(), Some(Said::Event(1, _))));
        let consumer = Arc::new(Consumer::assigned(0, self));
        let state = |topic| State {
            topic: Arc::new(topic),
            life: 0,
            table: Table::default(),
            letters: Vec::new(),
            consumers: [Arc::clone(&consumer), Arc::clone(&consumer)],
            ghosts: Vec::new(),
            faults: self.faults,
        };
        first.flat_map(|first| second.iter().map(move |second| [first.clone(), second.clone()])).map(state).collect()
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.every_step(state, next);
        next.iter_mut().for_each(|(_, state)| late::in_one_order(&mut state.consumers));
    }

    fn violation(&self, state: &State) -> Option<String> {
        let before = state.table.fence.map_or(0, |fence| fence.offset);
        let log = &state.topic[state.life];
        let missing = (0..before).zip(log).find(|(offset, said)| {
            !matches!(said, Said::Event(..)) && state.letters.binary_search(&(state.life, *offset)).is_err()
        });
        if state.table.rows != state.table.folded(log) {
            Some(ROWS.to_owned())
        } else {
            missing.map(|(offset, said)| format!("{LETTERS}: {said:?} at {offset}"))
        }
    }

    fn is_goal(&self, state: &State) -> bool {
        let done = state.table.fence.is_some_and(|fence| fence.offset == state.end());
        done && state.is_recreated() && state.ghosts.is_empty()
    }
}

const ROWS: &str = "the rows are not the fold of the events before the fence";
const LETTERS: &str = "a record before the fence is neither in the rows nor a dead letter";
