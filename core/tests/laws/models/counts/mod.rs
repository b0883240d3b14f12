//! A model of counting: two relays copy a stream into one partition of the log `changes`, two folds add it up, and
//! recounts correct the counter. One of each pair may be a zombie, which goes on although the other one has taken over.
//!
//! There are one row key with two members, one counter and one stream shard. The log contains real messages, every
//! reader runs the production filter, a fold the production counter, and a recount the production key. A relay is
//! abstract: it consists of the position up to which its records are acknowledged, and each of its messages has one
//! record. The marker of a recount is a record of the stream. The guard time is not modelled.
//!
//! In a world with edits by hand, nothing else goes wrong. A correction calculated before a second one would replace
//! one calculated after it, so a key is settled only when a recount finds it equal. Losses are announced, and may
//! follow each other and an initial error of the counter.

mod fold;
mod log;
mod recount;
mod stream;
mod tests;

use tally_core::changes::{Body, Filter, LossNumber, Message, Place};
use tally_core::fold::Counter;
use tally_core::ids::{RowKey, Shard};
use tally_core::recount::Key;

use self::fold::Fold;
use self::log::{Known, Log, Read, Reader};
use self::recount::{Recount, Since};
use self::stream::{Record, Stream};
use super::likes;
use crate::explore::{Model, Step};
use crate::intern::{Interned, Memo, Number};

const MEMBERS: [&str; 2] = ["a", "b"];

/// A rule that a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A relay that takes over begins at the stored position of the stream shard.
    BeginsAtFed,
    /// Readers accept each entry once.
    Filter,
    /// The filter is stored with the position.
    FilterStored,
    /// A reader whose filter is behind a back-link has found a hole.
    BackLink,
    /// The announcement of a lost part of the stream advances the filter.
    Raised,
    /// An update of the counter compares all values that it sets, not only the version.
    ValuesCompared,
    /// A correction states how many corrections it has seen.
    Seen,
    /// A correction names the last loss that its recount knew.
    LossNamed,
    /// A tail begins at the position and filter that the fold has stored: a mutant's at the end of the log, without a
    /// filter.
    TailFromFold,
    /// A tail begins before the rows are read.
    TailBeforeRows,
    /// A tail begins after every announced loss.
    TailBehindLosses,
    /// The counter is read once the tail has reached the marker.
    MarkerAwaited,
    /// The tail is read up to the counter's version.
    TailToVersion,
    /// A message that names a loss is an announcement even for a reader that has found the loss by itself.
    NamedOnce,
    /// A recount begins once no write of lost messages can arrive any more. No process follows this rule yet: ADR 0173.
    LateAwaited,
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    changes: u8,
    /// The lease moves to the other relay.
    moves: u8,
    edits: u8,
    /// A record that was not read is trimmed.
    losses: u8,
    /// The log loses an acknowledged message before it is read.
    holes: u8,
    /// The position of a fold is no longer in the log.
    jumps: u8,
    /// The log loses its last message after a fold has read it, and the fold writes late.
    ends: u8,
}

impl Budget {
    /// Returns whether the fed position of the stream shard still matters.
    fn needs_fed(self) -> bool {
        self.moves > 0 || self.losses > 0
    }
}

#[derive(Default)]
struct Counts {
    budget: Budget,
    recounts: usize,
    /// The initial error of the counter.
    error: i64,
    /// What an edit by hand adds to the total and to the shard.
    edit: [i64; 2],
    removed: &'static [Rule],
    messages: Interned<Message>,
    logs: Interned<Log>,
    filters: Interned<Filter>,
    counters: Interned<Counter>,
    keys: Interned<Key>,
    sections: Memo<(u8, Option<Record>, [i64; 2]), Number>,
    appended: Memo<(Number, Number), Number>,
    readings: Memo<(Reader, Number), Read>,
    knowledge: Memo<Number, Known>,
    answers: Memo<(Number, Number), Option<u8>>,
    changes: Memo<(Number, u8, Number, Option<Place>), Option<Number>>,
    passes: Memo<(Reader, Number, Number), Reader>,
    tails: Memo<(Number, Reader, Number), Number>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    stream: Stream,
    /// The position up to which each relay's records are acknowledged.
    relays: [u8; 2],
    holder: u8,
    /// The stored position of the stream shard.
    fed: u8,
    log: Number,
    counter: Number,
    /// The stored position, with its filter.
    check: Reader,
    folds: [Fold; 2],
    recounts: [Recount; 2],
    left: Budget,
    /// The stored losses of folds that jumped, and how often a relay has named all of them.
    jumped: Jumped,
    /// The late write of a fold: the counter that it expects, and the one that it writes.
    late: Option<(Number, Number)>,
    /// Whether a correction made an error larger.
    worse: bool,
}

/// The losses of folds that jumped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Jumped {
    /// The greatest of their numbers, and the one before it.
    losses: [Option<LossNumber>; 2],
    /// Whether the log names all of them, and how often it has.
    named: bool,
    times: u8,
}

impl Counts {
    fn new(budget: Budget, recounts: usize) -> Self {
        Self { budget, recounts, ..Self::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        !self.removed.contains(&rule)
    }

    fn relay(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let at = state.relays[i];
        let holds = i == usize::from(state.holder);
        if at < state.stream.len() && (holds || state.left.moves < self.budget.moves) {
            let mut sent = *state;
            sent.relays[i] += 1;
            self.send(Step("sends", i), sent, self.section(state.stream, at, true), next);
        }
        // The statement of every second contains nothing new unless something is missing.
        if at > self.known(self.end(state.log)).reached {
            self.send(Step("states again", 0), *state, self.section(state.stream, at, false), next);
        }
        if !holds || !state.left.needs_fed() {
            return;
        }
        if at > state.fed {
            next.push((Step("stores fed", 0), State { fed: at, ..*state }));
        }
        let unread = at == state.fed && at < state.stream.len() && state.relays[1 - i] <= at;
        if unread && state.left.losses > 0 {
            let mut trimmed = *state;
            (trimmed.relays[i], trimmed.fed) = (at + 1, at + 1);
            trimmed.left.losses -= 1;
            let message = self.lost(state.left.losses, at);
            self.send(Step("announces a trimmed record", usize::from(at)), trimmed, message, next);
        }
    }

    fn send(&self, step: Step, state: State, message: Number, next: &mut Vec<(Step, State)>) {
        if state.left.holes > 0 {
            let left = Budget { holes: state.left.holes - 1, ..state.left };
            next.push((Step("the log loses it", 0), State { left, ..state }));
        }
        next.push((step, State { log: self.append(state.log, message), ..state }));
    }

    /// Unifies states that are equivalent: each fold has skipped what changes nothing, pairs are in one order, and
    /// positions from which no process will begin are forgotten.
    fn settle(&self, state: &mut State) {
        state.folds = state.folds.map(|fold| self.passed(fold, state.log));
        state.folds.sort_unstable();
        if !self.needs_check(state) {
            state.check = state.folds[0].reader;
        }
        if !state.left.needs_fed() {
            state.fed = 0;
            if self.budget.moves > 0 {
                state.holder = 0;
                state.relays.sort_unstable();
            }
        }
    }

    /// Returns whether it matters which position is stored. A fold may begin at any of them, since it skips what is in
    /// the counter already.
    fn needs_check(&self, state: &State) -> bool {
        self.may_be_exact(state) || state.recounts[..self.recounts].contains(&Recount::Idle)
    }

    /// Returns whether every error was announced. An initial error and an edit by hand were not.
    fn may_be_exact(&self, state: &State) -> bool {
        self.error == 0 && state.left.edits == self.budget.edits
    }

    /// Returns whether all of the stream is in the log, all of the log in the counter, and no recount is running.
    fn is_at_rest(&self, state: &State) -> bool {
        let all = state.stream.len();
        state.left.changes == 0
            && (state.jumped.named || state.jumped == Jumped::default())
            && self.known(self.end(state.log)).reached == all
            && state.folds.iter().any(|fold| fold.reader.at == self.length(state.log))
            && (0..self.recounts).all(|i| self.waits_for_nothing(state, i))
    }

    /// Returns whether the counter has to be right at rest: nothing went wrong, or a recount began after the last
    /// error.
    fn has_to_be_right(&self, state: &State) -> bool {
        let since = Since { edits: state.left.edits, loss: self.known(self.end(state.log)).loss };
        let sound = Since { edits: self.budget.edits, loss: None };
        (self.error == 0 && since == sound) || state.recounts.contains(&Recount::Done(since))
    }

    /// Returns whether the total and the shard equal the rows.
    fn is_right(&self, state: &State) -> bool {
        let counter = self.counters.get(state.counter);
        let sum = state.stream.sum(state.stream.len());
        counter.likes == sum && counter.part(Shard::FIRST) == sum
    }

    /// Returns whether an API that read the stored standing, and reads the counter now, calls a number exact that the
    /// rows have not had since.
    fn lies(&self, state: &State) -> bool {
        if !self.may_be_exact(state) {
            return false;
        }
        let Some(as_of) = self.exact_as_of(state.check.filter, state.counter) else { return false };
        let likes = self.counters.get(state.counter).likes;
        let sums = (as_of..=state.stream.len()).map(|at| state.stream.sum(at));
        sums.clone().min() > Some(likes) || sums.max() < Some(likes)
    }

    /// Returns whether the counter contains an announcement that the standing of a fold which has read the whole log
    /// does not reach.
    fn strays(&self, state: &State) -> bool {
        let at_end = |fold: &&Fold| fold.reader.at == self.length(state.log) && fold.known == state.counter;
        let gap = self.counters.get(state.counter).gap;
        let reaches = |fold: &Fold| gap <= self.filters.get(fold.reader.filter).loss();
        state.jumped.named && !state.folds.iter().filter(at_end).all(reaches)
    }
}

impl Model for Counts {
    type State = State;

    fn initial(&self) -> State {
        let (log, reader) = self.opened();
        let parts = [(Shard::FIRST, self.error)].into_iter().filter(|(_, part)| *part != 0).collect();
        let counter = Counter { likes: self.error, parts, ..Counter::default() };
        let counter = self.counters.number(counter);
        State {
            stream: Stream::default(),
            relays: [0, 0],
            holder: 0,
            fed: 0,
            log,
            counter,
            check: reader,
            folds: [Fold { reader, known: counter }; 2],
            recounts: [Recount::Idle; 2],
            left: self.budget,
            jumped: Jumped::default(),
            late: None,
            worse: false,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.left.changes > 0 {
            let left = Budget { changes: state.left.changes - 1, ..state.left };
            for member in 0..2 {
                let stream = state.stream.with(Record::Change(short(member)));
                next.push((Step("changes", member), State { stream, left, ..*state }));
            }
        }
        if state.left.moves > 0 {
            let sent = state.relays[0].max(state.relays[1]);
            let from = if self.obeys(Rule::BeginsAtFed) { state.fed } else { state.stream.len().min(sent + 1) };
            let mut moved = State { holder: 1 - state.holder, ..*state };
            moved.relays[usize::from(moved.holder)] = from;
            moved.left.moves -= 1;
            next.push((Step("takes over", usize::from(from)), moved));
        }
        if state.jumped != Jumped::default() && !state.jumped.named {
            let losses = state.jumped.losses.into_iter().flatten().collect();
            let message = self.message(Body::Sections { sections: Vec::new(), losses });
            let jumped = Jumped { named: true, times: state.jumped.times + 1, ..state.jumped };
            next.push((Step("names losses", 0), State { log: self.append(state.log, message), jumped, ..*state }));
        }
        if state.left.edits > 0 {
            let mut edited = State { left: Budget { edits: state.left.edits - 1, ..state.left }, ..*state };
            self.counters.update(&mut edited.counter, |counter| {
                counter.likes += self.edit[0];
                *counter.parts.entry(Shard::FIRST).or_default() += self.edit[1];
            });
            next.push((Step("edits", 0), edited));
        }
        self.write_late(state, next);
        for i in 0..2 {
            self.relay(state, i, next);
            self.fold(state, i, next);
            self.lose_end(state, i, next);
        }
        for i in 0..self.recounts {
            self.recount(state, i, next);
        }
        next.iter_mut().for_each(|(_, state)| self.settle(state));
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        if state.worse {
            return Some(WORSE);
        }
        if self.logs.get(state.log).hole && self.budget.holes + self.budget.ends == 0 && self.obeys(Rule::BeginsAtFed) {
            return Some(FALSE_HOLE);
        }
        if self.lies(state) {
            return Some(LIE);
        }
        if self.strays(state) {
            return Some(STRAY);
        }
        let wrong = self.is_at_rest(state) && self.has_to_be_right(state) && !self.is_right(state);
        wrong.then_some(WRONG)
    }

    fn is_goal(&self, state: &State) -> bool {
        let Budget { changes, edits, losses, holes, jumps, ends, .. } = state.left;
        let all = [changes, edits, losses, holes, jumps, ends] == [0; 6] && state.late.is_none();
        // Without a recount, what a fold has jumped over stays wrong.
        let is_over = self.recounts == 0 && self.budget.jumps > 0;
        all && self.is_at_rest(state) && (is_over || self.has_to_be_right(state) && self.is_right(state))
    }
}

/// Returns the row key whose rows are counted.
fn key() -> RowKey {
    likes("p", Shard::FIRST)
}

fn short(number: usize) -> u8 {
    u8::try_from(number).expect("a world is small")
}

const WRONG: &str = "the counter is not what its rows come to";
const WORSE: &str = "a correction makes an error larger";
const STRAY: &str = "a counter carries an announcement that no standing reaches";
const LIE: &str = "an answer says that it is exact, and is not";
const FALSE_HOLE: &str = "a hole is found in a log that has lost nothing";
