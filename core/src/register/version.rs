//! The version that a row carries: the place of its last event in Kafka, as a number. A write with a version that is
//! not greater is refused, so late and repeated writes change nothing.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use crate::topic::Offset;

/// The order of an event among all events of its row, in one number: the generation of the topic, whether the record
/// was routed (lies in the partition that its key hashes to), and its offset. Within a generation, a routed record is
/// above every one that is not. So offsets of two partitions are compared only where a key was sent to two wrong ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u64);

impl Version {
    const OFFSET_BITS: u32 = 48;
    /// The greatest generation: 15 bits are left.
    pub const MAX_GENERATION: u16 = (1 << 15) - 1;

    /// Returns the version of the record at `offset`.
    ///
    /// # Panics
    /// The generation is greater than [`Self::MAX_GENERATION`], or the offset has more than 48 bits.
    pub fn new(generation: u16, routed: bool, offset: Offset) -> Self {
        assert!(generation <= Self::MAX_GENERATION, "there is no generation {generation}");
        assert!(offset.0 >> Self::OFFSET_BITS == 0, "offset {offset} has more than 48 bits");
        let above = u64::from(generation) << 1 | u64::from(routed);
        Self(above << Self::OFFSET_BITS | offset.0)
    }

    /// Reads a version that a row stores.
    pub fn from_stored(stored: u64) -> Self {
        Self(stored)
    }

    /// Returns the number that a row stores.
    pub fn stored(self) -> u64 {
        self.0
    }

    pub fn generation(self) -> u16 {
        u16::try_from(self.0 >> (Self::OFFSET_BITS + 1)).expect("15 bits are left")
    }

    /// Returns whether the record lies in the partition that its key hashes to.
    pub fn is_routed(self) -> bool {
        self.0 >> Self::OFFSET_BITS & 1 == 1
    }

    pub fn offset(self) -> Offset {
        Offset(self.0 & ((1 << Self::OFFSET_BITS) - 1))
    }

    /// Returns whether an event of this version, which lost to the version `stands` in its row, lost because of its
    /// partition and not of its age.
    pub(super) fn is_misrouted_beside(self, stands: Self) -> bool {
        !self.is_routed() && stands.is_routed() && self.generation() == stands.generation()
    }
}

/// Writes the number that is stored.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Writes the parts, for people.
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
