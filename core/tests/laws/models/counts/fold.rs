//! Part of the model of counting: a fold, the process that adds the changes in the log up into the counter, and stores
//! how far it has come.

use tally_core::changes::{Correction, Item, Place};
use tally_core::fold::{Applied, Change, Counter};
use tally_core::time::UnixMillis;

use super::super::place;
use super::log::{Behind, NOW, Read, Reader, item};
use super::{Budget, Counts, Jumped, Rule, State, Step};
use crate::intern::Number;

/// A process that folds the log into the counter. Everything before its position is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fold {
    pub(super) reader: Reader,
    /// The counter as it was last read or written.
    pub(super) known: Number,
}

impl Counts {
    pub(super) fn fold(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let Fold { reader, known } = state.folds[i];
        if let Some((message, read, counter)) = self.next_change(reader, known, state.log) {
            let mut state = *state;
            if self.admits(state.counter, known) {
                let reader = Reader { at: reader.at + 1, filter: read.filter };
                state.worse |= self.is_worse(&state, reader, counter, message);
                state.counter = counter;
                state.folds[i] = Fold { reader, known: counter };
                next.push((Step("writes", i), state));
            } else {
                state.folds[i].known = state.counter;
                next.push((Step("reads again", i), state));
            }
        }
        if reader.at > state.check.at && self.needs_check(state) {
            next.push((Step("stores its place", i), State { check: reader, ..*state }));
        }
        let mut reader = state.check;
        if !self.obeys(Rule::FilterStored) {
            // The filter of the log's beginning.
            reader.filter = self.opened().1.filter;
        }
        let mut state = *state;
        state.folds[i] = Fold { reader, known: state.counter };
        next.push((Step("restarts", i), state));
        if state.left.jumps > 0 {
            self.jump(&state, i, next);
        }
    }

    /// Lets a fold begin whose stored position is no longer in the log.
    fn jump(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        for to in state.check.at + 1..=self.length(state.log) {
            let mut reader = Reader { at: to, ..state.check };
            // Two folds that jump before the log names a loss may do so in the same millisecond.
            let now = UnixMillis(NOW.0 + u64::from(state.jumped.times));
            let number = self.filters.update(&mut reader.filter, |filter| filter.jump(place(to), now));
            let mut after = *state;
            after.left.jumps -= 1;
            after.folds[i].reader = reader;
            let [last, _] = state.jumped.losses;
            after.jumped =
                Jumped { losses: [Some(number), last.filter(|last| *last != number)], named: false, ..state.jumped };
            next.push((Step("jumps", i), after));
        }
    }

    /// Lets the log lose its last message after this fold has read it. The fold writes it late, and no other process
    /// has read it.
    pub(super) fn lose_end(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let (Fold { reader, known }, length) = (state.folds[i], self.length(state.log));
        let is_last = reader.at + 1 == length && state.check.at < length;
        if state.left.ends == 0 || !is_last || state.folds.iter().any(|fold| fold.reader.at >= length) {
            return;
        }
        let Some((message, _, counter)) = self.next_change(reader, known, state.log) else { return };
        if matches!(item(&self.messages.get(message)), Some(Item::Entry(_))) {
            let left = Budget { ends: state.left.ends - 1, ..state.left };
            let lost = State { log: self.without_end(state.log), late: Some((known, counter)), left, ..*state };
            next.push((Step("the log loses its end", i), lost));
        }
    }

    /// Lets the late write arrive.
    pub(super) fn write_late(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if let Some((known, written)) = state.late {
            let counter = if self.admits(state.counter, known) { written } else { state.counter };
            next.push((Step("writes late", 0), State { counter, late: None, ..*state }));
        }
    }

    /// Returns the counter after the message at the fold's position, if it changes.
    fn next_change(&self, reader: Reader, known: Number, log: Number) -> Option<(Number, Read, Number)> {
        let message = *self.logs.get(log).messages.get(usize::from(reader.at))?;
        let read = self.read(reader, message);
        let counter = self.applied(known, reader.at, message, read.accepted?)?;
        Some((message, read, counter))
    }

    /// Returns the fold after it has skipped every message that changes nothing. It skips them at once: for the fold
    /// and for a tail, a position before one of them is equivalent to one after it.
    pub(super) fn passed(&self, fold: Fold, log: Number) -> Fold {
        let Fold { mut reader, known } = fold;
        reader = self.passes.get((reader, known, log), || {
            let log_of = self.logs.get(log);
            while let Some(message) = log_of.messages.get(usize::from(reader.at))
                && self.next_change(reader, known, log).is_none()
            {
                reader = Reader { at: reader.at + 1, filter: self.read(reader, *message).filter };
            }
            reader
        });
        Fold { reader, known }
    }

    /// Returns the counter after what was accepted at `at` is applied to it, if it changes.
    fn applied(&self, counter: Number, at: u8, message: Number, Behind(loss): Behind) -> Option<Number> {
        self.changes.get((counter, at, message, loss), || {
            let mut counter = (*self.counters.get(counter)).clone();
            let message = self.messages.get(message);
            let applied = match item(&message)? {
                Item::Entry(entry) => counter.apply(place(at), Change::Entry(entry), loss),
                Item::Correction(correction) => {
                    let correction = self.as_taken_by(&counter, correction, loss);
                    counter.apply(place(at), Change::Correction(&correction), loss)
                }
                Item::Ladder(_) => return None,
            };
            counter.reach(place(at).next());
            (applied == Ok(Applied::Changed)).then(|| self.counters.number(counter))
        })
    }

    /// Returns the correction as a mutant sees it.
    fn as_taken_by(&self, counter: &Counter, correction: &Correction, loss: Option<Place>) -> Correction {
        let seen = if self.obeys(Rule::Seen) { correction.seen } else { counter.corrections };
        let loss = if self.obeys(Rule::LossNamed) { correction.loss } else { loss };
        Correction { seen, loss, ..correction.clone() }
    }

    /// Returns whether the table accepts an update of a process that knows this state of the counter.
    fn admits(&self, counter: Number, known: Number) -> bool {
        let [counter, known] = [counter, known].map(|number| self.counters.get(number));
        let values = |counter: &Counter| (counter.likes, counter.parts.clone(), counter.corrections);
        counter.version == known.version && (!self.obeys(Rule::ValuesCompared) || values(&counter) == values(&known))
    }

    /// Returns whether the last correction that the reader has applied makes the counter's error larger.
    fn is_worse(&self, state: &State, reader: Reader, corrected: Number, message: Number) -> bool {
        if !matches!(item(&self.messages.get(message)), Some(Item::Correction(_))) {
            return false;
        }
        let right = state.stream.sum(self.known(reader.filter).reached);
        let error = |counter| self.counters.get(counter).likes.abs_diff(right);
        error(corrected) > error(state.counter)
    }
}
