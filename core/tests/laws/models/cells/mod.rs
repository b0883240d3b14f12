//! A model of a sum: the cell of one Kafka partition and one counter.
//!
//! There are two consumers: one owns the partition and commits, and the other one is a zombie that goes on. A consumer
//! that crashes begins again at the committed offset, and the group may be reset to its first offset. An update that
//! was sent may be carried out at any later time, any number of times, with or without an answer; a value that was
//! read may have changed before it is heard.

mod consumer;
mod tests;

use std::collections::BTreeSet;

use tally_core::register::{Adding, Cell, Progress, Version};
use tally_core::topic::Offset;

use self::consumer::Consumer;
use crate::explore::{Model, Step};
use crate::intern::{Interned, Number};

/// A rule that a mutant breaks.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// An update compares the version that the cell has reached.
    ToCompared,
    /// The committed offset lies before every event that is not known to be in the cell.
    FinishedOnly,
}

/// The cell that an update expects, and the cell that it writes.
type Update = (Option<Cell>, Cell);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    cell: Option<Cell>,
    committed: u8,
    /// The first one owns the partition.
    consumers: [Consumer; 2],
    /// The updates that may still be carried out.
    copies: Number,
    resets: u8,
}

#[derive(Default)]
struct Cells {
    events: u8,
    resets: u8,
    removed: Option<Rule>,
    progresses: Interned<Progress>,
    addings: Interned<Adding>,
    copies: Interned<BTreeSet<Update>>,
}

impl Cells {
    fn new(events: u8, resets: u8) -> Self {
        Self { events, resets, ..Self::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Carries out an update, and returns whether the store accepted it.
    fn carry_out(&self, cell: &mut Option<Cell>, (from, to): Update) -> bool {
        let is_admitted = cell.map(|cell| cell.to) == from.map(|from| from.to) || !self.obeys(Rule::ToCompared);
        if is_admitted {
            *cell = Some(to);
        }
        is_admitted
    }
}

impl Model for Cells {
    type State = State;

    fn initial(&self) -> State {
        let copies = self.copies.number(BTreeSet::new());
        let consumers = [self.begin(0), self.begin(self.events)];
        State { cell: None, committed: 0, consumers, copies, resets: self.resets }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for update in self.copies.get(state.copies).iter() {
            let mut arrived = *state;
            self.carry_out(&mut arrived.cell, *update);
            next.push((Step("arrives", 0), arrived));
        }
        next.push((
            Step("takes over", 0),
            State { consumers: [self.begin(state.committed), state.consumers[0]], ..*state },
        ));
        if state.resets > 0 && state.committed > 0 {
            let consumers = [self.begin(0), state.consumers[1]];
            next.push((Step("is reset", 0), State { committed: 0, consumers, resets: state.resets - 1, ..*state }));
        }
        for consumer in 0..2 {
            self.consumer(state, consumer, next);
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let reached = state.cell.map_or(0, |cell| cell.to.offset().0 + 1);
        let counted = state.cell.map_or(0, |cell| cell.n);
        if counted != (0..reached).map(amount).sum::<i64>() {
            return Some(WRONG);
        }
        (reached < state.committed.into()).then_some(LOST)
    }

    fn is_goal(&self, state: &State) -> bool {
        state.committed == self.events
    }
}

fn version(offset: u64) -> Version {
    Version::new(1, true, Offset(offset))
}

/// Returns the amount of an event. Each number is the sum of some amounts in at most one way.
fn amount(offset: u64) -> i64 {
    1 << offset
}

const WRONG: &str = "the cell is not what the events up to its version come to";
const LOST: &str = "an event was committed that is not in the cell";
