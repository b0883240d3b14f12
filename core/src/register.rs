//! Events become rows: each row carries the version of the event that it comes from, so at-least-once delivery is enough.
//!
//! A write is [admitted] where there is no row, or where the row's version is smaller. It can be repeated, reordered and
//! sent by anyone: the newest event wins. A removal keeps the row as a tombstone for a while, so that a late copy of an
//! older event finds it. [`Progress`] says which writes a partition sends next, and which offset may be committed. An
//! [`Adding`] is the same for sums, whose rows are [cells](Cell). A [`Claim`] says who writes and where reading begins.

mod cell;
mod claim;
mod progress;
mod replay;
mod safe;
#[cfg(test)]
mod tests;
mod topic;
mod version;

pub use cell::{Adding, Cell, Step};
pub use claim::{BadPast, Claim, Ends, Found, Kept, Past, Standstill, Start, unfit};
pub use progress::{Answer, Attempt, Progress, Settled};
pub use replay::{NoReplay, Replay};
pub use safe::SafeTimes;
pub use topic::{Generation, Topic};
pub use version::Version;

use crate::event::{Deed, Event};
use crate::ids::{CounterId, PostId, Region, RowKey, ShardCount, UserId};
use crate::time::UnixMillis;
use crate::topic::{Offset, Partition};

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

/// What an event does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To the row of a member.
    Write(Write),
    /// To a sum: the version of the event, and what it adds.
    Add { counter: CounterId, version: Version, amount: i64 },
}

impl Effect {
    /// Of the event in the record at `offset` of a partition. A set's rows are spread over so many shards.
    pub fn of(event: &Event<'_>, topic: &Topic, partition: &Partition, offset: Offset, shards: ShardCount) -> Self {
        let counter = CounterId { post: PostId::checked(event.subject()), name: event.counter.clone() };
        let (id, present) = match &event.deed {
            Deed::Member { id, present } => (id, *present),
            Deed::Amount(amount) => {
                let amount = if topic.adds(partition.index, offset) { *amount } else { 0 };
                return Self::Add { counter, version: topic.version_of_sum(partition.index, offset), amount };
            }
        };
        let row = Row { key: RowKey::of(&counter, id, shards), member: UserId::checked(id) };
        let put = || Change::Put { liked_at: event.at, region: event.region() };
        let change = if present { put() } else { Change::Remove };
        Self::Write(Write { row, version: topic.version(partition, offset, event.subject()), change })
    }
}

/// Whether a write is carried out over what is stored: the condition of every statement.
pub fn admitted(stored: Option<Version>, new: Version) -> bool {
    stored.is_none_or(|stored| stored < new)
}
