//! Part of the model of the cache of counts in Redis: the folds that write the cache, and the readers that fill it. The
//! explorer walks through their steps in every order: each method adds the steps that are possible next. Where `obeys`
//! returns no, a step breaks a rule, to show that the rule is needed.

use tally_core::cached::{Entry, FillToken, Stamp, TakeOver, TakeOverNumber, Told};

use super::{Caching, Request, Rule, State, Step, id, stated, taken, value};

/// A fold of the partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fold {
    /// Every change before this position is in the table.
    at: u8,
    /// The counter's version that the fold has not written to the cache yet.
    untold: Option<u8>,
    /// The position of the last standing that was stated.
    stated: u8,
    /// Its take-over of the cache, if it has one.
    hold: Option<TakeOver>,
    /// The number of its last take-over. Only the mutant without `NumbersDrawn` counts up from it.
    last: u8,
}

/// A reader of the cache that misses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Reader {
    Idle,
    /// Of two deployments: it has a standing of its own one, of this take-over, and no value.
    Saw(TakeOverNumber),
    /// It will fill in the value that it has read after it got the token; a later read would only be newer.
    WillFill(FillToken, u8),
}

impl Caching {
    pub(super) fn fold(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let (of, fold) = (self.deployment(at), &state.folds[at]);
        if fold.at < self.changes {
            let mut after = state.clone();
            let (fold, table) = (&mut after.folds[at], &mut after.tables[of]);
            fold.at += 1;
            let is_in = *table >= fold.at;
            // What is in the table already was read.
            *table = fold.at.max(*table);
            if !is_in || self.obeys(Rule::ToldWhatIsIn) {
                fold.untold = Some(*table);
            }
            next.push((Step("applies", at), after));
        }
        if state.left.take_overs > 0 {
            let mut after = state.clone();
            after.left.take_overs -= 1;
            after.drawn += 1;
            let number = if self.obeys(Rule::NumbersDrawn) { after.drawn } else { fold.last };
            self.sends(after, at, Request::TakeOver { of, number, at: fold.at }, next);
        }
        if fold.hold.is_some() {
            self.tells(state, at, next);
        }
    }

    /// Adds the writes of a fold: the missing values followed by the standing, or only one of them.
    fn tells(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let fold = &state.folds[at];
        let standing = (fold.stated < fold.at).then_some(fold.at);
        let mut writes = Vec::new();
        if fold.untold.is_some() {
            writes.push((fold.untold, None));
        }
        if standing.is_some() {
            writes.push((fold.untold, standing));
            if fold.untold.is_some() && !self.obeys(Rule::ValuesBeforeStanding) {
                writes.push((None, standing));
            }
        }
        for (value, stated) in writes {
            let mut after = state.clone();
            let hold = after.folds[at].hold.as_mut().expect("who tells has a hold");
            let stamp = hold.stamp();
            let stamp = if self.obeys(Rule::SequenceCompared) { stamp } else { Stamp { from: 0, ..stamp } };
            self.sends(after, at, Request::Tell { of: self.deployment(at), stamp, value, stated }, next);
        }
    }

    /// Sends a request, which arrives once or twice; or its sender gives it up, and it arrives late or never. Its
    /// contents were decided when it was sent, so other steps in between would add nothing.
    fn sends(&self, state: State, at: usize, request: Request, next: &mut Vec<(Step, State)>) {
        let mut answered = state.clone();
        self.arrives(&mut answered, request, Some(at));
        if answered.left.copies > 0 {
            let mut again = answered.clone();
            again.left.copies -= 1;
            again.comes_late(request);
            next.push((Step("is answered, and the request arrives again", at), again));
        }
        next.push((Step("is answered", at), answered));
        if state.left.given_up > 0 {
            let mut given_up = state;
            given_up.left.given_up -= 1;
            given_up.comes_late(request);
            if !self.obeys(Rule::UnansweredIsUntold) && matches!(request, Request::Tell { .. }) {
                given_up.folds[at].untold = None;
            }
            next.push((Step("gives a request up", at), given_up));
        }
    }

    pub(super) fn reader(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let (of, mut slot, mut after) = (self.deployment(at), self.slot(state), state.clone());
        let (copy, step) = match state.readers[at] {
            Reader::Idle if self.shared => {
                if let Some(held) = slot.held.as_ref().filter(|held| held.taken.of == id(of) && slot.get(&()).is_none())
                {
                    after.readers[at] = Reader::Saw(held.taken.number);
                    next.push((Step("looks", at), after));
                }
                return;
            }
            Reader::WillFill(token, value) => {
                after.readers[at] = Reader::Idle;
                let fill = Request::Fill { of, token, value };
                self.arrives(&mut after, fill, None);
                (fill, Step("fills", at))
            }
            _ if state.left.fills == 0 => return,
            before => {
                let nonce = after.left.fills;
                after.left.fills -= 1;
                let Some(token) = slot.begin_fill(&(), nonce.into()) else { return };
                after.slot = self.slots.number(slot);
                let is_of_another = matches!(before, Reader::Saw(number) if number != token.number());
                let is_dropped = is_of_another && self.obeys(Rule::TokenCompared);
                after.readers[at] = if is_dropped { Reader::Idle } else { Reader::WillFill(token, state.tables[of]) };
                (Request::Begin { nonce }, Step("begins a fill", at))
            }
        };
        if after.left.copies > 0 {
            let mut again = after.clone();
            again.left.copies -= 1;
            again.comes_late(copy);
            next.push((step, again));
        }
        next.push((step, after));
    }

    /// Lets a request reach the cache, and the fold that waits for it get the answer.
    pub(super) fn arrives(&self, state: &mut State, request: Request, sender: Option<usize>) {
        let (mut slot, fold) = (self.slot(state), sender.map(|at| &mut state.folds[at]));
        match request {
            Request::TakeOver { of, number, at } => {
                let stored = slot.held.as_ref().map_or(0, |held| held.taken.number.0);
                let counted = u8::try_from(stored).expect("numbers are few").max(number) + 1;
                let (number, last) = if self.obeys(Rule::NumbersDrawn) { (number, 0) } else { (counted, counted) };
                let hold = slot.take_over(taken(of, number), &stated(at));
                if let Some(fold) = fold.filter(|_| hold.is_some()) {
                    // The table has it, and the cache has nothing older.
                    *fold = Fold { at: fold.at, untold: None, stated: at, hold, last };
                }
            }
            Request::Tell { of, stamp, value: version, stated: place } => {
                let held = slot.held.as_ref().filter(|_| !self.obeys(Rule::WriterCompared));
                let number = held.map_or(stamp.number, |held| held.taken.number);
                let before = slot.entries.get(&()).copied();
                let values: Vec<_> = version.into_iter().map(|version| ((), value(of, version))).collect();
                let told = slot.tell(Stamp { number, ..stamp }, &values, place.map(stated).as_ref());
                if let Some(token @ Entry::Filling(_)) = before.filter(|_| !self.obeys(Rule::WriteTakesToken)) {
                    slot.entries.insert((), token);
                }
                match (fold, told) {
                    (Some(fold), Told::Written(_)) => fold.has_told(stamp, version, place),
                    (Some(fold), Told::Lost) => fold.hold = None,
                    (None, _) => {}
                }
            }
            Request::Begin { nonce } => _ = slot.begin_fill(&(), nonce.into()),
            Request::Fill { of, token, value: version } => {
                let value = value(of, version);
                match slot.entries.get(&()).copied() {
                    _ if !self.obeys(Rule::FillNeedsToken) => _ = slot.entries.insert((), token.filled(value)),
                    Some(Entry::Filling(there)) if self.is_same(there, token) => _ = slot.fill(&(), there, value),
                    _ => {}
                }
            }
        }
        state.slot = self.slots.number(slot);
    }

    /// Returns whether a fill with one token may use another one.
    fn is_same(&self, there: FillToken, token: FillToken) -> bool {
        let is_similar = (there.number(), there.nonce()) == (token.number(), token.nonce());
        there == token || is_similar && !self.obeys(Rule::TokenNamesSequence)
    }
}

impl Fold {
    fn has_told(&mut self, stamp: Stamp, value: Option<u8>, stated: Option<u8>) {
        if let Some(hold) = &mut self.hold {
            hold.answered(stamp);
        }
        self.untold = self.untold.filter(|_| value.is_none());
        self.stated = stated.unwrap_or(self.stated);
    }
}
