//! How far each stream shard is applied.

use async_trait::async_trait;

use super::Lease;
use crate::ids::{Sequence, StreamLabel, StreamShardId};
use crate::ledger::Fed;
use crate::lineage::Checkpoint;
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// A stream shard's checkpoint with its lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShardState {
    /// How far the shard is applied.
    pub checkpoint: Checkpoint,
    /// How far it is in the ledger of changes; nothing says so where the deployment has none.
    pub fed: Fed,
    /// The lease, if a worker has one.
    pub lease: Option<Lease>,
}

/// The checkpoints of stream shards. To move one that is not there is fatal: the shard was never numbered, or it was closed
/// and forgotten while a process stood still for days, which begins anew then.
#[async_trait]
pub trait Positions: Send + Sync {
    /// Every stream shard known of a stream, read consistently.
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>>;

    /// Everything of `shard` up to `sequence` is in the counters. Safe to repeat: a checkpoint never moves back; one
    /// that is further already stays.
    async fn advance(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        sequence: Sequence,
        at: UnixMillis,
    ) -> Outcome<()>;

    /// Everything written to `shard` before `at` is in the counters, and the checkpoint is where it was. Safe to
    /// repeat: `at` never moves back.
    async fn refresh(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()>;

    /// All of `shard` is in the counters, for ever. Safe to repeat: it never recreates a checkpoint that another worker
    /// has [forgotten](Self::forget) since.
    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()>;

    /// Drops the checkpoint of a closed shard, for a caller who knows that neither it nor a child of it is listed any
    /// more. Safe to repeat; a shard that is not closed stays.
    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()>;
}
