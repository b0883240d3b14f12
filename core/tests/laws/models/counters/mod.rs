//! Two consumers on one partition of several counters, neither of them its owner. Counters are defined while records wait; what
//! is added to a sum must count once, although transactions time out and land late, consumers crash, and an operator moves the
//! fence back, by its command or by hand.
//!
//! In every state the rows are the fold of the events before the fence, a cell holds what was ever before a fence, and an action
//! that was said after it was defined has no dead letter.

mod consumer;
mod table;
mod tests;

use std::sync::Arc;

use tally_core::consume::Input;
use tally_core::fence::Commit;
use tally_core::ids::Lane;

use self::consumer::{Ask, Consumer};
use self::table::{Request, Table};
use super::late;
use crate::explore::Model;

/// A rule of the design that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The list is read after the record was polled whose action is unknown.
    ListAfterRecord,
    /// A cell's write carries the cell's own condition.
    CellCondition,
    /// Below `redo` only events that a cell has not are folded.
    FoldsBehindCell,
    /// The fence's condition covers `cfg`, so that a late request from before a reset is refused.
    CfgInCondition,
    /// Every transaction carries the fence's condition.
    FenceCondition,
    /// After an unknown outcome what was read is read again, and not sent again under the fence as it stands then.
    ReloadAfterUnknown,
    /// A partition adds to a sum in one cell, and in no other.
    OwnCell,
    /// A cell is written also where it gains 0: it says up to where it has the events.
    ZeroIsWritten,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    /// A user likes.
    Like,
    /// So many votes, up or down.
    Vote(i8),
    /// A retweet, which is defined at some moment.
    Later,
    /// What nothing ever defines.
    Never,
}

/// What an operator does, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Nothing,
    /// Defines retweets.
    Defines,
    /// Moves the fence to an offset before it with `fence reset --back`.
    MovesBack,
    /// Writes an offset before it into the fence's item.
    EditsBack,
}

#[derive(Clone, Copy)]
struct Counters {
    removed: &'static [Rule],
    log: &'static [Said],
    operator: Operator,
    /// How many transactions may time out or crash with their sender.
    faults: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// How many of the log's records were said.
    said: usize,
    table: Table,
    /// Retweets are defined; those from here on were said afterwards.
    defined: Option<usize>,
    operator: Operator,
    /// Dead letters that are stored, a bit each.
    letters: u8,
    consumers: [Arc<Consumer>; 2],
    ghosts: Vec<Request>,
    faults: u8,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Say(Said),
    Operate { to: u64 },
    Answer { consumer: usize },
    Read { consumer: usize, to: usize },
    TimeOut { consumer: usize },
    Crash { consumer: usize },
    GhostLands { to: u64 },
    GhostDies,
}

impl Counters {
    fn obeys(&self, rule: Rule) -> bool {
        !self.removed.contains(&rule)
    }

    fn tell(&self, state: &mut State, i: usize, input: Input) {
        let stored = Arc::make_mut(&mut state.consumers[i]).take(input, state.defined.is_some(), self);
        state.letters |= stored;
    }

    /// Answers what consumer `i` has asked for.
    fn answer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let Some(ask) = state.consumers[i].ask.clone() else { return };
        let mut answered = state.clone();
        let input = match ask {
            Ask::Fence => {
                if let Some(kept) = &state.consumers[i].kept {
                    answered.table.land_afresh(kept, self);
                }
                Input::Fence(Ok(answered.table.fence().map(Into::into)))
            }
            Ask::Log => Input::Log(Ok(table::log(state.said))),
            Ask::Create(fence) => {
                answered.table.create(&fence);
                Input::FenceStored(Ok(()))
            }
            Ask::Replace { seen, by } => {
                answered.table.replace(&seen, &by);
                Input::FenceStored(Ok(()))
            }
            Ask::Definitions => Input::Definitions(Ok(table::definitions(state.defined.is_some()))),
            Ask::Cells => Input::Cells(Lane::FIRST, Ok(vec![state.table.reached(0)])),
            Ask::Commit(request) => {
                if let Some(other) = request.in_the_other_cell(self) {
                    let mut elsewhere = state.clone();
                    let commit = elsewhere.table.land(&other, self);
                    self.tell(&mut elsewhere, i, Input::Committed(Lane::FIRST, commit));
                    next.push((Step::Answer { consumer: i }, elsewhere));
                }
                if state.faults > 0 {
                    let late = state.clone().with_ghost(&request);
                    let mut timed_out = late.clone();
                    if !self.obeys(Rule::ReloadAfterUnknown) {
                        Arc::make_mut(&mut timed_out.consumers[i]).kept = Some(request.clone());
                    }
                    self.tell(
                        &mut timed_out,
                        i,
                        Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())),
                    );
                    next.push((Step::TimeOut { consumer: i }, timed_out));
                    next.push((Step::Crash { consumer: i }, late.restarted(i, self)));
                }
                Input::Committed(Lane::FIRST, answered.table.land(&request, self))
            }
        };
        self.tell(&mut answered, i, input);
        next.push((Step::Answer { consumer: i }, answered));
    }

    /// A consumer takes the records up to one of those there are, and what it has is due then.
    fn read(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        for to in state.consumers[i].at + 1..=state.said {
            let mut read = state.clone();
            let letters = Arc::make_mut(&mut read.consumers[i]).read(self.log, to, state.defined.is_some(), self);
            read.letters |= letters;
            next.push((Step::Read { consumer: i, to }, read));
        }
    }

    fn operate(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let done = State { operator: Operator::Nothing, ..state.clone() };
        match state.operator {
            Operator::Nothing => {}
            Operator::Defines => {
                next.push((Step::Operate { to: 0 }, State { defined: Some(state.said), ..done }));
            }
            Operator::MovesBack | Operator::EditsBack => {
                for to in 0..state.table.offset().unwrap_or(0) {
                    let mut moved = done.clone();
                    moved.table.move_back(to, state.operator == Operator::MovesBack);
                    next.push((Step::Operate { to }, moved));
                }
            }
        }
    }
}

impl State {
    fn with_ghost(mut self, request: &Request) -> Self {
        self.faults -= 1;
        late::give_up(&mut self.ghosts, request, Request::order);
        self
    }

    fn restarted(mut self, i: usize, rules: &Counters) -> Self {
        self.consumers[i] = Arc::new(Consumer::assigned(rules));
        self
    }
}

impl Model for Counters {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let consumer = Arc::new(Consumer::assigned(self));
        vec![State {
            said: 0,
            table: Table::default(),
            defined: None,
            operator: self.operator,
            letters: 0,
            consumers: [Arc::clone(&consumer), consumer],
            ghosts: Vec::new(),
            faults: self.faults,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if let Some(said) = self.log.get(state.said) {
            next.push((Step::Say(*said), State { said: state.said + 1, ..state.clone() }));
        }
        self.operate(state, next);
        for i in 0..state.consumers.len() {
            self.answer(state, i, next);
            if state.consumers[i].machine.reads() {
                self.read(state, i, next);
            }
            // Also one that has nothing to write would not see that the fence was moved.
            if state.consumers[i].ask.is_none() {
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
        next.iter_mut().for_each(|(_, state)| late::in_one_order(&mut state.consumers));
    }

    fn violation(&self, state: &State) -> Option<String> {
        let later = |offset: &usize| self.log[*offset] == Said::Later;
        let lost = state.defined.and_then(|defined| {
            (defined..self.log.len()).filter(later).find(|offset| state.letters & (1 << offset) != 0)
        });
        if let Some(offset) = lost {
            return Some(format!("{REJECTED}: {offset}"));
        }
        let (least, most, counted) = state.table.expected(self.log, state.letters);
        let rows = state.table.rows;
        if (0..rows.len()).any(|row| (least[row] && !rows[row]) || (rows[row] && !most[row])) {
            return Some(format!("{ROWS}: {rows:?}, and {least:?} to {most:?}"));
        }
        (state.table.sum() != counted).then(|| format!("{SUM}: {} and not {counted}", state.table.sum()))
    }

    fn is_goal(&self, state: &State) -> bool {
        let done = state.table.offset() == Some(self.log.len() as u64) || state.table.is_edited();
        done && state.operator == Operator::Nothing && state.ghosts.is_empty()
    }
}

const ROWS: &str = "the rows are not the fold of the events before the fence";
const SUM: &str = "the sum is not that of what was ever before the fence";
const REJECTED: &str = "an action that was said after it was defined has a dead letter";
