//! When a piece of the stream is lost, or may be: the rules that open a gap.
//!
//! While a gap is open it is not known which posts it touched, so every answer says that it may not be exact, until a
//! full audit that began afterwards has proved or repaired every key.

use std::time::Duration;

use thiserror::Error;

use super::Checkpoint;
use crate::ids::{RowKey, StreamLabel, StreamShardId};
use crate::time::UnixMillis;

/// How long a shard may go unread before its records count as lost. The service keeps them for 24 h.
pub const OUTAGE_LIMIT: Duration = Duration::from_secs(23 * 3600);

/// How long a worker that met a loss waits, from the acknowledgement of the gap's record to it, before it applies anything
/// behind the loss or moves a checkpoint past it. By then every process that reads the gaps has seen this one, or knows
/// that its own reading is too old to call a count exact.
pub const HOLD: Duration = Duration::from_secs(8);

/// How old a stream may be at first sight and still have every record it was ever given.
const FIRST_SIGHT_LIMIT: Duration = Duration::from_secs(20 * 3600);

/// How far apart table and stream may say they were created and still have been created together.
const SAME_BIRTH: Duration = Duration::from_secs(1);

/// Something of the stream that was never applied is gone, or may be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Loss {
    /// The service trimmed records behind a checkpoint.
    #[error("records of stream shard {0} were trimmed before they were read")]
    Trimmed(StreamShardId),
    /// No worker read a shard for longer than records are sure to be kept.
    #[error("stream shard {shard} was last read {}s before", .unread.as_secs())]
    Outage {
        /// The shard.
        shard: StreamShardId,
        /// How long it went unread.
        unread: Duration,
    },
    /// A shard that was not closed is listed no more.
    #[error("stream shard {0} is gone and was not read to its end")]
    Vanished(StreamShardId),
    /// The stream may have existed before a worker followed it, or rows before the stream.
    #[error("stream {0} was not followed from the table's first row on")]
    Unfollowed(StreamLabel),
    /// The service sent a record whose position cannot be read, so it has no place in any count.
    #[error("a record of stream shard {0} has no readable position")]
    Unreadable(StreamShardId),
    /// The store takes neither the change of a counter nor the mark that it is missing.
    #[error("the counter of {0} can be neither changed nor marked")]
    Refused(RowKey),
    /// An operator moved a fence by hand.
    #[error("the fence of {0} was reset by hand")]
    FenceReset(Box<str>),
}

impl Loss {
    /// The kind, as a metric label and in the gap's record.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Trimmed(_) => "trimmed",
            Self::Outage { .. } => "outage",
            Self::Vanished(_) => "vanished",
            Self::Unfollowed(_) => "unfollowed",
            Self::Unreadable(_) => "unreadable",
            Self::Refused(_) => "refused",
            Self::FenceReset(_) => "fence_reset",
        }
    }
}

/// Whether a shard about to be read went unread for too long.
pub fn outage(checkpoint: &Checkpoint, now: UnixMillis) -> Option<Loss> {
    let unread = now.since(checkpoint.at);
    (!checkpoint.closed && unread > OUTAGE_LIMIT).then(|| Loss::Outage { shard: checkpoint.id.clone(), unread })
}

/// Whether a stream label never seen before may lack records: unless the stream is as old as its table, and young
/// enough for none to have been trimmed.
pub fn first_sight(label: &StreamLabel, stream: UnixMillis, table: UnixMillis, now: UnixMillis) -> Option<Loss> {
    let together = stream.since(table).max(table.since(stream)) <= SAME_BIRTH;
    let complete = together && now.since(stream) < FIRST_SIGHT_LIMIT;
    (!complete).then(|| Loss::Unfollowed(label.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ordinal;

    const HOUR: u64 = 3_600_000;

    #[test]
    fn a_shard_unread_for_23_hours_has_lost_records_unless_it_is_closed() {
        let at = |hours, closed| {
            let checkpoint = Checkpoint {
                id: "s".into(),
                parent: None,
                ordinal: Ordinal(1),
                sequence: None,
                closed,
                at: UnixMillis(0),
            };
            outage(&checkpoint, UnixMillis(hours * HOUR))
        };
        assert_eq!(at(23, false), None);
        assert!(matches!(at(24, false), Some(Loss::Outage { .. })));
        assert_eq!(at(100, true), None);
    }

    #[test]
    fn a_new_stream_is_complete_only_if_it_is_as_old_as_its_table_and_young() {
        let gap = |stream, now| first_sight(&"l".into(), UnixMillis(stream), UnixMillis(0), UnixMillis(now)).is_some();
        assert!(!gap(500, HOUR));
        assert!(gap(5_000, HOUR), "rows may be older than the stream");
        assert!(gap(500, 20 * HOUR + 500), "records may have been trimmed");
    }
}
