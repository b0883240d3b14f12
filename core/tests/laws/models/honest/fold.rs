//! Part of the model of what the API's answers claim: the folds that count one partition of the log of changes, which
//! are its owner and a zombie that has lost it.

use tally_core::cached::StandingAt;
use tally_core::changes::{Body, Message, Place, Standing};
use tally_core::fold::{After, Counter, Flush, Partition, Position};
use tally_core::time::UnixMillis;

use super::super::{offset, place};
use super::{Rule, State, Step, Table, World};
use crate::intern::Number;

/// A process that folds the partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fold {
    /// The offset before which everything is in the table, and the filter there.
    pub(super) settled: (u8, Number),
    /// The offset before which everything was read.
    pub(super) taken: u8,
    /// The counter as the fold believes it is in the table.
    pub(super) stored: Number,
}

impl Fold {
    /// Returns a fold that begins at the stored position.
    pub(super) fn new(table: Table) -> Self {
        let Table { counter, place, filter, .. } = table;
        Self { settled: (place, filter), taken: place, stored: counter }
    }
}

impl World {
    pub(super) fn folds(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, fold) in state.folds.iter().enumerate() {
            if usize::from(fold.taken) < self.logs.get(state.log).len() {
                let taken = self.settled(state, &Fold { taken: fold.taken + 1, ..fold.clone() });
                next.push((Step("takes a message", at), state.with_fold(at, taken)));
            }
            self.write(state, at, fold, next);
            self.store_standing(state, at, fold, next);
        }
    }

    /// Lets the fold write its changes if the counter is as it expects, and otherwise learn the current counter.
    fn write(&self, state: &State, at: usize, fold: &Fold, next: &mut Vec<(Step, State)>) {
        let Some(counter) = self.applied(state, fold) else { return };
        if state.table.counter != fold.stored {
            let refused = self.settled(state, &Fold { stored: state.table.counter, ..fold.clone() });
            next.push((Step("is refused", at), state.with_fold(at, refused)));
            return;
        }
        let stored = self.counters.number(counter);
        let written = self.settled(state, &Fold { stored, ..fold.clone() });
        let table = Table { counter: stored, ..state.table };
        next.push((Step("writes the counter", at), State { table, ..state.with_fold(at, written) }));
    }

    /// Returns the counter after the fold's changes, if that is another one.
    fn applied(&self, state: &State, fold: &Fold) -> Option<Counter> {
        let (flush, before) = (self.flush(state, fold), self.counters.get(fold.stored));
        let pending = flush.counters.values().next()?;
        let After { counter, .. } = flush.apply(Some(&before), pending, UnixMillis(0))?;
        let changes = Counter { version: before.version, ..counter.clone() } != *before;
        (changes || self.obeys(Rule::ChangedBackWritten)).then_some(counter)
    }

    /// Returns the fold after everything read is settled, because there is nothing to write.
    fn settled(&self, state: &State, fold: &Fold) -> Fold {
        if self.applied(state, fold).is_some() {
            return fold.clone();
        }
        let filter = self.filters.number(self.flush(state, fold).position.filter);
        Fold { settled: (fold.taken, filter), ..fold.clone() }
    }

    /// Returns the changes that the fold has read and not written.
    fn flush(&self, state: &State, fold: &Fold) -> Flush {
        let ((begin, filter), log) = (fold.settled, self.logs.get(state.log));
        let filter = (*self.filters.get(filter)).clone();
        let mut partition = Partition::new(Position { at: place(begin), filter, ..Position::default() });
        for (at, message) in (0..fold.taken).zip(&*log).skip(begin.into()) {
            let taken = partition.take(place(at), UnixMillis(0), message);
            assert_eq!(taken.hole, None, "nothing of the log is lost: {log:?}");
        }
        let mut flush = partition.flush();
        for pending in flush.counters.values_mut().flatten() {
            let is_entry = matches!(log[offset::<usize>(pending.at)].body, Body::Sections { .. });
            pending.loss = self.compared(&log, pending.loss).filter(|_| self.obeys(Rule::Gap) || !is_entry);
        }
        flush
    }

    /// Lets the fold store its standing and its position. An old position never replaces a newer one.
    fn store_standing(&self, state: &State, at: usize, fold: &Fold, next: &mut Vec<(Step, State)>) {
        let (place, filter) = match self.obeys(Rule::StoredBehindCounters) {
            true => fold.settled,
            false => (fold.taken, self.filters.number(self.flush(state, fold).position.filter)),
        };
        if place > state.table.place {
            let standing = self.standing(state, place, filter);
            let table = Table { standing, place, filter, ..state.table };
            next.push((Step("stores its standing", at), State { table, ..state.clone() }));
        }
    }

    /// Returns the standing at an offset.
    pub(super) fn standing(&self, state: &State, before: u8, filter: Number) -> Number {
        let mut standing = self.filters.get(filter).standing();
        if !self.obeys(Rule::ByPlace) {
            let log = self.logs.get(state.log);
            let loss = log[..usize::from(before)].iter().filter_map(number_of).max();
            standing = Standing { loss, ..standing };
        }
        self.standings.number(StandingAt { at: place(before), standing })
    }

    /// Returns an announcement in the form in which it is compared with others.
    pub(super) fn compared(&self, log: &[Message], loss: Option<Place>) -> Option<Place> {
        if self.obeys(Rule::ByPlace) { loss } else { number_of(&log[offset::<usize>(loss?)]) }
    }
}

/// Returns the number of the loss that a message announces, in the form of a position; a mutant compares these.
fn number_of(message: &Message) -> Option<Place> {
    let Body::Lost(lost) = &message.body else { return None };
    u8::try_from(lost.number.0).ok().map(place)
}

impl State {
    pub(super) fn with_fold(&self, at: usize, fold: Fold) -> Self {
        let mut state = self.clone();
        state.folds[at] = fold;
        state
    }
}
