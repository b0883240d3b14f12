//! Events become rows: each row carries the version of the event that it comes from, so at-least-once delivery is enough.
//!
//! A write is [admitted] where there is no row, or where the row's version is smaller. It can be repeated, reordered and
//! sent by anyone: the newest event wins. A removal keeps the row as a tombstone for a while, so that a late copy of an
//! older event finds it. [`Progress`] says which writes a partition sends next, and which offset may be committed. An
//! [`Adding`] is the same for sums, whose rows are [cells](Cell).

mod cell;
mod progress;
#[cfg(test)]
mod tests;
mod version;

pub use cell::{Adding, Cell, Step};
pub use progress::{Answer, Progress, Settled};
pub use version::Version;

use crate::ids::{Region, RowKey, UserId};
use crate::time::UnixMillis;

/// The row of one member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row {
    pub key: RowKey,
    pub member: UserId,
}

/// What one event makes of its row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub row: Row,
    /// The event's.
    pub version: Version,
    pub change: Change,
}

/// The state that a row is to have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The member is there. A tombstone that stood there expires no more.
    Put { liked_at: UnixMillis, region: Option<Region> },
    /// The member is gone. The row becomes a tombstone; each attempt dates its expiry anew, so that it outlives every request
    /// that was sent before it.
    Remove,
}

/// Whether a write is carried out over what is stored: the condition of every statement.
pub fn admitted(stored: Option<Version>, new: Version) -> bool {
    stored.is_none_or(|stored| stored < new)
}
