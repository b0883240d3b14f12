//! Events, as producers send them: this is the only decoder, from a record to an [`Event`] or a [`Rejection`].
//!
//! An event's action selects the definition of its counter, and the definition names the fields that the event needs.
//! The decoder never panics and never guesses: it rejects what it does not accept, for a reason from a closed list.
//! The module also [encodes](encode()) events and [finds](partition_of) the partition of a key.

mod decode;
mod encode;
mod rejection;
mod routing;

use std::borrow::Cow;

pub use decode::{decode, decode_value};
pub use encode::{Said, encode};
pub use rejection::{Field, Rejection};
pub(crate) use routing::murmur2;
pub use routing::partition_of;

use crate::ids::{CounterName, Region};
use crate::time::UnixMillis;

/// The largest event value, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The greatest amount that one event adds or subtracts.
pub const MAX_AMOUNT: i64 = 1_000_000;

/// What one event does to one counter, with valid ids. A decoded event borrows its ids from the record; only an id
/// written with escapes is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The counter of its subject.
    pub counter: CounterName,
    subject: Cow<'a, str>,
    pub deed: Deed<'a>,
    /// When it happened, as the producer states it; otherwise the record's own time.
    pub at: UnixMillis,
    /// The region that it comes from, as the producer states it.
    region: Option<Cow<'a, str>>,
}

/// What an event does to its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed<'a> {
    /// A member of a set is there, or is not. Repeating the event changes nothing.
    Member {
        /// The member's id.
        id: Cow<'a, str>,
        /// Whether the member is there.
        present: bool,
    },
    /// The amount that a sum gains; it loses one below 0. An event that is sent twice counts twice.
    Amount(i64),
}

impl Event<'_> {
    /// Returns the id of what is counted: a post or another subject.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the member that is put or removed; `None` for a sum.
    pub fn member(&self) -> Option<&str> {
        match &self.deed {
            Deed::Member { id, .. } => Some(id),
            Deed::Amount(_) => None,
        }
    }

    /// Returns the region that a member's event comes from; `None` where it states none, or something that is no
    /// region.
    pub fn region(&self) -> Option<Region> {
        self.member().and(self.region.as_deref()).and_then(Region::new)
    }

    /// Returns whether a member's event states something as its region that is no region.
    pub fn has_bad_region(&self) -> bool {
        self.member().and(self.region.as_deref()).is_some_and(|region| !Region::is_one(region))
    }
}
