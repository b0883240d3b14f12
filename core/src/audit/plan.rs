//! How an audit is cut into segments, the same for every process that takes part in it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::ports::Segment;
use crate::time::UnixMillis;

/// What an audit covers, and in how many segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Plan {
    /// Segments of the likes table; none where only counters that changed are looked at.
    pub rows: u32,
    /// Segments of the counts table.
    pub counters: u32,
    /// Only counters that have changed since.
    pub since: Option<UnixMillis>,
}

/// The table that a segment of an audit is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentOf {
    /// The likes table.
    Rows(Segment),
    /// The counts table.
    Counters(Segment),
}

impl Plan {
    /// Everything, by processes that scan `at_once` segments each.
    pub fn full(at_once: u32) -> Self {
        Self { rows: (at_once * 2).max(1), counters: (at_once / 2).max(1), since: None }
    }

    /// What has changed since.
    pub fn since(at_once: u32, since: UnixMillis) -> Self {
        Self { rows: 0, since: Some(since), ..Self::full(at_once) }
    }

    /// The segments of the likes table, by number.
    pub fn row_segments(self) -> Range<u32> {
        0..self.rows
    }

    /// The segments of the counts table, by number.
    pub fn counter_segments(self) -> Range<u32> {
        self.rows..self.rows + self.counters
    }

    /// What segment `index` is a part of.
    pub fn segment(self, index: u32) -> SegmentOf {
        if index < self.rows {
            SegmentOf::Rows(Segment { index, of: self.rows })
        } else {
            SegmentOf::Counters(Segment { index: index - self.rows, of: self.counters })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_both_tables_is_one_segment() {
        let plan = Plan::full(4);
        let segments = plan.row_segments().chain(plan.counter_segments());
        let segments: Vec<SegmentOf> = segments.map(|index| plan.segment(index)).collect();
        assert_eq!(segments.len(), 10);
        assert_eq!(segments[7], SegmentOf::Rows(Segment { index: 7, of: 8 }));
        assert_eq!(segments[9], SegmentOf::Counters(Segment { index: 1, of: 2 }));
        let changed = Plan::since(4, UnixMillis(1));
        let counters = SegmentOf::Counters(Segment { index: 0, of: 2 });
        assert_eq!((changed.row_segments().len(), changed.segment(0)), (0, counters));
    }
}
