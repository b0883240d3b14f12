//! A model of the log of changes when Kafka loses its end and it grows again: it then has other messages where folds
//! have read, stated and written. The folds have to notice that before an answer is wrong.
//!
//! There are one stream shard, one relay that may fall back to the stored position, two folds of which one may be a
//! zombie, and one counter. Every record adds one. The log contains real messages; the folds run the production
//! partition and counter. A fold whose position is no longer in the log reads nothing until it begins again, since
//! Kafka's client notices; it may still write what it has read. What happens after a loss is known is left to the
//! other models: a world ends well when a fold has found the loss.

mod fold;
mod tests;

use tally_core::changes::{Filter, Message, Place, Section, Standing};
use tally_core::fold::{Counter, Flush, Mark, Partition, Position, ReadTo};
use tally_core::ids::{CounterKind, Shard};
use tally_core::time::UnixMillis;

use self::fold::Fold;
use super::{likes, offset, opened, place, position, reached, sections, stream_shard, time, weighed};
use crate::explore::{Model, Step};
use crate::intern::{Interned, Number};

/// The time at which every message is read and appended. Rows are written earlier: record `k` of the stream at the
/// time `k`.
const NOW: UnixMillis = UnixMillis(100);

/// A rule that a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A fold states how far it has read, and the last message, before it writes a counter.
    ReadStated,
    /// A fold replaces a statement only after comparing it: a mutant replaces any earlier one.
    StatementsCompared,
    /// A position is stored with its last message.
    PositionMarked,
    /// The messages are compared: a mutant only compares the end of the log.
    Compared,
    /// Nothing is written before the furthest stated message was found.
    SureFirst,
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    records: u8,
    /// The relay states up to when it is complete.
    statements: u8,
    /// The relay falls back.
    falls: u8,
    /// The log loses its end.
    ends: u8,
    /// A fold begins again.
    restarts: u8,
}

/// A message, and how often the log had lost its end when it was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Appended {
    message: Number,
    elections: u8,
}

/// The contents of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tables {
    counter: Number,
    stated: Stated,
    position: Number,
}

/// The item with the folds' statement. A fold writes it after comparing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Stated {
    standing: Number,
    /// The position of the standing, and the last message before it.
    at: Place,
    last: Option<Mark>,
    /// How far the fold that writes counters has read.
    read: Option<ReadTo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The number of records in the stream.
    stream: u8,
    /// The number of acknowledged records of the relay.
    sent: u8,
    /// The number of records that are stored as fed.
    fed: u8,
    log: Vec<Appended>,
    tables: Tables,
    folds: [Fold; 2],
    left: Budget,
    /// Whether a fold has found that the log is another one.
    is_found: bool,
}

#[derive(Default)]
struct Regrown {
    budget: Budget,
    removed: Option<Rule>,
    /// The steps before the world begins.
    begun: &'static [Step],
    messages: Interned<Message>,
    counters: Interned<Counter>,
    standings: Interned<Standing>,
    positions: Interned<Position>,
    partitions: Interned<Partition>,
    flushes: Interned<Flush>,
}

impl Regrown {
    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Returns the relay's next message: the record after the acknowledged ones, or only that position.
    fn section(&self, sent: u8, has_entry: bool) -> Message {
        let entry = |at: u8| weighed(&likes("p", Shard::FIRST), &format!("m{at}"), [0, 1], at + 1);
        let (entries, to) = if has_entry { (vec![entry(sent)], sent + 1) } else { (Vec::new(), sent) };
        let fed = Some(time(to));
        let section = Section { shard: stream_shard(0), back: position(sent), to: position(to), fed, entries };
        Message { read: NOW, body: sections(vec![section]) }
    }

    fn append(&self, state: &mut State, message: Message) {
        let elections = self.budget.ends - state.left.ends;
        state.log.push(Appended { message: self.messages.number(message), elections });
    }

    fn relay(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.sent < state.stream {
            let mut sent = state.clone();
            self.append(&mut sent, self.section(state.sent, true));
            sent.sent += 1;
            next.push((Step("sends", 0), sent));
        }
        if state.left.statements > 0 {
            let mut stated = state.clone();
            self.append(&mut stated, self.section(state.sent, false));
            stated.left.statements -= 1;
            next.push((Step("states", 0), stated));
        }
        if state.sent > state.fed && state.left.falls > 0 {
            next.push((Step("stores fed", 0), State { fed: state.sent, ..state.clone() }));
            let left = Budget { falls: state.left.falls - 1, ..state.left };
            next.push((Step("falls back", 0), State { sent: state.fed, left, ..state.clone() }));
        }
    }

    /// Lets the log keep only its first messages.
    fn lose_end(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.left.ends == 0 {
            return;
        }
        for to in 1..state.log.len() {
            let mut lost = state.clone();
            lost.log.truncate(to);
            lost.left.ends -= 1;
            for fold in &mut lost.folds {
                fold.is_lost |= offset::<usize>(self.partitions.get(fold.partition).place()) > to;
            }
            next.push((Step("loses its end", to), lost));
        }
    }

    /// Returns the filter of a reader of the whole log, and whether it has found a hole.
    fn end(&self, state: &State) -> (Filter, bool) {
        let (mut filter, mut hole) = (Filter::default(), false);
        for (at, appended) in state.log.iter().enumerate() {
            let taken = filter.take(place(at), NOW, &self.messages.get(appended.message), |_, _| {});
            hole |= taken.hole.is_some();
        }
        (filter, hole)
    }

    /// Returns whether an API that reads the stored standing, and the counter now, wrongly calls a number exact.
    fn lies(&self, state: &State) -> bool {
        let standing = self.standings.get(state.tables.stated.standing);
        let served =
            tally_core::fold::serve(&standing, CounterKind::Set, Some(&*self.counters.get(state.tables.counter)));
        let possible = i64::try_from(served.as_of.0).expect("times are small")..=i64::from(state.stream);
        served.exact && !possible.contains(&served.likes)
    }

    /// Returns whether all records are in the log, and a fold has written all of the log.
    fn is_at_rest(&self, state: &State) -> bool {
        let is_done = |fold: &Fold| {
            let partition = self.partitions.get(fold.partition);
            let is_written = self.flushes.get(fold.written).position.at == partition.place();
            is_written && fold.is_idle() && !fold.is_lost && offset::<usize>(partition.place()) == state.log.len()
        };
        state.stream == state.sent
            && state.left.records == 0
            && state.folds.iter().any(is_done)
            && reached(&self.end(state).0) == state.stream
    }

    fn is_right(&self, state: &State) -> bool {
        self.counters.get(state.tables.counter).likes == i64::from(state.stream)
    }
}

impl Model for Regrown {
    type State = State;

    fn initial(&self) -> State {
        let message = self.messages.number(Message { read: NOW, body: opened([stream_shard(0)]) });
        let position = Position { at: place(0), ..Position::default() };
        let standing = self.standings.number(Standing::default());
        let stated = Stated { standing, at: place(0), last: None, read: None };
        let fold = Fold::new(self, position.clone(), stated);
        let mut state = State {
            stream: 0,
            sent: 0,
            fed: 0,
            log: vec![Appended { message, elections: 0 }],
            tables: Tables {
                counter: self.counters.number(Counter { version: place(0), ..Counter::default() }),
                stated,
                position: self.positions.number(position),
            },
            folds: [fold; 2],
            left: self.budget,
            is_found: false,
        };
        for step in self.begun {
            let mut next = Vec::new();
            self.steps(&state, &mut next);
            state = next.into_iter().find(|(taken, _)| taken == step).expect("it may happen").1;
        }
        state
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.is_found || self.end(state).1 {
            return;
        }
        if state.left.records > 0 {
            let left = Budget { records: state.left.records - 1, ..state.left };
            next.push((Step("a record", 0), State { stream: state.stream + 1, left, ..state.clone() }));
        }
        self.relay(state, next);
        self.lose_end(state, next);
        for i in 0..state.folds.len() {
            self.fold(state, i, next);
        }
        next.iter_mut().for_each(|(_, state)| state.folds.sort_unstable());
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        if self.lies(state) {
            return Some(LIE);
        }
        if state.is_found && state.left.ends == self.budget.ends {
            return Some(FALSE_LOSS);
        }
        // What comes after a hole is wrong until a recount has passed, and is marked so.
        let is_known = state.is_found || self.end(state).1;
        (!is_known && self.is_at_rest(state) && !self.is_right(state)).then_some(WRONG)
    }

    fn is_goal(&self, state: &State) -> bool {
        state.left.ends == 0 && (state.is_found || self.is_at_rest(state) && self.is_right(state))
    }
}

const WRONG: &str = "the counter is not what its rows come to";
const FALSE_LOSS: &str = "a log that has lost nothing is taken for another one";
const LIE: &str = "an answer says that it is exact, and is not";
