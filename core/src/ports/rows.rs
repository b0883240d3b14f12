//! Reading the likes table.

use async_trait::async_trait;

use super::{Cursor, Outcome, Page};
use crate::ids::{MemberKey, ReservedKey, RowKey, UserId, check_id};
use crate::time::UnixMillis;
use crate::weight::{Stated, Weight};

/// A like that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like {
    /// The user who gave it.
    pub user: UserId,
    /// When it was given.
    pub liked_at: UnixMillis,
}

/// The row of a member, by its key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub user: UserId,
    /// Of a tombstone, which is left of a member that was removed: when the store deletes it, in seconds.
    pub gone: Option<u64>,
}

/// A row as a scan meets it: also one that stands where it should not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScannedRow {
    /// The row's partition key.
    pub pk: String,
    /// The row's sort key.
    pub sort: String,
    /// What the row says that it counts for.
    pub stated: Stated,
    /// Of a tombstone, which counts for nothing: when the store deletes it, in seconds.
    pub gone: Option<u64>,
}

impl ScannedRow {
    /// What it counts for; `None` for one that the fold passes over.
    pub fn weight(&self) -> Option<Weight> {
        match ReservedKey::read(&self.sort) {
            Some(reserved) => self.stated.weight(true).filter(|_| reserved.is_counted()),
            None => self.stated.weight(false).filter(|_| check_id(&self.sort).is_ok()),
        }
    }
}

/// One of `of` parts of a table scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

/// Reading rows. A tombstone is no like and no member.
#[async_trait]
pub trait Rows: Send + Sync {
    /// `user`'s like in `key`, read consistently.
    async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>>;

    /// Whether `member` is in each of `keys`, in their order, read consistently and together.
    async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>>;

    /// The likes of one row key in the order of user ids, behind `after`, read consistently; reserved rows left out. A page of
    /// fewer than `limit`, or of none, is not the last one if it has a `next`: rows that are no likes came in between.
    async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>>;

    /// Every row of `key` that has a user's id, tombstones too, behind `after`, read consistently: whatever else is in the
    /// rows. Reserved rows and those of no valid user are left out.
    async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<MemberRow>>;

    /// The rows of `key` with what they weigh, behind `after`, read consistently: what the fold counts, whatever else is
    /// in them; `None` where that is not readable. Markers, tombstones and rows of no valid member are left out: they weigh
    /// nothing.
    async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>>;

    /// One page of a table scan, keys and weights only, read consistently; reserved rows that are no cells left out, and
    /// tombstones not. The rows of a key follow each other, within a page and from page to page.
    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>>;
}
