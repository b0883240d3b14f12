//! The checkpoints table as the streamer and the API need it: the registry of stream shards, how far each is applied,
//! leases, open gaps, and what the deployment was created with. (Fences live there too, behind
//! [`FencedRows`](super::FencedRows).)

use async_trait::async_trait;

use super::Outcome;
use crate::ids::{Ordinal, Sequence, ShardCount, StreamLabel, StreamShardId};
use crate::lineage::{Checkpoint, Loss};
use crate::time::UnixMillis;

/// The numbers given out for one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registry {
    /// The next number.
    pub next: Ordinal,
    /// Every shard numbered up to here is closed.
    pub floor: Option<Ordinal>,
}

impl Registry {
    /// Numbers left free between two labels, for whoever still follows the earlier one.
    pub const ROOM: u64 = 1_000;

    /// The registry of a label never seen before, `next` being the greatest of the earlier labels, if there are any.
    pub fn after(next: Option<Ordinal>) -> Self {
        match next {
            None => Self { next: Ordinal(1), floor: None },
            Some(Ordinal(next)) => {
                Self { next: Ordinal(next + Self::ROOM), floor: Some(Ordinal(next + Self::ROOM - 1)) }
            }
        }
    }
}

/// A worker's name, drawn at its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker(pub String);

/// Who says to be working on a shard. It saves double work and is never trusted for more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker.
    pub holder: Worker,
    /// Moves with every renewal: a lease whose beat stands still is stale.
    pub beat: u64,
}

/// A stream shard's checkpoint with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardState {
    /// How far the shard is applied.
    pub checkpoint: Checkpoint,
    /// Who works on it.
    pub lease: Option<Lease>,
}

/// Whether a lease could be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTaken {
    /// It is ours, and this is what to renew it by.
    Taken(Lease),
    /// Somebody was faster.
    Lost,
}

/// The name of one open gap: what was lost, so that opening it twice is opening it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GapId(pub String);

/// A loss of stream not yet repaired by an audit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// Its name.
    pub id: GapId,
    /// The kind of loss.
    pub kind: String,
    /// What happened, for people.
    pub detail: String,
    /// When it was opened, last: only an audit that began later repairs it.
    pub opened: UnixMillis,
}

impl Gap {
    /// The gap that `loss`, met at `now`, opens: named after the kind of loss and the place of it.
    pub fn of(loss: &Loss, now: UnixMillis) -> Self {
        let place = match loss {
            Loss::Trimmed(shard) | Loss::Vanished(shard) | Loss::Unreadable(shard) => shard.to_string(),
            Loss::Outage { shard, .. } => shard.to_string(),
            Loss::Unfollowed(label) => label.to_string(),
            Loss::Refused(_) => "counters".to_owned(),
            Loss::FenceReset(partition) => partition.to_string(),
        };
        let id = GapId(format!("{}/{place}", loss.kind()));
        Self { id, kind: loss.kind().to_owned(), detail: loss.to_string(), opened: now }
    }
}

/// The streamer's durable state. To move or lease a checkpoint that is not there is fatal: the shard was never numbered, or
/// it was closed and forgotten while a process stood still for days, which begins anew then.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// Every stream shard known of a stream, read consistently.
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>>;

    /// The registry of a stream, read consistently; `None` for one never seen.
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>>;

    /// Gives `shard` its number, once: the checkpoint is put if absent together with the registry's next step, its `at`
    /// a time before which nothing was written to it. Safe to repeat: the number already given is answered.
    ///
    /// No number is given twice to streams of one table, whatever the label, for counters tell stream shards apart by
    /// their numbers alone: the registry of a new label begins [`Registry::ROOM`] behind the greatest `next` of all
    /// earlier ones of its table, and its floor says that everything before is done with.
    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal>;

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

    /// All of `shard` is in the counters, for ever. Safe to repeat, also where another worker has done so and
    /// [forgotten](Self::forget) it since: nothing is made of what is no more.
    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()>;

    /// Drops the checkpoint of a closed shard, for a caller who knows that neither it nor a child of it is listed any
    /// more. Safe to repeat; a shard that is not closed stays.
    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()>;

    /// Every shard up to `floor` is closed. Safe to repeat: the floor never moves back.
    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()>;

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

    /// Records a loss durably and queues a full audit. Safe to repeat: the same loss is one gap. Its time moves forward
    /// with every call, whatever the caller's clock says, for nobody can tell a repeat from a second loss at the same
    /// place, which an audit under way would not repair.
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap>;

    /// The open gaps, read consistently.
    async fn gaps(&self) -> Outcome<Vec<Gap>>;

    /// Closes `gap` if it is still the one opened then. Safe to repeat.
    async fn close_gap(&self, gap: &Gap) -> Outcome<()>;

    /// What the deployment was created with, created now with `shards`, or the default, if it was not. The answer may
    /// differ from `shards`, and then decides. Safe to repeat: what is there stays.
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount>;

    /// What the deployment was created with, read consistently; `None` before it was. For processes that only read: they
    /// must not decide what others are about to.
    async fn deployed(&self) -> Outcome<Option<ShardCount>>;
}
