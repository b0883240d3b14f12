//! The stream shards of a table as the service lists them, and whether a stream has been there from the table's first row on.

use std::time::Duration;

use crate::ids::StreamShardId;
use crate::time::UnixMillis;

/// How old a stream may be at first sight and still have every record it was ever given. The service keeps them for 24 h.
const FIRST_SIGHT_LIMIT: Duration = Duration::from_secs(20 * 3600);

/// How far apart table and stream may say they were created and still have been created together.
const SAME_BIRTH: Duration = Duration::from_secs(1);

/// A stream shard as the service lists it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Its name.
    pub id: StreamShardId,
    /// The shard it continues.
    pub parent: Option<StreamShardId>,
    /// Whether the service has stopped writing to it.
    pub ended: bool,
}

/// Whether a stream never seen before has every record it was ever given, of a table that it was there for from the first row on:
/// it is as old as its table, and young enough for none to have been trimmed.
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
