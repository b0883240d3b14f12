//! The progress of one Kafka partition in the consumer: which writes are sent next, and up to which offset every
//! record is finished.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Change, Row, Version, Write};
use crate::Map;
use crate::topic::Offset;

/// How many records in a row the store may refuse before the consumer blames the store and stops.
const REFUSED: u32 = 16;

/// The store's answer to one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The row is as the write says.
    Stored,
    /// The row has this version, which is not smaller. It may be there by an earlier copy of the write.
    Older(Version),
    /// The row needs the other kind of statement; the flag is whether there is a row.
    Stands(bool),
    /// It was throttled, or its outcome is unknown.
    Again,
    /// The store never accepts it, whatever is in the row.
    Refused,
}

/// A statement to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub write: Arc<Write>,
    /// Whether there is a row, if an answer has shown it.
    pub stands: Option<bool>,
}

impl Attempt {
    /// Returns the first statement for a row whose state is unknown.
    pub fn first(write: Arc<Write>) -> Self {
        Self { write, stands: None }
    }

    /// Returns whether the statement replaces a row or puts a new one. Where that is unknown, a like puts and a
    /// removal replaces, as most of them do.
    pub fn replaces(&self) -> bool {
        self.stands.unwrap_or(self.write.change == Change::Remove)
    }
}

/// What follows from an [`Answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// The event is finished, and so are those of its row that gave way to it.
    Finished,
    /// The row waits for another statement, of this event or of a newer one.
    Again,
    /// The event is finished once its dead letter (`refused_by_store`) is acknowledged. The newest event that gave way
    /// to it is written after all.
    Refused,
    /// The event is finished once its dead letter (`misrouted`) is acknowledged, since the row has a routed event.
    Misrouted,
    /// The store has refused too many records in a row. The row waits; the caller decides whether and when to try
    /// again.
    Halt,
}

/// The state of one partition, from its claim until it is left.
///
/// A row has at most one statement under way, however many requests the partition has. Before each attempt an event
/// gives way to the newest known event of its row, so no retry of an older event runs beside a newer one. An event
/// that gave way is finished when the newer one is.
///
/// The versions of one row rise with the offsets, as whether a record is routed depends on its row and partition
/// alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The records by offset, beginning with the first that is not finished.
    records: VecDeque<Record>,
    /// The rows that have an unfinished event.
    lines: Map<Named, Line>,
    /// The rows for which a statement may be sent, each as some write of it.
    ready: VecDeque<Arc<Write>>,
    next: Offset,
    /// How many records were refused since the store accepted one.
    refused: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Record {
    offset: Offset,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// An event to write unless it gives way. `older` is the row's event before it, if that was unfinished when this
    /// one came.
    Open {
        write: Arc<Write>,
        older: Option<Offset>,
    },
    /// A dead letter or a sum's event, for which the caller calls [`Progress::finish`].
    Elsewhere,
    Finished,
}

/// The unfinished events of one row, each linked to the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    newest: Offset,
    under_way: Option<Offset>,
    /// Whether there is a row, if an answer has shown it.
    stands: Option<bool>,
}

/// A write that is compared and hashed by its row alone.
#[derive(Clone, Debug)]
struct Named(Arc<Write>);

impl Progress {
    /// How many statements a request takes.
    pub const STATEMENTS: usize = 25;

    /// Begins a partition that is read from `at` on.
    pub fn new(at: Offset) -> Self {
        Self { records: VecDeque::new(), lines: Map::default(), ready: VecDeque::new(), next: at, refused: 0 }
    }

    /// Goes on with the count of refusals of an earlier [`Progress`].
    #[must_use]
    pub fn behind_refusals(self, refused: u32) -> Self {
        Self { refused, ..self }
    }

    /// Returns how many records the store has refused since it accepted one.
    pub fn refusals(&self) -> u32 {
        self.refused
    }

    /// Takes in the event of the next record.
    ///
    /// # Panics
    /// The record comes before one that was taken in already.
    pub fn take(&mut self, write: Write) {
        let (offset, write) = (write.version.offset(), Arc::new(write));
        let older = if let Some(line) = self.lines.get_mut(&write.row) {
            Some(std::mem::replace(&mut line.newest, offset))
        } else {
            self.lines.insert(Named(Arc::clone(&write)), Line { newest: offset, under_way: None, stands: None });
            self.ready.push_back(Arc::clone(&write));
            None
        };
        self.push(offset, State::Open { write, older });
    }

    /// Takes in the next record, whose dead letter or sum [finishes](Self::finish) it.
    ///
    /// # Panics
    /// The record comes before one that was taken in already.
    pub fn take_elsewhere(&mut self, offset: Offset) {
        self.push(offset, State::Elsewhere);
    }

    /// Notes that no record before `offset` is still to come.
    pub fn reach(&mut self, offset: Offset) {
        self.next = self.next.max(offset);
    }

    /// Finishes a record: its dead letter is acknowledged, or its cell has it.
    ///
    /// # Panics
    /// The record at `offset` was not taken in with [`Self::take_elsewhere`] or put aside, or is finished.
    pub fn finish(&mut self, offset: Offset) {
        let state = self.state(offset).filter(|state| **state == State::Elsewhere);
        *state.expect("a record that is finished elsewhere was taken in") = State::Finished;
        self.advance();
    }

    /// Returns the offset that may be committed: every record before it is finished.
    pub fn committable(&self) -> Offset {
        self.records.front().map_or(self.next, |record| record.offset)
    }

    /// Returns the least offset that the next record may have.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Returns how many records are kept: all from the first unfinished one on.
    pub fn kept(&self) -> usize {
        self.records.len()
    }

    /// Returns how many statements may be sent now.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the statements of the next request, each of another row: at most `most` and at most
    /// [`Self::STATEMENTS`]. They are under way until they are [settled](Self::settle).
    pub fn cut(&mut self, most: usize) -> Vec<Attempt> {
        let count = most.min(Self::STATEMENTS).min(self.ready.len());
        (0..count).map(|_| self.send_next()).collect()
    }

    fn send_next(&mut self) -> Attempt {
        let named = self.ready.pop_front().expect("a row is ready");
        let line = self.lines.get_mut(&named.row).expect("a row that is ready has a line");
        let (newest, stands) = (line.newest, line.stands);
        line.under_way = Some(newest);
        let is_newest = newest == named.version.offset();
        let write = if is_newest { named } else { self.open(newest).expect("the newest is open").0 };
        Attempt { write, stands }
    }

    /// Takes the answer to the statement of the event at `offset`, and returns what follows. The row is ready again at
    /// once, so the caller waits before it passes [`Answer::Again`].
    ///
    /// # Panics
    /// No statement of that event is under way.
    pub fn settle(&mut self, offset: Offset, answer: Answer) -> Settled {
        let (write, older) = self.open(offset).expect("an event that is under way is open");
        let line = self.lines.get_mut(&write.row).expect("an event that is under way is in its line");
        assert!(line.under_way.take() == Some(offset), "{offset} is not under way");
        line.stands = match answer {
            Answer::Stored | Answer::Older(_) => Some(true),
            Answer::Stands(stands) => Some(stands),
            Answer::Again | Answer::Refused => None,
        };
        let settled = match answer {
            Answer::Again | Answer::Stands(_) => Settled::Again,
            Answer::Refused if self.refused >= REFUSED => Settled::Halt,
            Answer::Refused => Settled::Refused,
            Answer::Older(stands) if write.version.is_misrouted_beside(stands) => Settled::Misrouted,
            Answer::Stored | Answer::Older(_) => Settled::Finished,
        };
        match settled {
            Settled::Again | Settled::Halt => {}
            Settled::Refused => {
                self.refused += 1;
                self.unlink(&write, older);
                self.put_aside(offset);
            }
            Settled::Finished | Settled::Misrouted => {
                self.refused = 0;
                self.finish_line(&write.row, offset);
                if settled == Settled::Misrouted {
                    self.put_aside(offset);
                }
                self.advance();
            }
        }
        if self.lines.contains_key(&write.row) {
            self.ready.push_front(write);
        }
        settled
    }

    /// Finishes the events of a row up to the one at `offset`.
    fn finish_line(&mut self, row: &Row, offset: Offset) {
        if self.lines.get(row).is_some_and(|line| line.newest == offset) {
            self.lines.remove(row);
        }
        let mut at = Some(offset);
        while let Some(state) = at.and_then(|at| self.state(at)) {
            let State::Open { older, .. } = *state else { break };
            (at, *state) = (older, State::Finished);
        }
    }

    /// Takes an event out of its line: the one after it is linked to the one before it.
    fn unlink(&mut self, write: &Write, older: Option<Offset>) {
        let offset = write.version.offset();
        let older = older.filter(|older| self.open(*older).is_some());
        let line = self.lines.get_mut(&write.row).expect("the line of an open event");
        if line.newest == offset {
            if let Some(older) = older {
                line.newest = older;
            } else {
                self.lines.remove(&write.row);
            }
            return;
        }
        let mut at = line.newest;
        while let Some(State::Open { older: link, .. }) = self.state(at) {
            let follows = link.expect("a line leads to each of its events");
            if follows == offset {
                *link = older;
                break;
            }
            at = follows;
        }
    }

    /// Lets an event wait for its dead letter.
    fn put_aside(&mut self, offset: Offset) {
        *self.state(offset).expect("an event that was under way is kept") = State::Elsewhere;
    }

    fn push(&mut self, offset: Offset, state: State) {
        assert!(offset >= self.next, "record {offset} came after those up to {}", self.next);
        self.next = offset.next();
        self.records.push_back(Record { offset, state });
    }

    /// Forgets finished records at the front.
    fn advance(&mut self) {
        while self.records.front().is_some_and(|record| record.state == State::Finished) {
            self.records.pop_front();
        }
    }

    /// Returns the event at `offset` and the one before it in its line. Returns `None` where there is no unfinished
    /// event.
    fn open(&self, offset: Offset) -> Option<(Arc<Write>, Option<Offset>)> {
        match &self.records[self.index(offset)?].state {
            State::Open { write, older } => Some((Arc::clone(write), *older)),
            State::Elsewhere | State::Finished => None,
        }
    }

    fn state(&mut self, offset: Offset) -> Option<&mut State> {
        let index = self.index(offset)?;
        Some(&mut self.records[index].state)
    }

    /// Returns the index of the record at `offset`, if it is kept. Without gaps between offsets it is the distance
    /// from the first; gaps, which are rare, can only make it smaller.
    fn index(&self, offset: Offset) -> Option<usize> {
        let first = self.records.front()?.offset;
        let index = usize::try_from(offset.0.checked_sub(first.0)?).ok()?;
        if self.records.get(index).is_some_and(|record| record.offset == offset) {
            return Some(index);
        }
        self.records.binary_search_by_key(&offset, |record| record.offset).ok()
    }
}

/// Leaves the lines out, which for the most part follow from the records.
impl Hash for Progress {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.records, &self.ready, self.next, self.refused).hash(hasher);
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.row == other.0.row
    }
}

impl Eq for Named {}

impl Hash for Named {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.row.hash(hasher);
    }
}

impl Borrow<Row> for Named {
    fn borrow(&self) -> &Row {
        &self.0.row
    }
}
