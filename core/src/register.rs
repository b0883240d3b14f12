//! The consumer's rules for turning events into rows. Each row carries the version of its event, so at-least-once
//! delivery is enough.
//!
//! The store carries a write out where there is no row, or where the row's version is smaller ([`admitted`]). So
//! anyone may repeat, reorder or send a write late: the newest event wins. A removal keeps the row as a tombstone for
//! a while, so that a late copy of an older event cannot bring the member back. [`Progress`] chooses which writes a
//! partition sends next, and which offset may be committed. [`Adding`] does the same for sums, whose rows are
//! [cells](Cell). A [`Claim`] records who writes and where reading begins.

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
use claim::earlier;
pub use claim::{BadPast, Claim, Earlier, Ends, Found, Kept, LastRead, Past, Standstill, Start, last_read_in, unfit};
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

/// The write that one event makes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Write {
    pub row: Row,
    /// The version of the event.
    pub version: Version,
    pub change: Change,
}

/// The state that a write gives its row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The member is there. A tombstone in the row loses its expiry.
    Put(Member),
    /// The member is gone. The row becomes a tombstone; each attempt sets its expiry anew, so that it outlives every
    /// request that was sent before.
    Remove,
}

/// What the row of a member says besides its key and its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub liked_at: UnixMillis,
    /// The Region whose event this is, if the deployment has several.
    pub region: Option<Region>,
}

impl From<UnixMillis> for Member {
    /// Returns a member of the only Region.
    fn from(liked_at: UnixMillis) -> Self {
        Self { liked_at, region: None }
    }
}

/// What an event does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Writes the row of a member.
    Write(Write),
    /// Adds to a sum.
    Add { counter: CounterId, version: Version, amount: i64 },
}

impl Effect {
    /// Returns what the event of the record at `offset` does. `shards` is how many shards a set's rows are spread
    /// over.
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
        let put = || Change::Put(Member { liked_at: event.at, region: event.region() });
        let change = if present { put() } else { Change::Remove };
        Self::Write(Write { row, version: topic.version(partition, offset, event.subject()), change })
    }
}

/// Returns whether the store carries a write out over what it has: the condition of every statement.
pub fn admitted(stored: Option<Version>, new: Version) -> bool {
    stored.is_none_or(|stored| stored < new)
}
