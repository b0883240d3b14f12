//! A model of counts over two Regions, A and B. A publishes one partition of its counters in a compacted topic, a
//! mirror copies the topic record by record, and B stores A's entries (counts) and answers from them.
//!
//! A's counters change place by place; a part of the stream is lost, announced and corrected. A fold writes the
//! counters, publishes what changed with its standing in one transaction, and stores its position. Another fold may
//! take over at any time from the stored position, while the first one goes on. The mirror may stop, and may repeat an
//! earlier stretch. A reader at B may be replaced at any time by one that begins at the stored position, and goes on,
//! too.
//!
//! The table of A's counters may be lost, and an empty one adopted, before the log has the announcement of that loss. A
//! fold publishes everything anew behind an announcement.
//!
//! Counters, messages, reader and answer are the production ones. An answer at B that is called exact with `as_of` = t
//! is between the least and the greatest value that A's counter had from t on. Once everything is published and read
//! again, B's entry equals A's counter and is exact.
//!
//! Compaction is no step: a reader may miss any record that is old enough and has a later one of its key. Each replica
//! of a partition is compacted by itself, so the next reader may still find the record.

mod log;
mod publisher;
mod reader;
mod tests;

use tally_core::cached::{StandingAt, Value};
use tally_core::changes::Standing;
use tally_core::ids::CounterKind;
use tally_core::regions::{Remote, RemotePosition, ToldMessage};
use tally_core::time::UnixMillis;

use crate::explore::{Model, Step};
use crate::intern::{Interned, Memo, Number};
use log::{Counted, Item};
use publisher::{Fold, Record};
use reader::Reader;

/// A rule that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A newer entry replaces an older one: a mutant keeps the older one.
    NewerWins,
    /// An older entry never replaces a newer one: a mutant writes what it has read.
    OlderRefused,
    /// An entry is served with the standing of its own partition.
    OwnStanding,
    /// A published entry carries the last loss before it.
    GapPublished,
    /// A published standing names the losses that are open.
    OpenPublished,
    /// What is published anew behind a loss carries its announcement.
    LossPublished,
    /// What a fold has written to an adopted table is published in doubt, and without a standing, until the standing knows
    /// of that loss.
    DoubtPublished,
    /// A reader that begins believes no standing that was published before.
    DoubtsWhatWasThere,
    /// A reader that finds itself far behind believes no standing that was published before.
    DoubtsAfterStandstill,
    /// The position is stored behind the entries.
    EntriesFirst,
    /// A fold that has lost its partition publishes nothing.
    Fenced,
    /// A standing is published behind the entries.
    StandingLast,
    /// A fold reads what it publishes after its take-over, consistently, so nothing is older than what was published
    /// before.
    NothingOlder,
    /// A fold also publishes changes that it found to be in the counter already.
    PublishesWhatIsIn,
    /// A fold stores its position once everything before it is published.
    PublishedFirst,
    /// Nothing younger than the topic's lag is compacted.
    Lag,
    /// The clocks of two Regions differ by less than 5 s.
    ClocksAgree,
}

/// How often something may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Left {
    take_overs: u8,
    repeats: u8,
    replacements: u8,
    lost_tables: u8,
}

/// The loss of A's table of counters: how many items the adopted one lacks, and the tick of its adoption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Adopted {
    lacks: u8,
    since: u8,
}

/// The bounds of a run. Time goes in ticks.
#[derive(Default)]
struct World {
    /// The number of ticks after the first. Within two ticks a topic compacts nothing.
    ticks: u8,
    /// What happens at A, in order.
    script: &'static [Item],
    /// The tick in which each item happens, if these are fixed.
    times: Option<&'static [u8]>,
    /// Whether B reads a copy of the topic or the topic itself.
    mirrored: bool,
    /// Whether a fold may stop between writing counters and publishing them.
    halts: bool,
    /// The tick in which B begins to read: the first one, 0, or the one that follows it.
    begins: u8,
    left: Left,
    removed: Option<Rule>,
    values: Interned<Value>,
    positions: Interned<RemotePosition>,
    remotes: Interned<Remote>,
    counted: Memo<(u8, u8), Counted>,
    messages: Memo<(Record, u8), ToldMessage>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tick: u8,
    /// The tick of each item of A's log.
    log: Vec<u8>,
    /// A's folds; the last one owns the partition.
    folds: Vec<Fold>,
    /// How many items are in A's counters, and how many are before the stored position of A's folds.
    reached: u8,
    stored: u8,
    /// The table that A's counters are in; the first one lacks nothing.
    adopted: Adopted,
    /// Whether entries were published in doubt last, which is stored: the next fold publishes everything anew, too.
    doubted: bool,
    /// The part of A's topic that the mirror may still copy or repeat, and how many of its records are copied.
    topic: Vec<Record>,
    copied: usize,
    /// The part of the topic that B still reads, and the offset of its first record.
    base: usize,
    mirror: Vec<Option<Record>>,
    /// B's entry of each counter, and its stored position.
    entries: [Number; 2],
    position: Number,
    /// B's readers; the last one owns the partition.
    readers: Vec<Reader>,
    left: Left,
}

impl State {
    /// Returns the state after a change.
    fn after(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut after = self.clone();
        change(&mut after);
        after
    }
}

impl World {
    fn new(ticks: u8, script: &'static [Item]) -> Self {
        Self { ticks, script, ..Self::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Returns the standing that B's API finds for A's partition.
    fn stated(&self, state: &State) -> Option<StandingAt> {
        if !self.obeys(Rule::OwnStanding) {
            // The standing of another partition, which has been read up to now.
            let standing = Standing { as_of: Some(time(state.tick)), ..Standing::default() };
            return Some(StandingAt { at: log::place(state.log.len()), standing });
        }
        self.positions.get(state.position).standing.clone()
    }

    /// Returns whether an answer about a counter is exact, and whether the counter had its value since `as_of`.
    fn judge(&self, state: &State, counter: usize) -> (bool, bool) {
        let Some(stated) = self.stated(state) else { return (false, true) };
        let answer = self.values.get(state.entries[counter]).serve(&stated.standing, CounterKind::Set);
        if !answer.exact {
            return (false, true);
        }
        let since = tick(answer.as_of);
        let before = state.log.iter().take_while(|tick| **tick < since).count();
        let values = (before..=state.log.len()).map(|items| self.truth(counter, items));
        let (least, greatest) = values.fold((i64::MAX, i64::MIN), |(a, b), value| (a.min(value), b.max(value)));
        (true, (least..=greatest).contains(&answer.likes))
    }

    /// Returns whether B has A's counters and calls them exact.
    fn is_even(&self, state: &State) -> bool {
        (0..2).all(|counter| {
            let likes = self.values.get(state.entries[counter]).likes;
            self.judge(state, counter).0 && likes == self.truth(counter, state.log.len())
        })
    }

    /// Returns whether B has A's counters and calls them exact, once everything has happened, is published and read
    /// again, and whatever may be compacted is.
    fn ends_well(&self, state: &State) -> bool {
        let mut state = state.clone();
        state.left = Left { take_overs: 1, replacements: 1, ..state.left };
        self.takes_over(&mut state);
        self.replaces(&mut state);
        for _ in 0..3 {
            state.tick += 1;
            state.log.push(state.tick);
            self.publishes_all(&mut state);
            self.copies_all(&mut state);
            self.reads_all(&mut state);
        }
        self.is_even(&state)
    }
}

/// A bit more than half the time for which a topic compacts nothing.
const TICK: u64 = 304_000;
/// The time of the first tick.
const BEGAN: u64 = 1_000_000_000;

fn time(tick: u8) -> UnixMillis {
    UnixMillis(BEGAN + u64::from(tick) * TICK)
}

/// The inverse of [`time`].
fn tick(time: UnixMillis) -> u8 {
    u8::try_from((time.0 - BEGAN) / TICK).expect("ticks are few")
}

const LIE: &str = "an answer is called exact that A's counter never was";
const ODD: &str = "all is read again, and an entry is not A's counter or not exact";

impl Model for World {
    type State = State;

    fn initial(&self) -> State {
        let start = reader::start();
        State {
            tick: 0,
            log: Vec::new(),
            folds: vec![Fold::default()],
            reached: 0,
            stored: 0,
            adopted: Adopted::default(),
            doubted: false,
            topic: Vec::new(),
            copied: 0,
            base: 0,
            mirror: Vec::new(),
            entries: [self.values.number(Value::default()); 2],
            position: self.positions.number(start.clone()),
            readers: vec![self.reader(start)],
            left: self.left,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.tick < self.ticks {
            let tick = (state.tick + 1).max(self.begins);
            next.push((Step("ticks", 0), State { tick, ..state.clone() }));
        }
        let is_time = self.times.is_none_or(|times| times.get(state.log.len()) == Some(&state.tick));
        if self.script.get(state.log.len()).is_some_and(|item| is_time && self.may_happen(state, *item)) {
            next.push((Step("happens", 0), state.after(|after| after.log.push(state.tick))));
        }
        self.adopt_table(state, next);
        self.publish(state, next);
        self.copy(state, next);
        self.read(state, next);
        next.iter_mut().for_each(|(_, state)| self.forget(state));
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        if (0..2).any(|counter| self.judge(state, counter) == (true, false)) {
            return Some(LIE);
        }
        let is_last = self.removed.is_none() && state.tick == self.ticks && state.log.len() == self.script.len();
        (is_last && !self.ends_well(state)).then_some(ODD)
    }

    fn is_goal(&self, state: &State) -> bool {
        state.log.len() == self.script.len() && self.is_even(state)
    }
}
