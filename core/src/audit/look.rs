//! One look at some row keys by themselves, as a machine without I/O: their rows between two readings of their counters.
//!
//! A counter that stands still between the readings is compared with the rows as they were read. One that moved is compared
//! with the rows where it stands: those read, with what the [`Trail`](super::Trail) says in place of them. In both cases
//! the second reading waits until every stream shard is past the reading of the rows.

use std::time::Duration;

use super::follow_up::{FollowUpEffect, FollowUpInput};
use super::{Doubt, Touched, Wrong};
use crate::counter::Counter;
use crate::ids::RowKey;
use crate::time::{Now, UnixMillis};
use crate::window::{Roster, exact_weight};

/// The rows of one row key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowsRead {
    /// How many there are.
    pub rows: u64,
    /// What they weigh together.
    pub weight: i128,
    /// The rows themselves, sealed; `None` where there is no room for them, or where one is not readable.
    pub roster: Option<Roster>,
}

/// What a look has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) proved: u64,
    pub(super) doubts: Vec<(RowKey, Doubt)>,
}

/// One look under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Look {
    guard: Duration,
    keys: Vec<RowKey>,
    /// The counters' versions before the rows were read; that of an item that is not there is 0.
    versions: Vec<u64>,
    rows: Vec<RowsRead>,
    counters: Vec<Seen>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Trail,
    Versions,
    Rows,
    Applied { past: UnixMillis },
    Counters,
    Touched,
}

/// A counter after its rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Seen {
    Unreadable,
    Counter(Option<Counter>),
}

impl Look {
    /// A look at `keys`, of which there are some. `guard` is how far two records of a row key may be out of order.
    pub(super) fn begin(keys: Vec<RowKey>, guard: Duration, effects: &mut Vec<FollowUpEffect>) -> Self {
        effects.push(FollowUpEffect::BeginTrail);
        let (versions, rows, counters) = (Vec::new(), Vec::new(), Vec::new());
        Self { guard, keys, versions, rows, counters, stage: Stage::Trail }
    }

    /// Takes an input; what the look has come to, once it is over. `now.wall` is by the clock that is furthest ahead, ours
    /// or a change-streamer's.
    pub(super) fn step(&mut self, now: Now, input: FollowUpInput, effects: &mut Vec<FollowUpEffect>) -> Option<Looked> {
        match (self.stage, input) {
            (Stage::Trail, FollowUpInput::TrailBegun) => {
                self.stage = Stage::Versions;
                effects.push(self.read_counters());
            }
            (Stage::Versions, FollowUpInput::Counter(counter)) => {
                // 0, also of a counter that cannot be read, only ever proves one that is still absent.
                self.versions.push(counter.ok().flatten().map_or(0, |counter| counter.version));
                if self.versions.len() == self.keys.len() {
                    self.stage = Stage::Rows;
                    effects.push(FollowUpEffect::CountRows(self.keys.clone()));
                }
            }
            (Stage::Rows, FollowUpInput::Rows(rows)) if rows.len() == self.keys.len() => {
                self.rows = rows;
                let past = now.wall.plus(self.guard);
                self.stage = Stage::Applied { past };
                effects.push(FollowUpEffect::AwaitApplied(past));
            }
            (Stage::Applied { past }, FollowUpInput::Applied(Some(as_of))) if as_of > past => {
                self.stage = Stage::Counters;
                effects.push(self.read_counters());
            }
            // Where no stream shard is open the next ones have not been met yet, so nothing is proved.
            (Stage::Applied { past }, FollowUpInput::Applied(_)) => effects.push(FollowUpEffect::AwaitApplied(past)),
            (Stage::Counters, FollowUpInput::Counter(counter)) => {
                self.counters.push(counter.map_or(Seen::Unreadable, Seen::Counter));
                if self.counters.len() == self.keys.len() {
                    return self.ask(effects);
                }
            }
            (Stage::Touched, FollowUpInput::Touched(touched)) => return Some(self.compare(touched)),
            _ => {}
        }
        None
    }

    pub(super) fn holds_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    fn read_counters(&self) -> FollowUpEffect {
        FollowUpEffect::ReadCounters(self.keys.iter().map(|key| key.counter.clone()).collect())
    }

    /// Asks what the records in the counters that moved say, if there are any.
    fn ask(&mut self, effects: &mut Vec<FollowUpEffect>) -> Option<Looked> {
        let moved: Vec<_> = (0..self.keys.len()).filter_map(|at| self.moved(at)).collect();
        let marks: Vec<_> =
            moved.iter().map(|(at, counter)| (self.keys[*at].clone(), counter.watermarks.clone())).collect();
        if marks.is_empty() {
            return Some(self.compare(Vec::new()));
        }
        self.stage = Stage::Touched;
        effects.push(FollowUpEffect::ReadTrail(marks));
        None
    }

    /// Row key number `at` and its counter, where that moved and the rows are held.
    fn moved(&self, at: usize) -> Option<(usize, &Counter)> {
        let Seen::Counter(Some(counter)) = &self.counters[at] else { return None };
        (counter.version != self.versions[at] && self.rows[at].roster.is_some()).then_some((at, counter))
    }

    /// Holds the rows against the counters; `touched` is of those asked for, in order.
    fn compare(&mut self, touched: Vec<Option<Touched>>) -> Looked {
        let (mut touched, mut looked) = (touched.into_iter(), Looked { proved: 0, doubts: Vec::new() });
        for at in 0..self.keys.len() {
            let said = self.moved(at).and_then(|_| touched.next()).flatten();
            match self.doubt(at, said) {
                Some(doubt) => looked.doubts.push((self.keys[at].clone(), doubt)),
                None => looked.proved += 1,
            }
        }
        looked
    }

    fn doubt(&self, at: usize, touched: Option<Touched>) -> Option<Doubt> {
        let (key, read) = (&self.keys[at], &self.rows[at]);
        let Seen::Counter(counter) = &self.counters[at] else { return Some(Doubt::Unreadable) };
        let counter = counter.as_ref();
        let is_still = counter.map_or(0, |counter| counter.version) == self.versions[at];
        let exact = match (&read.roster, touched) {
            _ if is_still => read.weight,
            (Some(roster), Some(touched)) => exact_weight(roster, &touched),
            _ => return Some(Doubt::seeming(key, read.rows, read.weight, counter)),
        };
        Wrong::with(key, exact, counter).map(Doubt::Wrong)
    }
}
