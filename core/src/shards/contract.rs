//! What the runner and the machine say to each other.

use std::sync::Arc;
use std::time::Duration;

use super::{Change, Health, Sharing};
use crate::fault::Fault;
use crate::ids::{Ordinal, StreamLabel, StreamShardId};
use crate::ledger::Fed;
use crate::lineage::{Checkpoint, Listed, Loss, Picture};
use crate::ports::{Lease, LeaseTaken, Registry, ShardState, StreamInfo};
use crate::time::UnixMillis;

/// How often a worker looks, and how it shares the work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// `None`: this worker reads every stream shard.
    pub sharing: Option<Sharing>,
    /// The wait between two looks.
    pub look: Duration,
    /// How long a listing is good for.
    pub listing: Duration,
    /// How long a stream shard may have no reader before that is reported.
    pub unread: Duration,
}

/// What the runner tells the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A wait is over. The first input of all is the end of [`Wait::Look`].
    Woke(Wait),
    /// A request was answered.
    Answered(Request, Answer),
    /// A reader or an applier met a loss, and waits for [`Effect::GoOn`] before it goes on behind it.
    Lost(Waiter, Loss),
    /// The service has no stream shard of this name, says its reader, which ends.
    Gone(StreamShardId),
    /// The stream shard has ended, and all of it is in the counters; everything written before `at` was when the shard was
    /// still open.
    Applied {
        /// Its name.
        shard: StreamShardId,
        /// What its checkpoint says.
        at: UnixMillis,
    },
    /// Reader and applier of this stream shard have ended.
    Ended(StreamShardId),
    /// Take on nothing new: the process stops. Losses are still recorded, for appliers that have something left to write.
    Leave,
    /// Everything read was written, or will not be: give the leases back.
    Release,
}

/// A reader or applier that waits behind a loss; the runner knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiter(pub u64);

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do this, and answer it.
    Ask(Request),
    /// Say when this much time has passed. A wait of the same name that is not over yet is replaced.
    Wait(Wait, Duration),
    /// Start to read a stream shard from its checkpoint, or from where it is in the ledger of changes, whichever is earlier.
    Read(Checkpoint, Fed),
    /// Stop reading a stream shard; what was read is still to be written.
    Stop(StreamShardId),
    /// What lies behind the loss may be applied.
    GoOn(Waiter),
    /// What the process knows of the stream, from now on.
    Show(Arc<Picture>),
    /// Something for the log.
    Tell(Event),
    /// What has become of the stream shards, at the end of each look.
    Report(Health),
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The table has another stream now.
    NewStream(StreamLabel),
    /// Listings leave out a stream shard that can still be read.
    Overlooked(StreamShardId),
    /// A stream shard has ended, and no other continues it.
    Childless(StreamShardId),
}

/// What is asked of the stream and of the checkpoints. Every request is safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// Describe the table's stream and list its shards. -> [`Answer::Listed`]
    List,
    /// List the shards that continue this one. -> [`Answer::Children`]
    Children(StreamShardId),
    /// Read the registry of the stream, consistently. -> [`Answer::Registry`]
    Registry,
    /// Read all checkpoints of the stream, consistently. -> [`Answer::States`]
    States,
    /// Read whether a loss of stream is open, consistently. -> [`Answer::Gaps`]
    Gaps,
    /// Give a stream shard its number, unless it has one. -> [`Answer::Done`] or [`Answer::Failed`]
    Number {
        /// Its name.
        shard: StreamShardId,
        /// The shard it continues.
        parent: Option<StreamShardId>,
        /// Everything written to it before this time is applied.
        at: UnixMillis,
    },
    /// Ask whether a stream shard can still be read. -> [`Answer::Readable`]
    Probe(StreamShardId),
    /// Close a stream shard: all of it is in the counters, or lost under an open gap. -> [`Answer::Done`]
    Close {
        /// Its name.
        shard: StreamShardId,
        /// Everything written to it before this time was applied.
        at: UnixMillis,
    },
    /// Every stream shard up to this one is closed: store it, unless the floor is higher. -> [`Answer::Done`]
    RaiseFloor(Ordinal),
    /// Drop the checkpoint of a closed stream shard. -> [`Answer::Done`]
    Forget(StreamShardId),
    /// Of a stream shard that is gone, what is not in the ledger of changes is missing there: store that, and that it is fed to
    /// its end. -> [`Answer::Done`]
    EndFed {
        /// Its name.
        shard: StreamShardId,
        /// Its number.
        ordinal: Ordinal,
        /// What is missing was written at this time or later.
        from: UnixMillis,
    },
    /// Take the lease of a stream shard, if it still is as it was seen. -> [`Answer::Leased`]
    Lease {
        /// Its name.
        shard: StreamShardId,
        /// What to take it from.
        seen: Option<Lease>,
        /// What that changes.
        change: Change,
    },
    /// Give a lease back. -> [`Answer::Done`]
    Release(StreamShardId),
    /// Record a loss as a gap, durably, and queue an audit. The same loss is one gap. -> [`Answer::Done`]
    Record(Behind, Loss),
}

/// What waits behind a loss.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Behind {
    /// Everything of a stream that may lack records.
    Stream,
    /// The children of a stream shard that is gone.
    Shard(StreamShardId),
    /// A reader or an applier.
    Waiter(Waiter),
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The table's stream, and every shard of it that is listed.
    Listed(StreamInfo, Vec<Listed>),
    /// The shards that continue one; `None` where the engine cannot be asked that.
    Children(Option<Vec<Listed>>),
    /// The registry; `None` for a stream never seen before.
    Registry(Option<Registry>),
    /// The checkpoints, with their leases.
    States(Vec<ShardState>),
    /// Whether a loss of stream is open.
    Gaps(bool),
    /// Whether the stream shard can be read.
    Readable(bool),
    /// Whether the lease is ours now.
    Leased(LeaseTaken),
    /// It is done.
    Done,
    /// It may or may not be done. Requests without another answer than [`Done`](Self::Done) are not answered with this:
    /// the runner repeats them until they are done.
    Failed(Fault),
}

/// What time passes for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// Until the next look.
    Look,
    /// Until the listing is too old.
    Listing,
    /// Until the service may be asked for a listing again.
    Spacing,
    /// Until children that were not listed are looked for again.
    Children,
    /// Until a shard without children is taken to have none.
    NoChildren(StreamShardId),
    /// Until the hold behind a loss is over.
    Hold(Behind),
    /// Until a lease that stands still is stale.
    Stale(StreamShardId),
    /// Until a stream shard that has no reader is reported.
    Unread(StreamShardId),
}
