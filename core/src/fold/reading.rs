//! How a fold finds out whether the log of changes is still the one that the counters were written from.
//!
//! Kafka may lose the end of a partition in an unclean election, and then append other messages at the offsets of the
//! lost ones. A counter with lost messages in it has a version that claims the new ones, too. So before a fold writes
//! a counter, it states how far it has read and the mark of the last message before that; a standing is stored with
//! the same. A fold that begins reads up to the furthest place that any fold has stated, and writes and states nothing
//! before it has found the same message there. Kafka only loses ends, so everything before that message is the same,
//! too.

use std::collections::{BTreeSet, VecDeque};

use thiserror::Error;
use xxhash_rust::xxh64::xxh64;

use crate::cached::StandingAt;
use crate::changes::Place;
use crate::time::UnixMillis;

/// A hash of a message that tells it from any other message at its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u64);

/// How far the log was read: a place, and the mark of the last message before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTo {
    /// The place right behind the message.
    pub at: Place,
    pub last: Mark,
}

/// What the folds of a partition have stated, one item of the store. A fold replaces it only after it has compared the
/// messages named in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stated {
    /// The standing of the counters, and its place.
    pub standing: StandingAt,
    /// The mark of the last message before that place; `None` where none was read.
    pub last: Option<Mark>,
    /// How far a fold that writes counters has read: no counter has a later version.
    pub read: Option<ReadTo>,
    /// How often the item was replaced.
    pub revision: u64,
}

/// The log has lost its end, and has another message at a place that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("another message stands before {0} than was read there")]
pub struct Replaced(pub Place);

/// How many of the last messages a reader can compare.
const RECENT: usize = 4096;

/// What a reader knows of the messages before its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// The last messages that were read.
    recent: VecDeque<ReadTo>,
    /// The statements whose messages this reader has not come to yet.
    ahead: BTreeSet<ReadTo>,
}

impl Stated {
    /// Returns the places and marks that it states.
    pub fn readings(&self) -> impl Iterator<Item = ReadTo> + use<> {
        let last = self.last.map(|last| ReadTo { at: self.standing.at, last });
        self.read.into_iter().chain(last)
    }
}

impl Mark {
    /// Returns the mark of a message: a hash of its time and its value.
    pub fn of(appended: UnixMillis, value: &[u8]) -> Self {
        Self(xxh64(value, appended.0))
    }

    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    pub fn stored(self) -> u64 {
        self.0
    }
}

impl Reading {
    /// Requires that this reader finds the message of `stated`, if it comes at or behind `place`. Messages before a
    /// stored position were compared before the position was stored.
    pub(super) fn look_for(&mut self, place: Place, stated: ReadTo) {
        if stated.at >= place && stated.at.generation() == place.generation() {
            self.ahead.insert(stated);
        }
    }

    /// Takes what another fold stated after this reader began: it compares the message, or looks for it where it lies
    /// ahead.
    pub(super) fn heed(&mut self, place: Place, stated: ReadTo) -> Result<(), Replaced> {
        if stated.at > place || self.recent.is_empty() {
            self.look_for(place, stated);
            return Ok(());
        }
        // A fold that still states something is not far behind, so `recent` has its place unless another message is
        // there.
        let is_same = stated.at.generation() < place.generation() || self.recent.binary_search(&stated).is_ok();
        if is_same { Ok(()) } else { Err(Replaced(stated.at)) }
    }

    /// Compares the message at `at`, the next one or the one right before the reader's place, with the statements.
    pub(super) fn recognise(&mut self, at: Place, mark: Mark) -> Result<(), Replaced> {
        let read = ReadTo { at: at.next(), last: mark };
        if self.recent.back().is_some_and(|last| last.at >= read.at) {
            return Ok(());
        }
        while let Some(ahead) = self.ahead.first().filter(|ahead| ahead.at <= read.at) {
            if *ahead != read {
                return Err(Replaced(ahead.at));
            }
            self.ahead.pop_first();
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(read);
        Ok(())
    }

    /// Returns whether all stated messages were found.
    pub(super) fn is_sure(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Returns how far this reader has read, once it has read anything.
    pub(super) fn read_to(&self) -> Option<ReadTo> {
        self.recent.back().copied()
    }
}
