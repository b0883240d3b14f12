//! Which worker reads which stream shard: saves double work, and is never trusted for more.

use async_trait::async_trait;

use crate::ids::{StreamLabel, StreamShardId};
use crate::ports::Outcome;

/// A worker's name, drawn at its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker(pub String);

/// A worker's claim to read a stream shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The worker.
    pub holder: Worker,
    /// Moves with every renewal: a lease whose beat stands still is stale.
    pub beat: u64,
}

/// Whether a lease could be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTaken {
    /// It is ours, and this is what to renew it by.
    Taken(Lease),
    /// Another worker was faster.
    Lost,
}

/// The leases on stream shards. To lease a shard that has no checkpoint is fatal.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Takes or renews the lease of `shard` for `holder`, if it still is as `seen`. Safe to repeat: the beat moves.
    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        holder: &Worker,
        seen: Option<&Lease>,
    ) -> Outcome<LeaseTaken>;

    /// Gives the lease of `shard` back, if `holder` has it. Safe to repeat.
    async fn release(&self, label: &StreamLabel, shard: &StreamShardId, holder: &Worker) -> Outcome<()>;
}
