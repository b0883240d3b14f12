//! Decides, without I/O, how lists of what is trending are made from one partition of the log `changes`: where reading
//! begins, when a moment has come, and what is published. A *moment* is a whole second; a list is always of one moment.
//! `worker.rs` keeps this state and does its I/O.
//!
//! 1. **Look.** It asks for the ends of the log, and for the position that the fold of the counters has stored.
//! 2. **Replay.** It reads what the windows need from the log, beginning two hours before them. It publishes nothing
//!    before the end that the log had at that time, so a start does not publish a whole day second by second.
//! 3. **Publish.** It publishes the moments in order, one at a time: the boards that changed, which are lists of one
//!    counter, region and window, and then a tick, which completes them. The log itself tells which moment has come:
//!    every second it states up to when it is complete.
//!
//! After a fault, reading resumes at its position if that is still in the log; otherwise everything is read again.

mod contract;
mod reading;

use std::collections::BTreeMap;

use tally_core::changes::BadMessage;
use tally_core::ports::log::Records;
use tally_core::topic::{Offset, TopicId};

use reading::Reading;

pub use contract::{Begun, Looked, Note, Publication, Setup};

use crate::window::{first_moment, next_moment};
use crate::{Claim, Evidence, Fold, List, Place, Tick, Written, board_key, certify, mark};

/// How often, in seconds, every board is written again, for readers that have lost boards of an earlier writer.
const WHOLE: u64 = 300;

/// The state of one partition.
#[derive(Debug)]
pub struct Partition {
    setup: Setup,
    /// Whether it expects records.
    reads: bool,
    reading: Reading,
    fold: Fold,
    /// Whether this fold has published a moment.
    is_told: bool,
    published: u64,
    is_publishing: bool,
    /// The boards as they were last written.
    sent: BTreeMap<(Place, usize), Written>,
    /// The moment at which all boards were last written.
    whole: Option<u64>,
    /// How many forgotten keys were reported.
    shed: u64,
    notes: Vec<Note>,
}

impl Partition {
    /// Creates the state of a newly assigned partition.
    pub fn new(setup: Setup) -> Self {
        let fold = setup.fold(0);
        Self {
            setup,
            reads: false,
            reading: Reading::default(),
            fold,
            is_told: false,
            published: 0,
            is_publishing: false,
            sent: BTreeMap::new(),
            whole: None,
            shed: 0,
            notes: Vec::new(),
        }
    }

    /// Takes in where reading begins. The log was opened there.
    pub fn begin(&mut self, begun: Begun) {
        self.reads = true;
        let Some((moment, reading)) = begun.anew else { return };
        if self.is_told {
            self.notes.push(Note::Anew);
        }
        self.fold = self.setup.fold(moment);
        (self.reading, self.is_told, self.whole, self.shed) = (reading, false, None, 0);
    }

    /// Reads no further until it [begins](Self::begin) again: the position cannot be read, or may belong to another log.
    pub fn pause(&mut self) {
        self.reads = false;
    }

    /// Takes in that every message of the last publication is acknowledged.
    pub fn acknowledged(&mut self) {
        self.is_publishing = false;
    }

    /// Returns what metrics and logs should record since the last call.
    pub fn notes(&mut self) -> Vec<Note> {
        let before = std::mem::replace(&mut self.shed, self.fold.shed_keys());
        if self.shed > before {
            self.notes.push(Note::Shed(self.shed - before));
        }
        std::mem::take(&mut self.notes)
    }

    /// Changes the limit of [keys](Fold::keys). Keys beyond it are forgotten.
    pub fn allow(&mut self, keys: usize) {
        if keys != self.setup.rules.keys {
            self.setup.rules.keys = keys;
            self.fold.allow(keys);
        }
    }

    /// Returns the number of [keys](Fold::keys).
    pub fn keys(&self) -> usize {
        self.fold.keys()
    }

    /// Returns whether it expects records.
    pub fn reads(&self) -> bool {
        self.reads
    }

    /// Returns the latest moment that was published, or is being published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Returns the offset of the next record to read.
    pub fn position(&self) -> Offset {
        self.reading.position()
    }

    /// Returns the topic and offset of the next record; `None` before anything was read.
    pub fn here(&self) -> Option<(TopicId, Offset)> {
        Some((self.reading.topic()?.clone(), self.position()))
    }

    /// Reads the next records.
    ///
    /// # Errors
    /// One cannot be read. The partition stops there until an operator acts.
    pub fn read(&mut self, records: &Records) -> Result<(), BadMessage> {
        for record in records.iter() {
            if record.offset < self.reading.position() {
                continue;
            }
            let late = self.fold.late();
            let read = self.reading.take(&record, &self.setup.deployment, |entry| self.fold.take(entry));
            self.notes.extend(read.inspect_err(|_| self.reads = false)?);
            if self.fold.late() != late {
                self.notes.push(Note::Late);
            }
        }
        // Before the first moment is published, no change can be late, so the fold adds changes at once.
        if !self.is_told
            && let Some(moment) = self.reading.as_of().and_then(|as_of| first_moment(0, as_of))
        {
            self.fold.advance(moment);
        }
        Ok(())
    }

    /// Returns what to publish of the next moment, if that has come and the previous one is acknowledged. The messages
    /// may be written twice.
    pub fn publication(&mut self) -> Option<Publication> {
        if self.is_publishing || !self.reads || !self.reading.has_caught_up() {
            return None;
        }
        let as_of = self.reading.as_of()?;
        let moment = if self.is_told {
            next_moment(self.published, as_of)
        } else {
            first_moment(self.published, as_of).map(|moment| moment.max(self.fold.moment()))
        };
        let moment = moment?;
        self.fold.advance(moment);
        self.fold.tell();
        (self.published, self.is_publishing, self.is_told) = (moment, true, true);
        Some(self.publish(moment))
    }

    fn publish(&mut self, moment: u64) -> Publication {
        let is_whole = self.whole.is_none_or(|whole| moment - whole >= WHOLE);
        let mut touched = self.fold.touched();
        if is_whole {
            self.whole = Some(moment);
            let windows = 0..self.setup.rules.windows.len();
            let each = |place: Place| windows.clone().map(|index| (place.clone(), index)).collect::<Vec<_>>();
            touched = self.fold.places().flat_map(each).chain(self.sent.keys().cloned()).collect();
            touched.sort_unstable();
            touched.dedup();
        }
        let (mut boards, mut gone) = (Vec::new(), Vec::new());
        for (place, index) in touched {
            let list = self.fold.list(&place, index);
            let window = self.setup.rules.windows[index];
            let key = (place, index);
            let before = self.sent.get(&key);
            let was_listed = before.is_some_and(|before| !before.items.is_empty());
            if list.items.is_empty() && !was_listed {
                if is_whole && self.sent.remove(&key).is_some() {
                    gone.push(board_key(self.setup.partition, &key.0, window));
                }
                continue;
            }
            let is_same = |before: &Written| before.items == list.items && before.complete == list.complete;
            if is_whole || !before.is_some_and(is_same) {
                let (writer, partition) = (self.setup.writer.clone(), self.setup.partition);
                let (place, List { items, complete, .. }) = (key.0.clone(), list);
                let board = Written { writer, partition, moment, place, window, items, complete };
                boards.push(board.clone());
                self.sent.insert(key, board);
            }
        }
        Publication { boards, gone, tick: self.tick(moment) }
    }

    fn tick(&self, moment: u64) -> Tick {
        let windows = &self.setup.rules.windows;
        let listed = self.sent.values().filter(|sent| !sent.items.is_empty());
        let marks = listed.map(|sent| mark(&sent.place, sent.window, sent.moment));
        Tick {
            writer: self.setup.writer.clone(),
            partition: self.setup.partition,
            of: self.setup.of,
            moment,
            marks: marks.fold(0, u64::wrapping_add),
            folded: self.fold.has_folded_regions(),
            claims: (0..windows.len()).map(|index| (windows[index], self.claim(index, moment))).collect(),
        }
    }

    /// Returns the claim about the lists of the window at `index` at `moment`.
    fn claim(&self, index: usize, moment: u64) -> Claim {
        let (late, shed) = (self.fold.late(), self.fold.bound(index));
        certify(&Evidence { late, shed, ..self.reading.evidence(self.setup.rules.windows[index].from(moment)) })
    }
}
