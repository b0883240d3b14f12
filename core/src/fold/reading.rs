//! Whether the log is still the one that the counters were written from.
//!
//! Kafka may lose the end of a partition by an unclean election, and go on behind what is left: other messages stand then
//! where the lost ones stood. The version of a counter that has lost messages in it would take the new ones for counted. So
//! a fold states up to where it has read, and which message is the last before that, before it writes a counter of that
//! version; a standing is stored with the same. A fold that begins reads on to the furthest place that any fold stated, and
//! writes and states nothing before it has found the same message there. What Kafka loses is always an end, so all before
//! that message is the same, too.

use std::collections::{BTreeSet, VecDeque};

use thiserror::Error;
use xxhash_rust::xxh64::xxh64;

use crate::cached::StandingAt;
use crate::changes::Place;
use crate::time::UnixMillis;

/// Tells a message from any other at its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u64);

/// Up to where the log was read, and the last message before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadTo {
    /// The place behind the message.
    pub at: Place,
    /// The message.
    pub last: Mark,
}

/// What folds state of a partition. A fold replaces it once it has compared what it says was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stated {
    /// What may be said of the counters, and where.
    pub standing: StandingAt,
    /// The last message before that place; `None` where none was read.
    pub last: Option<Mark>,
    /// Up to where a fold has read that writes counters: none has a later version.
    pub read: Option<ReadTo>,
    /// How often it was replaced.
    pub revision: u64,
}

/// The log has lost its end, and other messages stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("another message stands before {0} than was read there")]
pub struct Replaced(pub Place);

/// How many of the last messages a reader can compare.
const RECENT: usize = 4096;

/// What a reader knows of the messages before its place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// The last ones that were read.
    recent: VecDeque<ReadTo>,
    /// What was stated, while this reader has not found its message.
    ahead: BTreeSet<ReadTo>,
}

impl Stated {
    /// What it says that was read.
    pub fn readings(&self) -> impl Iterator<Item = ReadTo> + use<> {
        let last = self.last.map(|last| ReadTo { at: self.standing.at, last });
        self.read.into_iter().chain(last)
    }
}

impl Mark {
    /// The mark of a message: when it was appended, and all that it says.
    pub fn of(appended: UnixMillis, value: &[u8]) -> Self {
        Self(xxh64(value, appended.0))
    }

    /// A mark as it is stored.
    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    /// The number that is stored.
    pub fn stored(self) -> u64 {
        self.0
    }
}

impl Reading {
    /// Looks for a message behind a place of this reader. What stands before a position was compared before that was stored.
    pub(super) fn look_for(&mut self, place: Place, stated: ReadTo) {
        if stated.at >= place && stated.at.generation() == place.generation() {
            self.ahead.insert(stated);
        }
    }

    /// Takes into account what another fold has stated after this reader began.
    pub(super) fn heed(&mut self, place: Place, stated: ReadTo) -> Result<(), Replaced> {
        if stated.at > place || self.recent.is_empty() {
            self.look_for(place, stated);
            return Ok(());
        }
        // A fold that may state a place behind this one has read the last messages, too.
        let is_same = stated.at.generation() < place.generation() || self.recent.binary_search(&stated).is_ok();
        if is_same { Ok(()) } else { Err(Replaced(stated.at)) }
    }

    /// Compares the message at `at`, the next one or the one before the reader's place.
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

    /// Whether everything that was stated was found to be the same.
    pub(super) fn is_sure(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Up to where this reader has read, once it has read anything.
    pub(super) fn read_to(&self) -> Option<ReadTo> {
        self.recent.back().copied()
    }
}
