//! How an audit is cut into segments, the same for everybody who takes part in it.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tally_core::ports::Segment;
use tally_core::time::UnixMillis;

/// What an audit covers, and in how many parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Parts of the likes table; none where only counters that changed are looked at.
    pub(crate) rows: u32,
    /// Parts of the counts table.
    pub(crate) counters: u32,
    /// Only counters that have changed since.
    pub(crate) since: Option<UnixMillis>,
}

/// What one segment is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The likes table.
    Rows(Segment),
    /// The counts table.
    Counters(Segment),
}

impl Plan {
    /// Everything, by processes that scan `at_once` parts each.
    pub(crate) fn full(at_once: u32) -> Self {
        Self { rows: (at_once * 2).max(1), counters: (at_once / 2).max(1), since: None }
    }

    /// What has changed since.
    pub(crate) fn since(at_once: u32, since: UnixMillis) -> Self {
        Self { rows: 0, since: Some(since), ..Self::full(at_once) }
    }

    pub(super) fn row_segments(self) -> Range<u32> {
        0..self.rows
    }

    pub(super) fn counter_segments(self) -> Range<u32> {
        self.rows..self.rows + self.counters
    }

    pub(super) fn part(self, index: u32) -> Part {
        if index < self.rows {
            Part::Rows(Segment { index, of: self.rows })
        } else {
            Part::Counters(Segment { index: index - self.rows, of: self.counters })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_both_tables_is_one_segment() {
        let plan = Plan::full(4);
        let parts: Vec<Part> = plan.row_segments().chain(plan.counter_segments()).map(|n| plan.part(n)).collect();
        assert_eq!(parts.len(), 10);
        assert_eq!(parts[7], Part::Rows(Segment { index: 7, of: 8 }));
        assert_eq!(parts[9], Part::Counters(Segment { index: 1, of: 2 }));
        let changed = Plan::since(4, UnixMillis(1));
        assert_eq!((changed.row_segments().len(), changed.part(0)), (0, Part::Counters(Segment { index: 0, of: 2 })));
    }
}
