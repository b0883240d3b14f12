//! The log of changes, the Kafka topic `changes`: every change of a row that changes a count. The relay writes it; the
//! fold, the recount and trends read it.
//!
//! All changes of one subject (a post or hashtag) are in one partition, so each counter has one order. A [`Message`]
//! carries [sections](Section): each covers an interval of one stream shard and has those [entries](Entry) of it that
//! belong to this partition. Announcements, corrections and ladders are messages of the same log.
//!
//! A message may be in the log twice, and a relay that lost its stream shard may go on sending. So every reader runs
//! the same [`Filter`], whose result depends on the log alone: it accepts each entry once, notices missing messages,
//! and knows up to which time all changes are in the log.

mod entry;
mod filter;
mod message;
#[cfg(test)]
pub(crate) mod tests;

pub use entry::{Effect, Entry, Nonce, Side};
pub use filter::{Filter, Item, Standing, Taken};
pub use message::{
    Amend, BadMessage, Body, Closed, Correction, DeploymentId, LossNumber, Lost, Message, Opened, Opening, Section,
};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::RowKey;
use crate::topic::Offset;

/// A position in one partition of the log: the generation of the topic in the high bits, the offset in the low 48.
/// Places of a topic that was created anew are greater than all earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(u64);

impl Place {
    const OFFSET_BITS: u32 = 48;

    /// Returns the place of `offset` in a generation of the topic.
    pub fn new(generation: u16, offset: Offset) -> Self {
        Self(u64::from(generation) << Self::OFFSET_BITS | offset.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// Reads a place that a counter stores.
    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    /// Returns the number that a counter stores.
    pub fn stored(self) -> u64 {
        self.0
    }

    /// Returns the offset in its generation.
    pub fn offset(self) -> Offset {
        Offset(self.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// Returns the generation of the topic.
    pub fn generation(self) -> u16 {
        u16::try_from(self.0 >> Self::OFFSET_BITS).expect("16 bits are left")
    }

    /// Returns the place right behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the partition that holds everything about the subject of `key`.
pub fn partition_of(key: &RowKey, partitions: u32) -> u32 {
    crate::event::partition_of(key.counter.post.as_bytes(), partitions)
}
