//! The log of events: partitions of a topic as a group gives them to a member, and records written and read outside of any
//! group. Which record is an event, and where reading starts, is the caller's to decide.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::Outcome;
use crate::fault::Fault;
use crate::time::UnixMillis;
use crate::topic::{Log, Offset, Partition};

/// A header of a record: its name, and its value if it has one.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// One record of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: Offset,
    /// When it was written; the epoch where the log does not say.
    pub at: UnixMillis,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    records: &'a Records,
    headers: &'a [HeaderSpan],
}

impl<'a> Record<'a> {
    /// Its headers in order; a name may occur twice.
    pub fn headers(self) -> impl ExactSizeIterator<Item = Header<'a>> {
        self.headers.iter().map(move |span| {
            let name = std::str::from_utf8(&self.records.bytes[span.name.clone()]);
            let name = name.expect("a header's name was pushed as text");
            (name, span.value.clone().map(|value| &self.records.bytes[value]))
        })
    }

    /// The last value of the header `name`.
    pub fn header(self, name: &str) -> Option<&'a [u8]> {
        self.headers().filter(|(found, _)| *found == name).last().and_then(|(_, value)| value)
    }

    /// Its weight in memory: its bytes and a flat charge, so that empty records are not free.
    pub fn weight(self) -> usize {
        let headers: usize = self.headers().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
        FLAT_WEIGHT + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }
}

/// A record's weight beside its bytes.
const FLAT_WEIGHT: usize = 128;

/// Consecutive records of one partition in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Records {
    bytes: Vec<u8>,
    items: Vec<Item>,
    headers: Vec<HeaderSpan>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item {
    offset: Offset,
    at: UnixMillis,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeaderSpan {
    name: Range<usize>,
    value: Option<Range<usize>>,
}

impl Records {
    /// Copies a record in, behind those that are there.
    pub fn push<'h>(
        &mut self,
        offset: Offset,
        at: UnixMillis,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = Header<'h>>,
    ) {
        let key = key.map(|key| self.keep(key));
        let value = value.map(|value| self.keep(value));
        let first = self.headers.len();
        for (name, value) in headers {
            let span = HeaderSpan { name: self.keep(name.as_bytes()), value: value.map(|value| self.keep(value)) };
            self.headers.push(span);
        }
        self.items.push(Item { offset, at, key, value, headers: first..self.headers.len() });
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The record at `index`.
    pub fn get(&self, index: usize) -> Option<Record<'_>> {
        let item = self.items.get(index)?;
        Some(Record {
            offset: item.offset,
            at: item.at,
            key: item.key.clone().map(|key| &self.bytes[key]),
            value: item.value.clone().map(|value| &self.bytes[value]),
            records: self,
            headers: &self.headers[item.headers.clone()],
        })
    }

    /// The record whose offset is `offset`.
    pub fn at(&self, offset: Offset) -> Option<Record<'_>> {
        let index = self.items.binary_search_by_key(&offset, |item| item.offset).ok()?;
        self.get(index)
    }

    /// Those from `from` up to `to`, in order.
    pub fn between(&self, from: Offset, to: Offset) -> impl Iterator<Item = Record<'_>> {
        let first = self.items.partition_point(|item| item.offset < from);
        let last = self.items.partition_point(|item| item.offset < to);
        (first..last).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.items.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// The offset of the last one.
    pub fn last_offset(&self) -> Option<Offset> {
        self.items.last().map(|item| item.offset)
    }

    /// Their weight in memory.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.items.len() * FLAT_WEIGHT
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// How a partition is taken from its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revocation {
    /// The group wants it back: finish what is under way, in bounded time, and drop the handle.
    Revoked,
    /// Another member may have it already: drop the handle at once.
    Lost,
}

impl Revocation {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Lost => "lost",
        }
    }
}

/// What a rebalance of the group means for this member.
#[derive(Debug)]
pub enum Rebalance {
    /// These are its own now.
    Assigned(Vec<Arc<dyn OwnedPartition>>),
    /// These are taken from it; their handles say so too.
    Revoked(Revocation, Vec<Partition>),
    /// The group has to be left: another deployment reads the topic in it, and the two share it out between them.
    Foreign(String),
}

/// Membership of a group that shares the partitions of one topic.
#[async_trait]
pub trait Intake: Send {
    /// Reads records into the partitions' queues and keeps the membership alive, until the next rebalance. It has to be
    /// called all the time, by a task that does nothing else. Cancel safe. After a fault that may pass the membership goes
    /// on.
    async fn next(&mut self) -> Outcome<Rebalance>;

    /// Leaves the group, so that the other members need not wait for a time-out.
    async fn leave(self: Box<Self>);
}

/// A partition of this member until [`revoked`](Self::revoked) completes. Dropping the last reference gives it back.
#[async_trait]
pub trait OwnedPartition: std::fmt::Debug + Send + Sync {
    fn partition(&self) -> &Partition;

    /// How many partitions the topic has.
    async fn partitions(&self) -> Outcome<u32>;

    /// What the broker says of the log: its end lies behind everything that was acknowledged. Its bounds are those of the topic that
    /// it names, which is looked at last.
    async fn log(&self) -> Outcome<Log>;

    /// What the group has committed: what tools show and reset. It is not later than what [`finished`](Self::finished) was told,
    /// unless an operator has set it.
    async fn committed(&self) -> Outcome<Option<Offset>>;

    /// Reads from `offset` on. Records read from an earlier position are dropped, those on their way included. Safe to
    /// repeat: the last call counts.
    async fn start_at(&self, offset: Offset) -> Outcome<()>;

    /// The next records from the position that was started at last; pending while there are none. A fault means that the
    /// position cannot be read, or may be that of another log. Cancel safe.
    async fn records(&self) -> Outcome<Arc<Records>>;

    /// Completes when the partition is taken from this member.
    async fn revoked(&self) -> Revocation;

    /// Tells Kafka that everything before `offset` is done, for tools that show lag. Nothing relies on it, so it is safe to
    /// repeat and may be lost.
    fn finished(&self, offset: Offset);
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    pub topic: &'a str,
    /// The partition; `None` lets the key decide.
    pub partition: Option<u32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [Header<'a>],
}

/// Where a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub partition: u32,
    pub offset: Offset,
}

#[async_trait]
pub trait Producer: Send + Sync {
    /// Writes a record and returns once every replica that must have it does. Kafka's default partitioner chooses the
    /// partition. After a fault the record may be there all the same, so a repeat may write it twice: what is written has
    /// to bear that.
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written>;
}

/// Writes records by transactions, under a name that one process at a time has.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Takes the name over. What another process began under it is settled: all of a transaction is there, or none. From then
    /// on that process can finish none.
    async fn take_over(&self) -> Outcome<()>;

    /// Writes all of `records` or none of them, seen by readers at once. After a fault the outcome is unknown, and nothing
    /// more can be written until the name is [taken over](Self::take_over), which settles it.
    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()>;
}

/// Reads a topic from end to end outside of any group: an operator's command or a tool.
#[async_trait]
pub trait TopicReader: Send + Sync {
    /// Whether there is such a topic.
    async fn exists(&self) -> Outcome<bool> {
        self.logs().await.map(|logs| !logs.is_empty())
    }

    /// The logs of all its partitions, in order. Each ends before the first transaction that is open: what a read can show.
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>>;

    /// The log of one partition, as [`logs`](Self::logs) has it.
    async fn log(&self, partition: &Partition) -> Outcome<Log> {
        let found = self.logs().await?.into_iter().find(|(found, _)| found == partition);
        found.map(|(_, log)| log).ok_or_else(|| Fault::Transient(format!("there is no {partition}")))
    }

    /// Some of the records of `partition` from `from` up to `to`, in order; none at the end.
    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records>;

    /// The first record of `partition` that was written at `at` or later; `None` where there is none.
    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>>;

    /// Where reading of `partition` was last marked to continue.
    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>>;

    /// Marks where reading is to continue. Safe to repeat: the last mark counts.
    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_out_as_it_was_pushed() {
        let mut records = Records::default();
        let headers = [("trace", Some(&b"1"[..])), ("empty", None), ("trace", Some(b"2"))];
        records.push(Offset(7), UnixMillis(1), Some(b"k"), Some(b"value"), headers);
        records.push(Offset(9), UnixMillis(2), None, None, []);
        let first = records.get(0).unwrap();
        assert_eq!((first.offset, first.key, first.value), (Offset(7), Some(&b"k"[..]), Some(&b"value"[..])));
        assert_eq!(first.headers().collect::<Vec<_>>(), headers);
        assert_eq!((first.header("trace"), first.header("empty"), first.header("no")), (Some(&b"2"[..]), None, None));
        let tombstone = records.at(Offset(9)).unwrap();
        assert_eq!((tombstone.key, tombstone.value, tombstone.headers().len()), (None, None, 0));
        assert!(records.at(Offset(8)).is_none());
        assert_eq!((records.len(), records.last_offset()), (2, Some(Offset(9))));
    }

    #[test]
    fn the_weight_of_a_run_is_that_of_its_records_and_an_empty_one_is_not_free() {
        let mut records = Records::default();
        records.push(Offset(0), UnixMillis(0), Some(b"key"), Some(b"value"), [("name", Some(&b"v"[..]))]);
        records.push(Offset(1), UnixMillis(0), None, None, []);
        assert_eq!(records.weight(), records.iter().map(Record::weight).sum::<usize>());
        assert!(records.get(1).unwrap().weight() > 0);
    }
}
