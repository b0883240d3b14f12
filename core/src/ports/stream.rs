//! The change stream of the likes table, as the service offers it: shards, iterators, records.

use async_trait::async_trait;
use thiserror::Error;

use crate::fault::Fault;
use crate::ids::{Sequence, StreamLabel, StreamShardId};
use crate::lineage::Listed;
use crate::tally::RawRecord;
use crate::time::UnixMillis;

/// One life of a table's stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamInfo {
    /// Its label.
    pub label: StreamLabel,
    /// When it was switched on.
    pub created: UnixMillis,
    /// When its table was created.
    pub table_created: UnixMillis,
}

/// Where to begin reading a shard. The newest record is no such place: it would pass over others unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the oldest record there is.
    Oldest,
    /// Behind this one.
    After(Sequence),
}

/// A place in a shard that the service remembers for some minutes; opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iterator(pub String);

/// What a read yields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// In order; often empty before the next are reached.
    pub records: Vec<RawRecord>,
    /// Where to go on; `None` once the shard has ended and everything was read.
    pub next: Option<Iterator>,
}

/// Why a read of the stream failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StreamFault {
    /// Records behind the position are gone: a loss.
    #[error("records at this position were trimmed")]
    Trimmed,
    /// The iterator is too old: take a new one at the same place.
    #[error("the iterator has expired")]
    Expired,
    /// The stream or the shard is not there any more.
    #[error("the stream shard does not exist")]
    Gone,
    /// The table has no stream: it was switched off, or never on. It may be switched on at any time.
    #[error("table {0} has no stream")]
    Off(String),
    /// Anything a call can fail with.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<StreamFault> for Fault {
    /// Where the stream's own kinds mean nothing: a stream that is gone will have a successor, or none.
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
    /// The stream the table has now. [`StreamFault::Off`] where it has none, and a fatal fault where it lacks an image.
    async fn info(&self) -> Result<StreamInfo, StreamFault>;

    /// Every shard listed, all pages of it.
    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault>;

    /// The shards that continue `parent`; `None` where the engine cannot be asked that, so that all have to be listed.
    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault>;

    /// An iterator at `position`.
    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault>;

    /// The records at `iterator`, at most `limit`.
    async fn records(&self, iterator: &Iterator, limit: u32) -> Result<Records, StreamFault>;
}
