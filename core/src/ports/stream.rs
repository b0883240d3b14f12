//! The change stream of the table `likes`, as DynamoDB offers it: stream shards, iterators and records.

use async_trait::async_trait;
use thiserror::Error;

use crate::fault::Fault;
use crate::ids::{Sequence, StreamLabel, StreamShardId};
use crate::lineage::Listed;
use crate::tally::RawRecord;
use crate::time::UnixMillis;

/// A table's stream from when it was switched on until it is switched off.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamInfo {
    pub label: StreamLabel,
    /// When the stream was switched on.
    pub created: UnixMillis,
    /// When the table was created.
    pub table_created: UnixMillis,
}

/// Where to begin reading a shard. The newest record is no such place: it would skip others unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the oldest record that the stream still has.
    Oldest,
    /// Behind the record with this position.
    After(Sequence),
}

/// DynamoDB's iterator in a shard, an opaque text that is valid for some minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iterator(pub String);

/// The answer to one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The records in order. There are often none although more follow.
    pub records: Vec<RawRecord>,
    /// Where to go on; `None` once the shard has ended and was read to its end.
    pub next: Option<Iterator>,
}

/// Why a read of the stream failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamFault {
    /// Records behind the position are deleted: a loss.
    #[error("records at this position were trimmed")]
    Trimmed,
    /// The iterator is too old. The caller takes a new one at the same position.
    #[error("the iterator has expired")]
    Expired,
    /// The stream or the shard no longer exists.
    #[error("the stream shard does not exist")]
    Gone,
    /// The table has no stream: it was switched off, or never on. Someone may switch it on at any time.
    #[error("table {0} has no stream")]
    Off(String),
    /// The call failed for another reason.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<StreamFault> for Fault {
    /// For callers to whom all of these are transient: a stream that is gone may get a successor.
    fn from(fault: StreamFault) -> Self {
        match fault {
            StreamFault::Fault(fault) => fault,
            other => Self::Transient(other.to_string()),
        }
    }
}

/// A table's change stream.
#[async_trait]
pub trait ChangeStream: Send + Sync {
    /// Returns the table's present stream. Fails with [`StreamFault::Off`] where there is none, and with a fatal fault
    /// where the stream lacks an image.
    async fn info(&self) -> Result<StreamInfo, StreamFault>;

    /// Returns every shard of the stream, from all pages.
    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault>;

    /// Returns the shards that continue `parent`. Returns `None` where DynamoDB cannot be asked for them, so that the
    /// caller has to list all.
    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault>;

    /// Returns an iterator at `position`.
    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault>;

    /// Returns the records at `iterator`, at most `limit`.
    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault>;
}
