//! With what a partition is consumed.

use super::LanePolicy;
use crate::batch::BatchLimits;
use crate::event::KeyScheme;
use crate::fence::Partition;
use crate::ids::ShardCount;

/// What one partition is consumed with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setup {
    /// The partition.
    pub partition: Partition,
    /// When a batch is written.
    pub limits: BatchLimits,
    /// What producers put into the key.
    pub key: KeyScheme,
    /// How many shards a post's rows have.
    pub shards: ShardCount,
    /// What decides how many lanes the partition has.
    pub lanes: LanePolicy,
}
