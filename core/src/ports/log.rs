//! Kafka as services use it: the partitions that a consumer group assigns to this member, records to write, and topics
//! to read outside of any group. The caller decides which record is an event and where reading starts.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::Outcome;
use crate::event::murmur2;
use crate::fault::Fault;
use crate::time::UnixMillis;
use crate::topic::{Log, Offset, Partition};

/// The header that names the deployment of a record, in topics that another deployment may use by mistake.
pub const DEPLOYMENT: &str = "tally.deployment";

/// A header of a record: its name, and its value if it has one.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// One record of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub offset: Offset,
    /// When it was written; the epoch where the log has no time.
    pub at: UnixMillis,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    records: &'a Records,
    headers: &'a [HeaderSpan],
}

impl<'a> Record<'a> {
    /// Returns its headers in order; a name may occur twice.
    pub fn headers(self) -> impl ExactSizeIterator<Item = Header<'a>> {
        self.headers.iter().map(move |span| {
            let name = std::str::from_utf8(&self.records.bytes[span.name.clone()]);
            let name = name.expect("a header's name was pushed as text");
            (name, span.value.clone().map(|value| &self.records.bytes[value]))
        })
    }

    /// Returns the last value of the header `name`.
    pub fn header(self, name: &str) -> Option<&'a [u8]> {
        self.headers().filter(|(found, _)| *found == name).last().and_then(|(_, value)| value)
    }

    /// Returns the deployment that it names.
    pub fn deployment(self) -> Option<Cow<'a, str>> {
        self.header(DEPLOYMENT).map(String::from_utf8_lossy)
    }

    /// Returns the deployment that it names, unless that is `own`. A record that names none passes as the own one.
    pub fn foreign(self, own: &str) -> Option<Cow<'a, str>> {
        self.deployment().filter(|named| named != own)
    }

    /// Returns what tells it from another record at its offset: a hash of time, key and value.
    pub fn fingerprint(self) -> u64 {
        let [key, value] = [self.key, self.value].map(|bytes| u64::from(murmur2(bytes.unwrap_or_default())));
        (key << 32 | value) ^ self.at.0
    }

    /// Returns the memory that it takes: its bytes and a flat charge, so that empty records are not free.
    pub fn weight(self) -> usize {
        let headers: usize = self.headers().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len)).sum();
        FLAT_WEIGHT + self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers
    }
}

/// The flat charge for a record beside its bytes.
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
    /// Copies a record in, behind the others.
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

    pub fn at(&self, offset: Offset) -> Option<Record<'_>> {
        let index = self.items.binary_search_by_key(&offset, |item| item.offset).ok()?;
        self.get(index)
    }

    /// Returns the records from `from` up to `to` (exclusive), in order.
    pub fn between(&self, from: Offset, to: Offset) -> impl Iterator<Item = Record<'_>> {
        let first = self.items.partition_point(|item| item.offset < from);
        let last = self.items.partition_point(|item| item.offset < to);
        (first..last).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Returns all records, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        (0..self.items.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Returns the offset of the last record.
    pub fn last_offset(&self) -> Option<Offset> {
        self.items.last().map(|item| item.offset)
    }

    /// Returns the memory that the records take.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.items.len() * FLAT_WEIGHT
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

/// How a member loses a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revocation {
    /// The group takes it back: finish what is under way, in bounded time, and drop the handle.
    Revoked,
    /// Another member may have it already: drop the handle at once.
    Lost,
}

impl Revocation {
    /// Returns the metric label.
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
    /// These partitions belong to this member now.
    Assigned(Vec<Arc<dyn OwnedPartition>>),
    /// This member loses these partitions; their handles report it, too.
    Revoked(Revocation, Vec<Partition>),
    /// The member has to leave the group: another deployment reads the topic in it, so each would get only some
    /// partitions.
    Foreign(String),
}

/// Membership of a group that shares the partitions of one topic.
#[async_trait]
pub trait Intake: Send {
    /// Reads records into the partitions' queues and keeps the membership alive, until the next rebalance. A task that
    /// does nothing else has to call it all the time. It is cancel safe. After a transient fault the membership goes
    /// on.
    async fn next(&mut self) -> Outcome<Rebalance>;

    /// Leaves the group, so that the other members need not wait for a time-out.
    async fn leave(self: Box<Self>);
}

/// A partition of this member until [`revoked`](Self::revoked) completes. Dropping the last reference gives it back.
#[async_trait]
pub trait OwnedPartition: std::fmt::Debug + Send + Sync {
    fn partition(&self) -> &Partition;

    /// Returns how many partitions the topic has.
    async fn partitions(&self) -> Outcome<u32>;

    /// Returns the bounds of the log: its end lies behind everything that was acknowledged. The topic's id is read
    /// after the bounds.
    async fn log(&self) -> Outcome<Log>;

    /// Returns the offset that the group has committed, which tools show and reset. It is not later than any that was
    /// passed to [`finished`](Self::finished), unless an operator has set it.
    async fn committed(&self) -> Outcome<Option<Offset>>;

    /// Reads from `offset` on. Records from an earlier position are dropped, also those on their way. Repeating it is
    /// safe: the last call counts.
    async fn start_at(&self, offset: Offset) -> Outcome<()>;

    /// Returns the next records behind the position that was last started at; waits while there are none. A fault
    /// means that the position cannot be read, or that it may be of another log. It is cancel safe.
    async fn records(&self) -> Outcome<Arc<Records>>;

    /// Completes when this member loses the partition.
    async fn revoked(&self) -> Revocation;

    /// Tells Kafka that everything before `offset` is done, for tools that show lag. Nothing relies on it, so it may
    /// be repeated or lost.
    fn finished(&self, offset: Offset);
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    pub topic: &'a str,
    /// The partition; where it is `None`, the key decides.
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
    /// Writes a record and returns once every in-sync replica has it. Where the record names no partition, Kafka's
    /// default partitioner chooses one. After a fault the record may still be there, so a repeat may write it twice:
    /// its readers have to bear that.
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written>;

    /// As [`send`](Self::send), for a log that keeps the time of its records: it is `at`, and not what the clock of this
    /// machine says. That may be wrong, and Kafka refuses records from more than an hour ahead.
    async fn send_at(&self, record: Outgoing<'_>, _at: UnixMillis) -> Outcome<Written> {
        self.send(record).await
    }
}

/// Writes records in Kafka transactions, under a transactional id that one process holds at a time.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Takes the id over. A transaction that another process began under it is settled: all of it is there, or
    /// nothing. That process can finish no further one. Repeating it is safe.
    async fn take_over(&self) -> Outcome<()>;

    /// Writes all of `records` or none of them; readers see them at once. After a fault the outcome is unknown, and
    /// nothing more can be written until [`take_over`](Self::take_over) settles it.
    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()>;
}

/// Reads a topic from end to end outside of any group, for an operator's command or a tool.
#[async_trait]
pub trait TopicReader: Send + Sync {
    /// Returns whether there is such a topic.
    async fn exists(&self) -> Outcome<bool> {
        self.logs().await.map(|logs| !logs.is_empty())
    }

    /// Returns the logs of all its partitions, in order. Each ends before the first open transaction: a read shows no
    /// more.
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>>;

    /// Returns the log of one partition, as [`logs`](Self::logs) does.
    async fn log(&self, partition: &Partition) -> Outcome<Log> {
        let found = self.logs().await?.into_iter().find(|(found, _)| found == partition);
        found.map(|(_, log)| log).ok_or_else(|| Fault::Transient(format!("there is no {partition}")))
    }

    /// Returns some of the records of `partition` from `from` up to `to`, in order; none at the end.
    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records>;

    /// Returns the [fingerprint](Record::fingerprint) of the record at this offset, if one is asked for and there.
    async fn fingerprint(&self, partition: &Partition, at: Option<Offset>) -> Outcome<Option<u64>> {
        let Some(at) = at else { return Ok(None) };
        Ok(self.read(partition, at, at.next()).await?.at(at).map(Record::fingerprint))
    }

    /// Returns the offset of the first record of `partition` that was written at `at` or later, if there is one.
    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>>;

    /// Returns where reading of `partition` was last marked to continue.
    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>>;

    /// Marks where reading is to continue. Repeating it is safe: the last mark counts.
    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_a_run_is_that_of_its_records_and_an_empty_one_is_not_free() {
        let mut records = Records::default();
        records.push(Offset(0), UnixMillis(0), Some(b"key"), Some(b"value"), [("name", Some(&b"v"[..]))]);
        records.push(Offset(1), UnixMillis(0), None, None, []);
        assert_eq!(records.weight(), records.iter().map(Record::weight).sum::<usize>());
        assert!(records.get(1).unwrap().weight() > 0);
    }
}
