//! An append-only list of stream records that is trimmed at its front. The cost of a push, a trim or a search is at most
//! logarithmic in its length.

use std::collections::VecDeque;

use super::image::Image;
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

/// The number of records in a block. Records are kept in blocks, so that growth never copies them.
const BLOCK: usize = 1024;

/// Records in ascending order of their sequence numbers.
#[derive(Debug, Default)]
pub(crate) struct Log {
    blocks: VecDeque<Vec<Record>>,
    /// The number of trimmed records in the first block.
    skipped: usize,
}

impl Log {
    pub(crate) fn len(&self) -> usize {
        match self.blocks.back() {
            Some(last) => (self.blocks.len() - 1) * BLOCK + last.len() - self.skipped,
            None => 0,
        }
    }

    pub(crate) fn push(&mut self, record: Record) {
        match self.blocks.back_mut() {
            Some(last) if last.len() < BLOCK => last.push(record),
            _ => {
                let mut block = Vec::with_capacity(if self.blocks.is_empty() { 4 } else { BLOCK });
                block.push(record);
                self.blocks.push_back(block);
            }
        }
    }

    pub(crate) fn first(&self) -> Option<&Record> {
        self.blocks.front()?.get(self.skipped)
    }

    pub(crate) fn last(&self) -> Option<&Record> {
        if self.len() == 0 { None } else { self.blocks.back()?.last() }
    }

    pub(crate) fn trim_first(&mut self) {
        self.skipped += 1;
        if self.blocks.front().is_some_and(|block| self.skipped >= block.len()) {
            self.blocks.pop_front();
            self.skipped = 0;
        } else if let Some(record) = self.blocks.front_mut().and_then(|block| block.get_mut(self.skipped - 1)) {
            // The block stays until all its records are trimmed, but the images can be freed now.
            (record.old, record.new) = (None, None);
        }
    }

    /// The records after a sequence number.
    pub(crate) fn after(&self, sequence: u64) -> impl Iterator<Item = &Record> {
        let block = self.blocks.partition_point(|block| block.last().is_none_or(|last| last.sequence <= sequence));
        let within =
            self.blocks.get(block).map_or(0, |block| block.partition_point(|record| record.sequence <= sequence));
        let start = if block == 0 { within.max(self.skipped) } else { within };
        self.blocks.iter().skip(block).enumerate().flat_map(move |(nth, block)| {
            let from = if nth == 0 { start.min(block.len()) } else { 0 };
            &block[from..]
        })
    }

    /// The records, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Record> {
        self.blocks.iter().rev().flat_map(|block| block.iter().rev()).take(self.len())
    }

    /// Swaps the contents of the record `back` places before the newest and the one before it. Sequence numbers and times of
    /// visibility stay in place.
    ///
    /// This works only within one block, which still is a reordering within its bound.
    pub(crate) fn swap_with_newest(&mut self, back: usize) -> bool {
        let Some(block) = self.blocks.back_mut() else { return false };
        let Some(at) = block.len().checked_sub(1 + back).filter(|at| *at > 0) else { return false };
        let (head, tail) = block.split_at_mut(at);
        let (Some(earlier), Some(later)) = (head.last_mut(), tail.first_mut()) else { return false };
        std::mem::swap(earlier, later);
        std::mem::swap(&mut earlier.sequence, &mut later.sequence);
        std::mem::swap(&mut earlier.visible, &mut later.visible);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64) -> Record {
        Record { sequence, created: 0, visible: 0, old: None, new: None, by_service: false }
    }

    #[test]
    fn a_search_finds_the_remaining_records_after_any_trim() {
        let mut log = Log::default();
        for sequence in 1..=5000u64 {
            log.push(record(sequence * 10));
        }
        for trimmed in 0..5000u64 {
            if trimmed % 333 == 0 || trimmed > 4990 {
                for after in [0, 5, trimmed * 10, trimmed * 10 + 3, 10_240, 10_245, 49_990, 50_000] {
                    let expected = (1..=5000).map(|n| n * 10).find(|n| *n > after && *n > trimmed * 10);
                    assert_eq!(log.after(after).next().map(|found| found.sequence), expected, "{trimmed} {after}");
                }
                assert_eq!(log.len() as u64, 5000 - trimmed);
                assert_eq!(log.after(0).count() as u64, 5000 - trimmed);
            }
            assert_eq!(log.first().map(|first| first.sequence), Some((trimmed + 1) * 10));
            log.trim_first();
        }
        assert_eq!((log.len(), log.first().is_none(), log.last().is_none()), (0, true, true));
        log.push(record(60_000));
        assert_eq!(log.after(50_000).count(), 1);
    }
}
