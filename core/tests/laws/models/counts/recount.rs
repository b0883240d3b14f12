//! Part of the model of counting: a recount, which reads the rows of the counter while they change, compares their sum
//! with the counter, and sends a correction if the two differ.

use tally_core::changes::{Body, Filter, Item, Nonce, Place};
use tally_core::ids::MemberKey;
use tally_core::recount::Key;
use tally_core::weight::Weight;

use super::super::place;
use super::log::{Reader, item};
use super::{Counts, MEMBERS, Record, Rule, State, Step, key, short};
use crate::intern::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Recount {
    Idle,
    /// Its tail has begun.
    Begun(Look),
    /// The first row is read.
    HalfRead(Look),
    /// The second row is read, and the marker is put.
    Marked(Look),
    /// It has found a difference, and sends this correction.
    Sends(Number, Since),
    Done(Since),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Look {
    since: Since,
    tail: Reader,
    key: Number,
}

/// The errors before a recount began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Since {
    /// The number of edits that may still be made.
    pub(super) edits: u8,
    /// The last announced loss in the log.
    pub(super) loss: Option<u8>,
}

impl Counts {
    pub(super) fn recount(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let mut go = |step, recount, state: &State| {
            let mut state = *state;
            state.recounts[i] = recount;
            next.push((step, state));
        };
        match state.recounts[i] {
            // Recounts only differ in their marker, so the first to begin is the first one.
            Recount::Idle if i == 0 || state.recounts[i - 1] != Recount::Idle => {
                if let Some(look) = self.begin(state) {
                    go(Step("begins", i), Recount::Begun(look), state);
                }
            }
            Recount::Begun(look) => {
                go(Step("reads a row", i), Recount::HalfRead(self.row(look, state, 0)), state);
            }
            Recount::HalfRead(look) => {
                let look = self.marked(self.row(look, state, 1), state, i);
                let stream = state.stream.with(Record::Marker(short(i)));
                go(Step("reads a row", i), Recount::Marked(look), &State { stream, ..*state });
            }
            Recount::Marked(look) => {
                let key = self.keys.get(self.followed(look, state.log));
                if key.is_complete() || !self.obeys(Rule::MarkerAwaited) {
                    match key.compare(&self.counters.get(state.counter), Place::default()) {
                        None => go(Step("finds it equal", i), Recount::Done(look.since), state),
                        Some(correction) => {
                            let sends = Recount::Sends(self.message(Body::Correction(correction)), look.since);
                            go(Step("finds a difference", i), sends, state);
                        }
                    }
                }
            }
            Recount::Sends(correction, since) => {
                let log = self.append(state.log, correction);
                go(Step("corrects", i), Recount::Done(since), &State { log, ..*state });
            }
            Recount::Idle | Recount::Done(_) => {}
        }
    }

    /// Returns whether a recount waits in vain because its marker is lost.
    pub(super) fn waits_for_nothing(&self, state: &State, i: usize) -> bool {
        match state.recounts[i] {
            Recount::Idle | Recount::Done(_) => true,
            Recount::Marked(look) => !self.keys.get(self.followed(look, state.log)).is_complete(),
            _ => false,
        }
    }

    /// Returns a recount that begins at the fold's stored position, unless a loss is announced after it.
    fn begin(&self, state: &State) -> Option<Look> {
        if self.obeys(Rule::LateAwaited) && state.late.is_some() {
            return None;
        }
        let loss = self.known(self.end(state.log)).loss;
        if self.obeys(Rule::TailBehindLosses) && loss != self.known(state.check.filter).loss {
            return None;
        }
        let mut tail = state.check;
        if !self.obeys(Rule::TailFromFold) {
            tail = Reader { at: self.length(state.log), filter: self.filters.number(Filter::default()) };
        }
        let key = Key::new(key(), self.filters.get(tail.filter).loss());
        let since = Since { edits: state.left.edits, loss };
        Some(Look { since, tail, key: self.keys.number(key) })
    }

    fn row(&self, look: Look, state: &State, member: usize) -> Look {
        let weight = state.stream.rows(state.stream.len())[member];
        let mut key = look.key;
        // A missing row is not read.
        if weight > 0 {
            let member = MemberKey::new(MEMBERS[member]).expect("an id");
            self.keys.update(&mut key, |key| key.row(member, Weight::new(weight)));
        }
        Look { key, ..look }
    }

    fn marked(&self, look: Look, state: &State, i: usize) -> Look {
        let mut key = look.key;
        self.keys.update(&mut key, |key| key.marked(Nonce(short(i).into())));
        if self.obeys(Rule::TailBeforeRows) {
            return Look { key, ..look };
        }
        Look { key, tail: Reader { at: self.length(state.log), filter: self.end(state.log) }, ..look }
    }

    /// Returns the key after the tail has read to the end of the log.
    fn followed(&self, Look { tail, key, .. }: Look, log: Number) -> Number {
        self.tails.get((key, tail, log), || {
            let mut key = (*self.keys.get(key)).clone();
            let mut tail = tail;
            for message in self.logs.get(log).messages.iter().skip(usize::from(tail.at)) {
                let read = self.read(tail, *message);
                if read.accepted.is_some()
                    && let Some(Item::Entry(entry)) = item(&self.messages.get(*message))
                {
                    key.entry(place(tail.at), entry);
                }
                tail = Reader { at: tail.at + 1, filter: read.filter };
                if key.is_complete() && !self.obeys(Rule::TailToVersion) {
                    break;
                }
            }
            self.keys.number(key)
        })
    }

    pub(super) fn length(&self, log: Number) -> u8 {
        short(self.logs.get(log).messages.len())
    }
}
