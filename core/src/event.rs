//! Events: the only decoder, from a record to an [`Event`] or a [`Rejection`].
//!
//! An event's action names the definition of its counter, and the definition names the fields that the event needs. The
//! decoder never panics and never guesses: what it does not accept is rejected for a reason from a closed list.

mod decode;
mod encode;
mod rejection;
mod routing;

use std::borrow::Cow;

pub use decode::{decode, decode_value};
pub use encode::{Said, encode};
pub use rejection::{Field, Rejection};
pub use routing::partition_of;

use crate::ids::{CounterName, Region};
use crate::time::UnixMillis;

/// The largest event value, in bytes.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// The greatest amount that one event adds or takes off.
pub const MAX_AMOUNT: i64 = 1_000_000;

/// What one event does to one counter, with valid ids. A decoded one borrows from its record: only an id written with escapes
/// is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Which counter of its subject.
    pub counter: CounterName,
    subject: Cow<'a, str>,
    /// What it does.
    pub deed: Deed<'a>,
    /// When, as the producer states it; the record's own time otherwise.
    pub at: UnixMillis,
    /// Where it comes from, as it was stated.
    region: Option<Cow<'a, str>>,
}

/// What an event does to its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed<'a> {
    /// A member of a set is to be there, or gone. Not a toggle: repeated, it changes nothing.
    Member {
        /// The member's id.
        id: Cow<'a, str>,
        /// Whether it is to be there.
        present: bool,
    },
    /// A sum gains so much; less than 0 is taken off. Repeated, it counts twice.
    Amount(i64),
}

impl Event<'_> {
    /// What is counted: a post's id, or another subject's.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The member that is put or taken away; `None` of a sum.
    pub fn member(&self) -> Option<&str> {
        match &self.deed {
            Deed::Member { id, .. } => Some(id),
            Deed::Amount(_) => None,
        }
    }

    /// The region that a member's event comes from; `None` where it states none, or something that is no region.
    pub fn region(&self) -> Option<Region> {
        self.member().and(self.region.as_deref()).and_then(Region::new)
    }

    /// Whether a member's event states something as its region that is none.
    pub fn has_bad_region(&self) -> bool {
        self.member().and(self.region.as_deref()).is_some_and(|region| !Region::is_one(region))
    }
}
