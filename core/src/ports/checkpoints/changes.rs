//! The ledger of changes: whether the deployment has one, how far each stream shard is in it, and what is missing there.

use async_trait::async_trait;

use crate::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use crate::ledger::Lapse;
use crate::lineage::Checkpoint;
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// How a deployment's ledger of changes is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangesTerms {
    /// How many partitions its log has: a subject's changes are in one of them.
    pub partitions: u32,
    /// Stream shards with smaller numbers are from before it, and are in it from where they were then.
    pub from: Ordinal,
    /// Everything written after this time is in it, or in a lapse; `None` while that is not so.
    pub since: Option<UnixMillis>,
}

/// What is stored of the ledger of changes. To say how far a stream shard is that has no checkpoint is fatal, as it is to
/// move a checkpoint that is not there.
#[async_trait]
pub trait ChangesLedger: Send + Sync {
    /// The terms, read consistently; `None` where the deployment has no ledger of changes.
    async fn changes(&self) -> Outcome<Option<ChangesTerms>>;

    /// Gives the deployment a ledger of changes, unless it has one; the terms in force. Safe to repeat: what stands stays.
    async fn begin_changes(&self, partitions: u32, from: Ordinal) -> Outcome<ChangesTerms>;

    /// States that the ledger has everything written after `at`. Safe to repeat: what is stated stays.
    async fn changes_complete(&self, at: UnixMillis) -> Outcome<()>;

    /// The stream shard of `checkpoint` is fed as far as that says, unless something is stored already. Safe to repeat.
    async fn adopt(&self, label: &StreamLabel, checkpoint: &Checkpoint) -> Outcome<()>;

    /// Everything of `shard` up to `to`, and written before `at`, is in the log or in a stored lapse. Safe to repeat: neither
    /// moves back.
    async fn fed(&self, label: &StreamLabel, shard: &StreamShardId, to: Sequence, at: UnixMillis) -> Outcome<()>;

    /// So is everything written before `at`. Safe to repeat: it never moves back.
    async fn fed_at(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()>;

    /// So is all of `shard`. Safe to repeat.
    async fn fed_end(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()>;

    /// Changes are missing in the log. One item a stream shard, which only grows. Safe to repeat.
    async fn put_lapse(&self, lapse: Lapse) -> Outcome<()>;

    /// Every lapse that is stored, read consistently.
    async fn lapses(&self) -> Outcome<Vec<Lapse>>;

    /// Drops `lapse` if it is still as it was read. Safe to repeat.
    async fn drop_lapse(&self, lapse: Lapse) -> Outcome<()>;
}
