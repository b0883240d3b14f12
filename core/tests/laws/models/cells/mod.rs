//! A model of a sum, such as views: two consumers add the events of one Kafka partition to a cell, the row that one
//! counter has for this partition. Each event has to be added exactly once.
//!
//! There are two consumers: one owns the partition and commits, and the other one is a zombie that goes on. A consumer
//! that crashes begins again at the committed offset, and the group may be reset to its first offset. An update that
//! was sent may be carried out at any later time, any number of times, with or without an answer; a value that was
//! read may have changed before it is heard.

mod tests;

use std::collections::BTreeSet;

use tally_core::register::{Adding, Cell, Progress, Step as Ask, Version};
use tally_core::topic::Offset;

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
struct Consumer {
    progress: Number,
    adding: Number,
    asked: Asked,
}

/// The request that a consumer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    Nothing,
    The(Ask),
    /// The cell as it was read; it may have changed since.
    Seen(Option<Cell>),
}

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

    /// Returns a consumer to which the partition was just assigned.
    fn begin(&self, at: u8) -> Consumer {
        let progress = self.progresses.number(Progress::new(Offset(at.into())));
        Consumer { progress, adding: self.addings.number(Adding::default()), asked: Asked::Nothing }
    }

    /// Adds the possible steps of a consumer.
    fn consumer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let before = state.consumers[i];
        let progress = self.progresses.get(before.progress);
        let mut go = |step, act: &dyn Fn(&mut State)| {
            let mut after = *state;
            act(&mut after);
            next.push((step, after));
        };
        if progress.next() < Offset(self.events.into()) {
            go(Step("takes", i), &|after| self.take(after, i, progress.next()));
        }
        match before.asked {
            Asked::Nothing => go(Step("asks", i), &|after| self.ask(after, i)),
            Asked::The(ask) => {
                go(Step("is answered", i), &|after| self.answer(after, i, ask));
                go(Step("misses the answer", i), &|after| {
                    self.act(after, i, |adding| {
                        adding.unclear();
                        Vec::new()
                    });
                });
            }
            Asked::Seen(cell) => {
                go(Step("hears", i), &|after| self.act(after, i, |adding| adding.read(cell).collect()));
            }
        }
        let finished = if self.obeys(Rule::FinishedOnly) { progress.committable() } else { progress.next() };
        let to = u8::try_from(finished.0).expect("few events");
        if i == 0 && to > state.committed {
            go(Step("commits", usize::from(to)), &|after| after.committed = to);
        }
    }

    fn take(&self, state: &mut State, i: usize, offset: Offset) {
        let consumer = &mut state.consumers[i];
        let is_in =
            self.addings.update(&mut consumer.adding, |adding| adding.take(version(offset.0), amount(offset.0)));
        self.progresses.update(&mut consumer.progress, |progress| {
            progress.take_elsewhere(offset);
            if is_in {
                progress.finish(offset);
            }
        });
    }

    fn ask(&self, state: &mut State, i: usize) {
        let consumer = &mut state.consumers[i];
        let Some(ask) = self.addings.update(&mut consumer.adding, Adding::step) else { return };
        consumer.asked = Asked::The(ask);
        if let Ask::Update { from, to } = ask {
            self.copies.update(&mut state.copies, |copies| _ = copies.insert((from, to)));
        }
    }

    /// Lets the store carry out the request.
    fn answer(&self, state: &mut State, i: usize, ask: Ask) {
        match ask {
            Ask::Read => state.consumers[i].asked = Asked::Seen(state.cell),
            Ask::Update { from, to } => {
                let is_stored = self.carry_out(&mut state.cell, (from, to));
                let stands = state.cell;
                self.act(state, i, |adding| match is_stored {
                    true => adding.stored().collect(),
                    false => adding.read(stands).collect(),
                });
            }
        }
    }

    /// Lets the consumer get an answer, or learn that there is none. The events that are in the cell are finished then.
    fn act(&self, state: &mut State, i: usize, act: impl FnOnce(&mut Adding) -> Vec<Offset>) {
        let consumer = &mut state.consumers[i];
        let is_in = self.addings.update(&mut consumer.adding, act);
        self.progresses.update(&mut consumer.progress, |progress| {
            is_in.into_iter().for_each(|offset| progress.finish(offset));
        });
        consumer.asked = Asked::Nothing;
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
        let consumers = [self.begin(state.committed), state.consumers[0]];
        next.push((Step("takes over", 0), State { consumers, ..*state }));
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
