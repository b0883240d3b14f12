//! What a batch makes of one row.

use crate::event::Action;
use crate::fence::Offset;
use crate::ids::{CounterId, Region, RowKey, ShardCount, UserId};
use crate::time::UnixMillis;

/// What becomes of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<'a> {
    /// The state a member's row is to have: written twice, it is the same.
    Member {
        counter: &'a CounterId,
        /// The member: a user, or what else the counter's definition names.
        user: &'a UserId,
        /// Whether the row is to be there.
        present: bool,
        /// When that was said.
        at: UnixMillis,
        /// Under which home the row is; `None`: under the deployment's shards.
        home: Option<ShardCount>,
        /// Where the event came from, where it says so: what a row that is put is counted in.
        region: Option<&'a Region>,
    },
    /// What the partition's cell of a sum gains. Written twice it would count twice: it stands under the cell's own condition
    /// beside the fence's. Also 0 is written: the cell has to say up to where it has the events.
    Cell {
        counter: &'a CounterId,
        /// What is added; less than 0 is taken off.
        add: i64,
        /// The first offset whose events are in it: the cell must have nothing from there on.
        from: Offset,
    },
}

impl<'a> Change<'a> {
    /// What a like or unlike does.
    pub fn like(counter: &'a CounterId, user: &'a UserId, action: Action, at: UnixMillis) -> Self {
        Self::Member { counter, user, present: action == Action::Like, at, home: None, region: None }
    }

    /// The member put or taken away; `None` of a cell.
    pub fn user(&self) -> Option<&'a UserId> {
        match self {
            Self::Member { user, .. } => Some(user),
            Self::Cell { .. } => None,
        }
    }

    /// The counter changed.
    pub fn counter(&self) -> &'a CounterId {
        match self {
            Self::Member { counter, .. } | Self::Cell { counter, .. } => counter,
        }
    }

    /// Where its row is, for a partition of this number.
    pub fn row_key(&self, partition: u32, shards: ShardCount) -> RowKey {
        match self {
            Self::Member { counter, user, home, .. } => RowKey::of(counter, user, home.unwrap_or(shards)),
            Self::Cell { counter, .. } => RowKey::of_cell(counter, partition, shards),
        }
    }
}
