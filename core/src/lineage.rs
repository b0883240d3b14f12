//! Decides for the relay whether a DynamoDB stream that it has never seen has every change of its table, and describes
//! a stream shard as DynamoDB lists it.

use std::time::Duration;

use crate::ids::StreamShardId;
use crate::time::UnixMillis;

/// How old a stream may be when it is first seen and still have all its records. DynamoDB keeps them for 24 h.
const FIRST_SIGHT_LIMIT: Duration = Duration::from_secs(20 * 3600);

/// How far apart the creation times of a table and its stream may be if they were created together.
const SAME_BIRTH: Duration = Duration::from_secs(1);

/// A stream shard as DynamoDB lists it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    pub id: StreamShardId,
    /// The stream shard that it continues.
    pub parent: Option<StreamShardId>,
    /// Whether DynamoDB has stopped writing to it.
    pub ended: bool,
}

/// Returns whether a stream that was never seen before has every change of its table: it is as old as the table, and
/// so young that no record was deleted yet.
pub fn is_complete(stream: UnixMillis, table: UnixMillis, now: UnixMillis) -> bool {
    let together = stream.since(table).max(table.since(stream)) <= SAME_BIRTH;
    together && now.since(stream) < FIRST_SIGHT_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stream_is_complete_only_if_it_is_as_old_as_its_table_and_young() {
        const HOUR: u64 = 3_600_000;
        let lost = |stream, now| !is_complete(UnixMillis(stream), UnixMillis(0), UnixMillis(now));
        assert!(!lost(500, HOUR));
        assert!(lost(5_000, HOUR), "rows may be older than the stream");
        assert!(lost(500, 20 * HOUR + 500), "records may have been trimmed");
    }
}
