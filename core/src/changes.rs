//! The log `changes`: what happened to every count, in one order for each counter.
//!
//! A relay copies each stream of the likes table into a Kafka topic of a fixed number of partitions, by subject. A
//! [`Message`] carries [sections](Section): an interval of one stream shard, with every [`Entry`] in it that belongs to this
//! partition. Announcements, corrections and ladders are messages of the same log.
//!
//! A message may be there twice, and a relay that lost its stream shard may go on sending. Every reader runs the same
//! [`Filter`], a function of the log alone: it accepts each entry once, finds holes in what it reads, and knows up to when
//! all changes are in the log.

mod entry;
mod filter;
mod message;
#[cfg(test)]
mod tests;

pub use entry::{Effect, Entry, Nonce, Side};
pub use filter::{Filter, Item, Standing, Taken};
pub use message::{
    Amend, BadMessage, Body, Closed, Correction, DeploymentId, LossNumber, Lost, Message, Opened, Opening, Section,
};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::RowKey;
use crate::topic::Offset;

/// A place in one partition of the log: the generation of the topic, then the offset. Places of a topic that was created anew
/// are behind all earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(u64);

impl Place {
    const OFFSET_BITS: u32 = 48;

    /// The place of `offset` in a generation of the topic.
    pub fn new(generation: u16, offset: Offset) -> Self {
        Self(u64::from(generation) << Self::OFFSET_BITS | offset.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// A place as a counter stores it.
    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    /// The number that a counter stores.
    pub fn stored(self) -> u64 {
        self.0
    }

    /// The offset in its generation.
    pub fn offset(self) -> Offset {
        Offset(self.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// The generation of the topic.
    pub fn generation(self) -> u16 {
        u16::try_from(self.0 >> Self::OFFSET_BITS).expect("16 bits are left")
    }

    /// The place right behind this one.
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

/// The partition that everything about one subject is in.
pub fn partition_of(key: &RowKey, partitions: u32) -> u32 {
    crate::event::partition_of(key.counter.post.as_bytes(), partitions)
}
