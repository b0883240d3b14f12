//! Part of the model of a log that loses its end and grows again: a fold, which reads the log, states how far, and
//! writes the counter. It runs the production partition, between the tables and the log.

use tally_core::fold::{After, Counter, Flush, Mark, Partition, Position, ReadTo};
use tally_core::time::UnixMillis;

use super::super::{offset, place};
use super::{Appended, Budget, NOW, Regrown, Rule, State, Stated, Step, Tables};
use crate::intern::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fold {
    stage: Stage,
    pub(super) partition: Number,
    /// The statement as it was last read, or the fold's own statement since.
    known: Stated,
    /// What it wrote last.
    pub(super) written: Number,
    /// Whether its position is no longer in the log.
    pub(super) is_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    /// It has read the stored position, and does not know the log yet.
    Begun {
        position: Number,
    },
    Reads,
    /// It has stated how far it has read, and writes this.
    Writes(Number),
}

impl Fold {
    pub(super) fn new(model: &Regrown, position: Position, known: Stated) -> Self {
        let mut partition = Partition::new(position);
        let written = model.flushes.number(partition.flush());
        Self { stage: Stage::Reads, partition: model.partitions.number(partition), known, written, is_lost: false }
    }

    /// Returns whether it has nothing under way.
    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Reads
    }
}

impl Stated {
    /// Returns the readings that the statement contains.
    fn readings(self) -> impl Iterator<Item = ReadTo> {
        self.read.into_iter().chain(self.last.map(|last| ReadTo { at: self.at, last }))
    }
}

impl Regrown {
    fn mark(Appended { message, elections }: Appended) -> Mark {
        Mark::of(UnixMillis(elections.into()), format!("{message:?}").as_bytes())
    }

    pub(super) fn fold(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        if state.left.restarts > 0 {
            let Tables { stated, position, .. } = state.tables;
            let fold = Fold { stage: Stage::Begun { position }, known: stated, ..state.folds[i] };
            let left = Budget { restarts: state.left.restarts - 1, ..state.left };
            next.push((Step("begins", i), State { left, ..state.with(i, fold) }));
        }
        match state.folds[i].stage {
            Stage::Begun { position } => next.push((Step("looks", i), self.look(state, i, position))),
            Stage::Reads => self.read(state, i, next),
            Stage::Writes(flush) => {
                let flush_of = self.flushes.get(flush);
                let written = Fold { stage: Stage::Reads, written: flush, ..state.folds[i] };
                let mut after = state.with(i, written);
                let counter = self.counters.get(state.tables.counter);
                if let Some(counter) = applied(&flush_of, &counter) {
                    after.tables.counter = self.counters.number(counter);
                }
                next.push((Step("writes", i), after));
            }
        }
    }

    /// Begins in the current log.
    fn look(&self, state: &State, i: usize, position: Number) -> State {
        let found = State { is_found: true, ..state.clone() };
        let mut position = (*self.positions.get(position)).clone();
        let known = state.folds[i].known;
        let reached = known.readings().map(|read| read.at).max().unwrap_or(known.at);
        if offset::<usize>(reached.max(position.at)) > state.log.len() {
            return found;
        }
        position.last = position.last.filter(|_| self.obeys(Rule::Compared) && self.obeys(Rule::PositionMarked));
        let before = offset::<usize>(position.at).checked_sub(1);
        let begun = Fold::new(self, position, known);
        let mut partition = (*self.partitions.get(begun.partition)).clone();
        if self.obeys(Rule::Compared) {
            known.readings().for_each(|stated| partition.look_for(stated));
        }
        if before.is_some_and(|at| partition.recognise(place(at), Self::mark(state.log[at])).is_err()) {
            return found;
        }
        state.with(i, Fold { partition: self.partitions.number(partition), ..begun })
    }

    fn read(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let fold = state.folds[i];
        let partition = self.partitions.get(fold.partition);
        let at = partition.place();
        if let Some(appended) = state.log.get(offset::<usize>(at)).filter(|_| !fold.is_lost) {
            let mut partition = (*partition).clone();
            if partition.recognise(at, Self::mark(*appended)).is_err() {
                next.push((Step("reads", i), State { is_found: true, ..state.clone() }));
            } else {
                let taken = partition.take(at, NOW, &self.messages.get(appended.message));
                // Nothing is stated or written after a hole that is not stored as a loss yet.
                let is_found = taken.hole.is_some();
                // If there is nothing to write, everything is written.
                let is_written = partition.is_empty() && partition.is_sure();
                let written = if is_written { self.flushes.number(partition.flush()) } else { fold.written };
                let read = state.with(i, Fold { partition: self.partitions.number(partition), written, ..fold });
                next.push((Step("reads", i), State { is_found, ..read }));
            }
        }
        if !partition.is_empty() && (partition.is_sure() || !self.obeys(Rule::SureFirst)) {
            next.push((Step("states how far it has read", i), self.state_read(state, i)));
        }
        self.store(state, i, next);
    }

    /// States how far it has read; then it may write.
    fn state_read(&self, state: &State, i: usize) -> State {
        let fold = state.folds[i];
        let mut partition = (*self.partitions.get(fold.partition)).clone();
        let mut after = state.clone();
        if self.obeys(Rule::ReadStated) {
            let stated = Stated { read: partition.read_to(), ..fold.known };
            let (next, is_stated) = self.stated(state, i, stated);
            if !is_stated {
                return next;
            }
            after = next;
        }
        let stage = Stage::Writes(self.flushes.number(partition.flush()));
        after.folds[i] = Fold { stage, partition: self.partitions.number(partition), ..after.folds[i] };
        after
    }

    /// Replaces the statement if the fold knows the current one; otherwise it compares what others have stated
    /// meanwhile.
    fn stated(&self, state: &State, i: usize, stated: Stated) -> (State, bool) {
        let (fold, stands) = (state.folds[i], state.tables.stated);
        if fold.known == stands || !self.obeys(Rule::StatementsCompared) {
            let mut after = state.with(i, Fold { known: stated, ..fold });
            after.tables.stated = stated;
            return (after, true);
        }
        let mut partition = (*self.partitions.get(fold.partition)).clone();
        let mut new = stands.readings().filter(|read| fold.known.readings().all(|known| known != *read));
        if new.any(|stated| partition.heed(stated).is_err()) {
            return (State { is_found: true, ..state.clone() }, false);
        }
        (state.with(i, Fold { partition: self.partitions.number(partition), known: stands, ..fold }), false)
    }

    /// Stores its standing, and then the position for the next fold. Neither ever goes back.
    fn store(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let (fold, tables) = (state.folds[i], state.tables);
        let Flush { position, standing, .. } = &*self.flushes.get(fold.written);
        if position.at > fold.known.at
            && (self.partitions.get(fold.partition).is_sure() || !self.obeys(Rule::SureFirst))
        {
            let standing = self.standings.number(standing.clone());
            let stated = Stated { standing, at: position.at, last: position.last, ..fold.known };
            let (after, _) = self.stated(state, i, stated);
            next.push((Step("stores its standing", i), after));
        } else if position.at > self.positions.get(tables.position).at {
            let tables = Tables { position: self.positions.number(position.clone()), ..tables };
            next.push((Step("stores its position", i), State { tables, ..state.clone() }));
        }
    }
}

impl State {
    fn with(&self, i: usize, fold: Fold) -> Self {
        let mut state = self.clone();
        state.folds[i] = fold;
        state
    }
}

/// Returns the counter after the missing part of the flush, if that is another one.
fn applied(flush: &Flush, counter: &Counter) -> Option<Counter> {
    let pending = flush.counters.values().next()?;
    flush.apply(Some(counter), pending, UnixMillis(0)).map(|After { counter, .. }| counter)
}
