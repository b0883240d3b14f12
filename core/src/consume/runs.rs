//! Runs of records that were read and are not behind the least fence, and the place up to which they were handed out.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::fence::Offset;
use crate::ports::log::{Record, Records};

/// What may be held for several lanes: no lane runs further ahead of the least.
const MOST_BYTES: usize = 16 << 20;
const MOST_RECORDS: usize = 20_000;

/// A row that the table refuses is put aside with its record, so a run is kept until the least fence has passed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether as much is held as may be.
    pub(super) fn is_full(&self) -> bool {
        self.records >= MOST_RECORDS || self.bytes >= MOST_BYTES
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Records>> {
        self.held.iter()
    }

    /// The offset of the last record there is.
    pub(super) fn last_offset(&self) -> Option<Offset> {
        self.held.back().and_then(|run| run.last_offset())
    }

    /// The next record to hand out, with its run.
    pub(super) fn next(&mut self) -> Option<(&Arc<Records>, Record<'_>)> {
        while self.held.get(self.next.0).is_some_and(|run| self.next.1 >= run.len()) {
            self.next = (self.next.0 + 1, 0);
        }
        let run = self.held.get(self.next.0)?;
        Some((run, run.get(self.next.1)?))
    }

    /// The next record is handed out.
    pub(super) fn handed(&mut self) {
        self.next.1 += 1;
    }

    /// Whether there are records to hand out.
    pub(super) fn has_next(&mut self) -> bool {
        self.next().is_some()
    }

    /// The record at `offset`, with its run.
    pub(super) fn at(&self, offset: Offset) -> Option<(&Arc<Records>, Record<'_>)> {
        let index = self.held.partition_point(|run| run.last_offset().is_none_or(|last| last < offset));
        let run = self.held.get(index)?;
        Some((run, run.at(offset)?))
    }

    /// The first record at `offset` or behind it.
    pub(super) fn first_from(&self, offset: Offset) -> Option<Record<'_>> {
        self.held.iter().find_map(|run| run.between(offset, Offset(u64::MAX)).next())
    }

    /// Lets go of runs that lie before `offset`.
    pub(super) fn release(&mut self, offset: Offset) {
        while let Some(run) = self.held.front()
            && run.last_offset().is_none_or(|last| last < offset)
        {
            self.records -= run.len();
            self.bytes -= run.weight();
            self.held.pop_front();
            let (run, index) = self.next;
            self.next = if run == 0 { (0, 0) } else { (run - 1, index) };
        }
    }
}
