//! A model of what the API's answers claim: that a count is exact, and up to which time (`as_of`) it is complete. Rows
//! change on two stream shards, which a relay copies into one partition of the log `changes`. A fold counts and stores
//! its standing. An API reads the standing of the partition and then the counter. In worlds with Kafka, events are
//! acknowledged before they become rows, and a consumer stores a time by which all acknowledged events are rows. Parts
//! of the stream are lost and announced, and an audit repairs them. A second fold may have taken over the partition
//! while the first one goes on. Any process may stop at any point.
//!
//! Filter, standing, fold, counter and answer are the production ones. An exact answer with `as_of` = t lies
//! between the sums of the least and of the greatest values that the shards had from t on: those of their rows or,
//! with Kafka, those of the events that it had acknowledged. No answer calls a number exact that lacks the correction
//! of a loss that its standing knows.
//!
//! A number between those sums stays there as time goes on, so the model checks at once an answer that is given
//! much later. For the same reason it has no cache: the model [`cached`](super::cached) holds that a value there
//! contains every change before the standing beside it, and a fold could store that standing as soon as the table had
//! the value.

mod fold;
mod stream;
mod tests;

use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{Filter, Message};
use tally_core::fold::{Counter, serve};
use tally_core::ids::{CounterKind, Shard};
use tally_core::register::SafeTimes;
use tally_core::served::{Served, as_of};
use tally_core::time::UnixMillis;

use super::{opened, place, stream_shard};
use crate::explore::{Model, Step};
use crate::intern::{Interned, Memo, Number};
use fold::Fold;
use stream::Loss;

/// A rule that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// The API reads the standing before the counter.
    StandingFirst,
    /// An answer keeps the `as_of` of the standing that it was made with.
    AsOfStays,
    /// An answer's `as_of` is no later than `safe_at`.
    NoLaterThanSafe,
    /// A `safe_at` only counts beside a standing that is not older than what was stored with it.
    SafeBeforeStanding,
    /// A loss is announced before anything after it.
    AnnouncedFirst,
    /// A counter with anything after a loss contains the announcement.
    Gap,
    /// Announcements are compared by their positions: a mutant compares the numbers of the losses.
    ByPlace,
    /// A counter that changed and changed back is written nevertheless: another fold may have written the value in
    /// between.
    ChangedBackWritten,
    /// The standing is stored once every change before it is in the table.
    StoredBehindCounters,
}

/// The bounds of a run. Time goes in ticks.
#[derive(Default)]
struct World {
    /// The number of ticks after the first.
    ticks: u8,
    /// The writes on each stream shard in order: the gains of the shard.
    writes: [&'static [i8]; 2],
    /// The stream shards that may lose records that were not read.
    lossy: &'static [usize],
    /// Whether events become rows through Kafka; otherwise they are rows at once.
    kafka: bool,
    /// The number of folds.
    folds: usize,
    removed: Option<Rule>,
    counters: Interned<Counter>,
    filters: Interned<Filter>,
    standings: Interned<StandingAt>,
    logs: Interned<Vec<Message>>,
    /// The last record of each stream shard in the log before an offset.
    reached: Memo<(Number, u8), [u8; 2]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tick: u8,
    shards: [i8; 2],
    /// By tick: the least and the greatest value of each shard since that tick began.
    ranges: Vec<[(i8, i8); 2]>,
    /// The tick in which each event was acknowledged, and that of each record of a stream shard.
    acknowledged: [Vec<u8>; 2],
    written: [Vec<u8>; 2],
    /// What the consumer has stored.
    safe: SafeTimes,
    /// The number of records of each shard that are in the log or lost, and the tick up to which each is stated as
    /// complete.
    relayed: [u8; 2],
    stated: [u8; 2],
    losses: [Loss; 2],
    log: Number,
    table: Table,
    folds: Vec<Fold>,
    held: Option<Held>,
}

/// The contents of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Table {
    counter: Number,
    standing: Number,
    /// How much of the log a fold has folded, and its filter there.
    place: u8,
    filter: Number,
}

/// What an API has read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    Standing(Number),
    /// A mutant has read the counter first.
    Counter(Number),
    /// A mutant will put another `as_of` on its answer.
    Answer(Served),
}

impl World {
    fn table() -> Self {
        Self { writes: [&[-5, 5], &[1]], lossy: &[0], folds: 1, ..Self::default() }
    }

    /// Returns a world with Kafka and without losses.
    fn kafka() -> Self {
        Self { kafka: true, lossy: &[], ..Self::table() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn value(&self, counter: Number) -> Value {
        Value::from(&*self.counters.get(counter))
    }

    /// Returns the answer about a counter with a standing, as the table has them.
    fn serve(&self, standing: Number, counter: Number) -> Served {
        serve(&self.standings.get(standing).standing, CounterKind::Set, Some(&self.counters.get(counter)))
    }

    /// Returns the answer about a value with a standing. An API may have read the consumer's state long ago or just
    /// now; what counts with the standing is the same.
    fn answer(&self, state: &State, stated: &StandingAt, value: &Value) -> Served {
        let answer = value.serve(&stated.standing, CounterKind::Set);
        if !self.kafka || !self.obeys(Rule::NoLaterThanSafe) {
            return answer;
        }
        let as_of = if self.obeys(Rule::SafeBeforeStanding) {
            as_of(&stated.standing, [&state.safe])
        } else {
            stated.standing.as_of.zip(state.safe.by(UnixMillis::MAX)).map(|(stated, safe_at)| stated.min(safe_at))
        };
        Served { exact: answer.exact && as_of.is_some(), as_of: as_of.unwrap_or_default(), ..answer }
    }

    /// Returns what is wrong with an answer.
    fn judge(&self, state: &State, stated: &StandingAt, value: &Value) -> Option<&'static str> {
        let answer = self.answer(state, stated, value);
        if answer.exact && !state.was(&answer) {
            return Some(LIE);
        }
        // The sum of a shard, and that without a loss that the standing does not know: its correction may or may not be
        // included.
        let due = |shard: usize| match state.losses[shard] {
            Loss::Announced { at, .. } if stated.at > place(at) => {
                [self.due(state, value.version.max(place(at + 1)))[shard]; 2]
            }
            Loss::Announced { at, lost, .. } if value.version > place(at) => {
                let due = self.due(state, value.version)[shard];
                [due, due - lost]
            }
            _ => [self.due(state, value.version)[shard]; 2],
        };
        let [one, other] = [due(0), due(1)];
        let is_due = one.iter().any(|one| other.iter().any(|other| one + other == value.likes));
        (answer.exact && !is_due).then_some(OLD)
    }

    /// Lets the API read what it needs for an answer.
    fn hold(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let Table { counter, standing, .. } = state.table;
        let held = if !self.obeys(Rule::StandingFirst) {
            Held::Counter(counter)
        } else if !self.obeys(Rule::AsOfStays) {
            Held::Answer(self.serve(standing, counter))
        } else {
            Held::Standing(standing)
        };
        if state.held != Some(held) {
            next.push((Step("holds", 0), State { held: Some(held), ..state.clone() }));
        }
    }

    /// Returns what would be wrong with an answer that the API gives now.
    fn judge_held(&self, state: &State) -> Option<&'static str> {
        let Table { counter, standing, .. } = state.table;
        match state.held? {
            Held::Standing(held) => self.judge(state, &self.standings.get(held), &self.value(counter)),
            Held::Counter(held) => self.judge(state, &self.standings.get(standing), &self.value(held)),
            Held::Answer(answer) => {
                let as_of = self.standings.get(standing).standing.as_of.unwrap_or_default();
                (answer.exact && !state.was(&Served { as_of, ..answer })).then_some(LIE)
            }
        }
    }
}

impl State {
    /// Returns whether the shards had these values at some time since `as_of`.
    fn was(&self, answer: &Served) -> bool {
        let since = usize::try_from(answer.as_of.0).expect("a few ticks");
        let [(a, b), (c, d)] = self.ranges[since].map(|(least, greatest)| (i64::from(least), i64::from(greatest)));
        (a + c..=b + d).contains(&answer.likes)
    }
}

/// Returns the shard of the counter that a stream shard feeds.
fn part(shard: usize) -> Shard {
    Shard::new(u16::try_from(shard).expect("one of two")).expect("a shard")
}

const INITIAL: [i8; 2] = [5, 0];

impl Model for World {
    type State = State;

    fn initial(&self) -> State {
        let log = vec![Message { read: UnixMillis(0), body: opened([0, 1].map(stream_shard)) }];
        let mut filter = Filter::default();
        filter.take(place(0), UnixMillis(0), &log[0], |_, _| {});
        let parts = [(part(0), INITIAL[0].into()), (part(1), INITIAL[1].into())].into();
        let counter = Counter { likes: INITIAL.map(i64::from).iter().sum(), parts, ..Counter::default() };
        let table = Table {
            counter: self.counters.number(counter),
            standing: self.standings.number(StandingAt { at: place(1), standing: filter.standing() }),
            place: 1,
            filter: self.filters.number(filter),
        };
        State {
            tick: 0,
            shards: INITIAL,
            ranges: vec![INITIAL.map(|value| (value, value))],
            acknowledged: [Vec::new(), Vec::new()],
            written: [Vec::new(), Vec::new()],
            safe: SafeTimes::default(),
            relayed: [0; 2],
            stated: [0; 2],
            losses: [Loss::None; 2],
            log: self.logs.number(log),
            table,
            folds: vec![Fold::new(table); self.folds],
            held: None,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.tick < self.ticks {
            let mut after = State { tick: state.tick + 1, ..state.clone() };
            after.ranges.push(state.shards.map(|value| (value, value)));
            next.push((Step("ticks", 0), after));
        }
        self.stream(state, next);
        self.audit(state, next);
        self.folds(state, next);
        self.hold(state, next);
        // Folds are interchangeable, so states that differ only by a swap are one.
        next.iter_mut().for_each(|(_, state)| state.folds.sort_unstable());
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        self.judge_held(state)
    }

    fn is_goal(&self, state: &State) -> bool {
        let right = |answer: Served| answer.exact && answer.likes == state.shards.map(i64::from).iter().sum::<i64>();
        let answered = matches!(state.held, Some(Held::Standing(at)) if right(self.serve(at, state.table.counter)));
        let repaired = |shard: &usize| matches!(state.losses[*shard], Loss::Announced { repaired: true, .. });
        answered && self.lossy.iter().all(repaired)
    }
}

const LIE: &str = "an answer is called exact that the rows never were";
const OLD: &str = "an answer is called exact without the correction of a loss that its standing knows";
