//! Part of the model of counting: the rows that are counted, and the stream of their changes, which relays copy into
//! the log.

/// The maximum number of records in a stream: changes, and a marker for each recount.
const MOST: usize = 6;

/// A record of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Record {
    /// A member's row is added or removed.
    Change(u8),
    /// A recount puts its marker.
    Marker(u8),
}

/// The stream from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Stream([Option<Record>; MOST]);

impl Stream {
    pub(super) fn len(self) -> u8 {
        u8::try_from(self.0.iter().flatten().count()).expect("a stream is short")
    }

    pub(super) fn record(self, at: u8) -> Option<Record> {
        self.0.get(usize::from(at)).copied().flatten()
    }

    pub(super) fn with(mut self, record: Record) -> Self {
        let free = self.0.iter_mut().find(|place| place.is_none()).expect("the bounds are small");
        *free = Some(record);
        self
    }

    /// Returns the weight of each row after the first records.
    pub(super) fn rows(self, records: u8) -> [i64; 2] {
        let mut rows = [0, 0];
        for record in self.0.iter().take(records.into()).flatten() {
            if let Record::Change(member) = record {
                rows[usize::from(*member)] ^= 1;
            }
        }
        rows
    }

    pub(super) fn sum(self, records: u8) -> i64 {
        self.rows(records).iter().sum()
    }
}
