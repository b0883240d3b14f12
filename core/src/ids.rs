//! The names of posts, users, counters, shards, rows and stream shards, and the text in which each is stored.
//!
//! An id is its bytes: it is checked once, where it enters, and never normalised.

mod cache_key;
mod counter;
mod member;
mod region;
mod reserved;
mod row_key;
mod run;
mod shard;
mod stream;
mod text;

pub use cache_key::CachePrefix;
pub use counter::{BadCounterId, BadCounterName, CounterId, CounterKind, CounterName};
pub use member::MemberKey;
pub use region::Region;
pub use reserved::{RESERVED, ReservedKey};
pub use row_key::{BadRowKey, RowKey};
pub use run::{AuditRun, BadRunId};
pub use shard::{BadShardCount, Shard, ShardCount};
pub use stream::{BadSequence, Sequence, StreamLabel, StreamShard, StreamShardId};
pub use text::{BadId, MAX_ID_BYTES, PostId, UserId, check_id};
