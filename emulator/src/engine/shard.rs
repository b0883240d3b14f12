//! One shard of a table's change stream: a range of the key space, its records, and its end. The stream decides which
//! shard a change goes to.

use std::collections::VecDeque;

use super::image::Image;
use super::key::Key;
use crate::clock::Millis;

/// One change of one item.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) created: Millis,
    /// No reader sees the record before this time.
    pub(crate) visible: Millis,
    pub(crate) old: Option<Image>,
    pub(crate) new: Option<Image>,
    /// Whether the service deleted the item because it expired.
    pub(crate) by_service: bool,
}

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
    /// The records in ascending order of their sequence numbers.
    pub(crate) log: VecDeque<Record>,
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
            None => self.log.back().map_or(self.trimmed, |last| last.sequence).max(self.start),
        }
    }

    /// Drops records from the oldest on, and returns their number.
    pub(crate) fn trim_while(&mut self, gone: impl Fn(&Record) -> bool) -> usize {
        let mut dropped = 0;
        while let Some(first) = self.log.pop_front_if(|first| gone(first)) {
            self.trimmed = first.sequence;
            dropped += 1;
        }
        dropped
    }

    /// The records after a sequence number.
    pub(crate) fn after(&self, sequence: u64) -> impl Iterator<Item = &Record> {
        self.log.range(self.log.partition_point(|record| record.sequence <= sequence)..)
    }

    /// Moves the newest record before up to `places` records of other items that no reader can have seen yet. Sequence numbers
    /// and times of visibility stay in place.
    pub(crate) fn reorder_newest(&mut self, places: usize, now: Millis, window: Millis) {
        let Some(newest) = self.log.back() else { return };
        let item = key_text(newest);
        let may_be_overtaken = |record: &&Record| {
            record.visible > now && record.created.saturating_add(window) > now && key_text(record) != item
        };
        let free = self.log.iter().rev().skip(1).take(places).take_while(may_be_overtaken).count();
        let last = self.log.len() - 1;
        for at in (last - free..last).rev() {
            let (before, after) = (&self.log[at], &self.log[at + 1]);
            let [before, after] = [before, after].map(|record| (record.sequence, record.visible));
            self.log.swap(at, at + 1);
            (self.log[at].sequence, self.log[at].visible) = before;
            (self.log[at + 1].sequence, self.log[at + 1].visible) = after;
        }
    }
}

/// The key attributes of a record's item.
pub(crate) fn key_text(record: &Record) -> Option<&[u8]> {
    record.new.as_ref().or(record.old.as_ref()).map(Image::key_members)
}
