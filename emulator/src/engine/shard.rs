//! One shard of a stream: a range of the key space, its records, and its end. The stream decides which shard a change goes to.

use super::key::Key;
use super::log::{Log, Record};
use crate::clock::Millis;

/// A shard, which is open until it has an end.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) id: String,
    pub(crate) parent: Option<String>,
    /// The range: its first position, and the first one after it; `None` is the end of the key space.
    pub(crate) low: Key,
    pub(crate) high: Option<Key>,
    pub(crate) created: Millis,
    /// No record of this shard has a smaller sequence number.
    pub(crate) start: u64,
    /// Set when the shard is closed. No record of this shard has a greater sequence number.
    pub(crate) end: Option<End>,
    pub(crate) log: Log,
    /// The sequence number of the last trimmed record.
    pub(crate) trimmed: u64,
    /// The number of records ever written to it.
    pub(crate) written: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) sequence: u64,
    pub(crate) closed: Millis,
}

impl Shard {
    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// The greatest sequence number that this shard knows.
    pub(crate) fn last_sequence(&self) -> u64 {
        match self.end {
            Some(end) => end.sequence,
            None => self.log.last().map_or(self.trimmed, |last| last.sequence).max(self.start),
        }
    }

    pub(crate) fn append(&mut self, record: Record) {
        self.written += 1;
        self.log.push(record);
    }

    /// Drops every record older than `horizon`.
    pub(crate) fn trim_older(&mut self, horizon: Millis) -> usize {
        self.trim_while(|record| record.created < horizon)
    }

    /// Drops every record up to a sequence number.
    pub(crate) fn trim_to(&mut self, sequence: u64) -> usize {
        self.trim_while(|record| record.sequence <= sequence)
    }

    fn trim_while(&mut self, gone: impl Fn(&Record) -> bool) -> usize {
        let mut dropped = 0;
        while let Some(first) = self.log.first().filter(|first| gone(first)) {
            self.trimmed = first.sequence;
            self.log.trim_first();
            dropped += 1;
        }
        dropped
    }

    /// Moves the newest record before up to `places` records of other items that no reader can have seen yet.
    pub(crate) fn reorder_newest(&mut self, places: usize, now: Millis, window: Millis) -> usize {
        let Some(newest) = self.log.last() else { return 0 };
        let item = key_text(newest).map(<[u8]>::to_vec);
        let may_be_overtaken = |record: &Record| {
            record.visible > now && record.created.saturating_add(window) > now && key_text(record) != item.as_deref()
        };
        let free = self.log.newest().skip(1).take(places).take_while(|record| may_be_overtaken(record)).count();
        (0..free).take_while(|back| self.log.swap_with_newest(*back)).count()
    }
}

/// The key attributes of a record's item.
pub(crate) fn key_text(record: &Record) -> Option<&[u8]> {
    record.new.as_ref().or(record.old.as_ref()).map(super::image::Image::key_members)
}
