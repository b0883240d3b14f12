//! What things are called: posts, users, shards, row keys, stream shards and positions, and how each is written down.
//!
//! An id is its bytes: it is checked once, where it enters, and never normalised.

mod row_key;
mod shard;
mod stream;
mod text;

pub use row_key::{BadRowKey, RowKey};
pub use shard::{BadShardCount, Shard, ShardCount, ShardSet};
pub use stream::{BadSequence, Ordinal, Sequence, StreamLabel, StreamShardId};
pub use text::{BadId, MAX_ID_BYTES, PostId, UserId, check_id};

/// The first character of every sort key that is not a user: ids cannot hold it, so the two never meet.
pub const RESERVED: char = '\u{1}';
