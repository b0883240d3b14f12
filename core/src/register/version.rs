//! The version of an event.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::topic::Offset;

/// Where an event stands among all those of its row: the generation of the topic, whether the record was routed, and its offset,
/// in one number. The offsets of two partitions are never compared, but for those of two wrong partitioners: in each
/// generation, a record in the partition that its key hashes to stands above every one that is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    const OFFSET_BITS: u32 = 48;
    /// The greatest generation: 15 bits are left.
    pub const MAX_GENERATION: u16 = (1 << 15) - 1;

    /// The version of the record at `offset`; `routed` says whether it lies in the partition that its key hashes to.
    ///
    /// # Panics
    /// The generation is greater than [`Self::MAX_GENERATION`], or the offset has more than 48 bits.
    pub fn new(generation: u16, routed: bool, offset: Offset) -> Self {
        assert!(generation <= Self::MAX_GENERATION, "there is no generation {generation}");
        assert!(offset.0 >> Self::OFFSET_BITS == 0, "offset {offset} has more than 48 bits");
        let above = u64::from(generation) << 1 | u64::from(routed);
        Self(above << Self::OFFSET_BITS | offset.0)
    }

    /// A version as a row stores it.
    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    /// The number that a row stores.
    pub fn stored(self) -> u64 {
        self.0
    }

    /// The generation of the topic.
    pub fn generation(self) -> u16 {
        u16::try_from(self.0 >> (Self::OFFSET_BITS + 1)).expect("15 bits are left")
    }

    /// Whether the record lies in the partition that its key hashes to.
    pub fn is_routed(self) -> bool {
        self.0 >> Self::OFFSET_BITS & 1 == 1
    }

    /// The record's offset.
    pub fn offset(self) -> Offset {
        Offset(self.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// Whether an event of this version, refused because `stands` is in the row, was refused for its partition and not for its
    /// age.
    pub(super) fn is_misrouted_beside(self, stands: Self) -> bool {
        !self.is_routed() && stands.is_routed() && self.generation() == stands.generation()
    }
}

/// The number that is stored.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// For people.
impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routed = if self.is_routed() { "" } else { " misrouted" };
        write!(f, "{}:{}{routed}", self.generation(), self.offset())
    }
}

/// Reads the number that is stored.
impl FromStr for Version {
    type Err = ParseIntError;

    fn from_str(digits: &str) -> Result<Self, ParseIntError> {
        digits.parse().map(Self)
    }
}
