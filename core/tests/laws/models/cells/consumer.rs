//! A consumer of the partition in the model of a sum.

use tally_core::register::{Adding, Cell, Progress, Step as Ask};
use tally_core::topic::Offset;

use super::{Cells, Rule, State, Step, amount, version};
use crate::intern::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
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

impl Cells {
    /// Returns a consumer to which the partition was just assigned.
    pub(super) fn begin(&self, at: u8) -> Consumer {
        let progress = self.progresses.number(Progress::new(Offset(at.into())));
        Consumer { progress, adding: self.addings.number(Adding::default()), asked: Asked::Nothing }
    }

    /// Adds the possible steps of a consumer.
    pub(super) fn consumer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
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
