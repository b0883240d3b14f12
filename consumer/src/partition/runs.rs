//! The records that were read, from the first on that is not finished: a record may still become a dead letter.

use std::collections::VecDeque;
use std::sync::Arc;

use tally_core::ports::log::{Record, Records};
use tally_core::topic::Offset;

/// What a partition may hold.
const MOST_BYTES: usize = 16 << 20;
const MOST_RECORDS: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Runs {
    held: VecDeque<Arc<Records>>,
    /// The next record to hand out: a run, and an index in it.
    next: (usize, usize),
    records: usize,
    bytes: usize,
}

impl Runs {
    pub(super) fn push(&mut self, run: Arc<Records>) {
        self.records += run.len();
        self.bytes += run.weight();
        self.held.push_back(run);
    }

    /// Whether as much is held as may be.
    pub(super) fn is_full(&self) -> bool {
        self.records >= MOST_RECORDS || self.bytes >= MOST_BYTES
    }

    /// The run that the next record to hand out is in, and its index there.
    pub(super) fn next(&mut self) -> Option<(Arc<Records>, usize)> {
        while self.held.get(self.next.0).is_some_and(|run| self.next.1 >= run.len()) {
            self.next = (self.next.0 + 1, 0);
        }
        let run = self.held.get(self.next.0)?;
        Some((Arc::clone(run), self.next.1))
    }

    /// So many records of the run were handed out.
    pub(super) fn handed(&mut self, records: usize) {
        self.next.1 += records;
    }

    /// The run with the record at `offset`.
    pub(super) fn at(&self, offset: Offset) -> Option<Arc<Records>> {
        let index = self.held.partition_point(|run| run.last_offset().is_none_or(|last| last < offset));
        self.held.get(index).cloned()
    }

    /// The first record at `offset` or behind it.
    pub(super) fn first_from(&self, offset: Offset) -> Option<Record<'_>> {
        self.held.iter().find_map(|run| run.between(offset, Offset(u64::MAX)).next())
    }

    /// The offset behind the last record that was read.
    pub(super) fn end(&self) -> Option<Offset> {
        Some(self.held.back()?.last_offset()?.next())
    }

    /// Lets go of runs that lie before `offset`.
    pub(super) fn release(&mut self, offset: Offset) {
        while self.next.0 > 0
            && let Some(run) = self.held.front()
            && run.last_offset().is_none_or(|last| last < offset)
        {
            self.records -= run.len();
            self.bytes -= run.weight();
            self.held.pop_front();
            self.next.0 -= 1;
        }
    }
}
