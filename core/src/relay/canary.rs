//! Canaries: rows that count nothing. While nothing else is written to the table `likes`, relays write the time into
//! them. When such a row arrives in the table's stream, it shows how late the stream is.

use crate::ids::{CounterId, PostId, ReservedKey, RowKey, Shard};
use crate::tally::RawRecord;
use crate::time::UnixMillis;

/// A row that counts nothing and has a time from before it was written. There are many, so that each process finds one
/// in a stream shard that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Canary {
    /// Its number.
    pub row: u16,
    /// A time before it was written, by the table's clock.
    pub at: UnixMillis,
}

impl Canary {
    /// How many rows there are.
    pub const ROWS: u16 = 4096;
    const POST: &'static str = "~canary-";

    /// Returns the partition key of the row. Its sort key is [`ReservedKey::Canary`].
    pub fn key(self) -> RowKey {
        let post = PostId::new(&format!("{}{}", Self::POST, self.row)).expect("it is an id");
        RowKey { counter: CounterId::likes(post), shard: Shard::FIRST }
    }

    /// Reads a canary from a record of the stream. Its time is at most the end of the second in which the record was
    /// written, so that a process whose clock is fast does not take a late stream for a timely one.
    pub fn read(record: &RawRecord) -> Option<Self> {
        const SECOND: u64 = 1000;
        let sort = record.sort.as_deref().and_then(ReservedKey::read)?;
        if sort != ReservedKey::Canary {
            return None;
        }
        let key: RowKey = record.pk.as_deref()?.parse().ok()?;
        let at = record.after.as_ref()?.v?.min(record.written.0 + SECOND - 1);
        let row = key.counter.post.as_str().strip_prefix(Self::POST)?.parse().ok()?;
        Some(Self { row, at: UnixMillis(at) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Image;

    #[test]
    fn a_canary_is_read_as_it_is_written_and_never_later_than_the_stream_says() {
        let record = |at, written| RawRecord {
            pk: Some(Canary { row: 7, at: UnixMillis(0) }.key().to_string()),
            sort: Some(ReservedKey::Canary.to_string()),
            written: UnixMillis(written),
            after: Some(Image { v: Some(at), ..Image::default() }),
            ..RawRecord::default()
        };
        assert_eq!(Canary::read(&record(4_200, 4_000)), Some(Canary { row: 7, at: UnixMillis(4_200) }));
        assert_eq!(Canary::read(&record(604_200, 4_000)), Some(Canary { row: 7, at: UnixMillis(4_999) }));
        assert_eq!(Canary::read(&RawRecord { sort: Some("u".into()), ..record(1, 1) }), None);
    }
}
