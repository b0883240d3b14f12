//! A prefix being gathered: its entries, written as they come, by partition of the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::entry;
use super::line::Outgoing;
use super::{Change, Seconds};
use crate::event::partition_of;
use crate::ids::{Ordinal, Sequence};
use crate::tally::Record;
use crate::time::UnixMillis;

/// The most bytes of entries in one message.
const MESSAGE: usize = 512 * 1024;
/// The most bytes of entries in one prefix.
const PREFIX: usize = 4 * 1024 * 1024;

/// The prefix has to be sealed before this record.
#[derive(Debug)]
pub(super) struct Full;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathered {
    parts: BTreeMap<u32, Vec<u8>>,
    /// The last record, also where it became no entry.
    pub(super) last: Option<Sequence>,
    pub(super) records: usize,
    pub(super) bytes: usize,
    /// When its records were written.
    pub(super) seconds: Option<Seconds>,
    /// When its latest one was.
    pub(super) newest: UnixMillis,
    /// When its first record was handed in.
    pub(super) opened: Option<Duration>,
}

impl Gathered {
    pub(super) fn push(
        &mut self,
        record: &Record,
        change: Option<&Change>,
        partitions: u32,
        now: Duration,
    ) -> Result<(), Full> {
        if let Some(change) = change {
            self.write(change, partition_of(change.subject.as_bytes(), partitions))?;
        }
        let second = Seconds::of(record.written);
        self.seconds = Some(self.seconds.map_or(second, |seconds| seconds.and(second)));
        self.newest = self.newest.max(record.written);
        self.last = Some(record.sequence);
        self.records += 1;
        self.opened.get_or_insert(now);
        Ok(())
    }

    fn write(&mut self, change: &Change, partition: u32) -> Result<(), Full> {
        let part = self.parts.entry(partition).or_default();
        let before = part.len();
        if before > 0 {
            part.push(b',');
        }
        change.write(part);
        let grown = part.len() - before;
        if before > 0 && (part.len() > MESSAGE || self.bytes + grown > PREFIX) {
            part.truncate(before);
            return Err(Full);
        }
        if before == 0 && self.bytes > 0 && self.bytes + grown > PREFIX {
            self.parts.remove(&partition);
            return Err(Full);
        }
        self.bytes += grown;
        Ok(())
    }

    /// One message for each partition that has entries.
    pub(super) fn messages(&self, shard: Ordinal) -> Vec<Arc<Outgoing>> {
        let message = |(partition, entries): (&u32, &Vec<u8>)| {
            Arc::new(Outgoing { partition: *partition, shard, value: entry::value(shard, entries) })
        };
        self.parts.iter().map(message).collect()
    }
}
