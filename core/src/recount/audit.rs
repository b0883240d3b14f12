//! The cheap pass over everything: which row keys a window need not be opened for.
//!
//! Rows and counters are read at different moments, so that they agree can be luck. A key is *proved* only if its
//! counter did not change from before its scan until every open stream shard had passed the scan's end.

use std::time::Duration;

use crate::counter::Counter;
use crate::ids::{RowKey, Shard};
use crate::time::UnixMillis;
use crate::weight::Weight;

/// Weighs a scan's rows per row key; the rows of a key follow each other, so one key is held at a time.
#[derive(Clone, Debug, Default)]
pub struct RowTally {
    current: Option<RowKeyCount>,
}

/// One row key, how many rows it has, and what they weigh together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKeyCount {
    /// The row key.
    pub key: RowKey,
    /// Its rows.
    pub rows: u64,
    /// The sum of their weights: 128 bits hold that of any number of rows a store could have.
    pub weight: i128,
}

impl RowTally {
    /// Takes the next row's key and weight; yields the key before it once that is complete.
    pub fn push(&mut self, key: &RowKey, weight: Weight) -> Option<RowKeyCount> {
        let weight = i128::from(weight.get());
        match &mut self.current {
            Some(current) if current.key == *key => {
                current.rows += 1;
                current.weight += weight;
                None
            }
            current => current.replace(RowKeyCount { key: key.clone(), rows: 1, weight }),
        }
    }

    /// The last key of the scan.
    pub fn finish(self) -> Option<RowKeyCount> {
        self.current
    }
}

/// What comparing a row key's rows with its counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// They agree; not a proof yet.
    Agrees,
    /// They differ: drift, or a change on its way.
    Differs {
        /// What the rows weigh.
        weight: i128,
        /// What the counter has.
        counted: i64,
    },
    /// The counter has fewer than none.
    Negative,
    /// Two open stream shards have fed it.
    Suspect,
}

/// Compares what the rows of one shard weigh with its counter; an item that is not there counts nothing.
pub fn compare(weight: i128, counter: Option<&Counter>, shard: Shard) -> Finding {
    let tally = counter.and_then(|counter| counter.shards.get(&shard));
    let counted = tally.map_or(0, |tally| tally.rows);
    if tally.is_some_and(|tally| tally.suspect) {
        Finding::Suspect
    } else if counted < 0 {
        Finding::Negative
    } else if i128::from(counted) == weight {
        Finding::Agrees
    } else {
        Finding::Differs { weight, counted }
    }
}

/// When a row key was scanned, and its counter's version around it; an item that is not there has version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The counter's version before the scan of the key began.
    pub version_before: u64,
    /// When the scan of the key ended.
    pub ended: UnixMillis,
}

/// Whether agreement is proof: `version` is the counter's version read after every open stream shard's `at` was seen as
/// in `open`, and no change was made or was still on its way between. `guard` is how far two records of a key may be
/// out of order. Where no stream shard is open the next ones have not been met yet, so nothing is proved.
pub fn proved(scanned: &Scanned, version: u64, open: impl IntoIterator<Item = UnixMillis>, guard: Duration) -> bool {
    let slowest = open.into_iter().min();
    version == scanned.version_before && slowest.is_some_and(|at| at > scanned.ended.plus(guard))
}

/// Whether a gap may close: an audit that began after it was opened has proved or repaired every key.
pub fn gap_may_close(opened: UnixMillis, audit_began: UnixMillis, unsettled: u64) -> bool {
    audit_began > opened && unsettled == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::ShardTally;

    fn key(text: &str) -> RowKey {
        text.parse().unwrap()
    }

    #[test]
    fn rows_are_counted_per_key_in_scan_order() {
        let mut tally = RowTally::default();
        let mut counts = Vec::new();
        for text in ["a#0", "a#0", "b#0", "a#1", "a#1", "a#1"] {
            counts.extend(tally.push(&key(text), Weight::ONE));
        }
        counts.extend(tally.finish());
        let counts: Vec<_> = counts.iter().map(|count| (count.key.to_string(), count.rows)).collect();
        assert_eq!(counts, [("a#0".into(), 2), ("b#0".into(), 1), ("a#1".into(), 3)]);
        assert_eq!(RowTally::default().finish(), None);
    }

    #[test]
    fn a_difference_a_negative_count_and_a_suspicion_are_told_apart() {
        let with = |rows, suspect| {
            let tally = ShardTally { rows, suspect, ..ShardTally::default() };
            Counter { shards: [(key("p#0").shard, tally)].into(), ..Counter::default() }
        };
        let shard = key("p#0").shard;
        assert_eq!(compare(3, Some(&with(3, false)), shard), Finding::Agrees);
        assert_eq!(compare(3, Some(&with(2, false)), shard), Finding::Differs { weight: 3, counted: 2 });
        assert_eq!(compare(0, Some(&with(-1, false)), shard), Finding::Negative);
        assert_eq!(compare(3, Some(&with(3, true)), shard), Finding::Suspect);
        assert_eq!(compare(0, None, shard), Finding::Agrees);
        assert_eq!(compare(1, None, shard), Finding::Differs { weight: 1, counted: 0 });
    }

    #[test]
    fn agreement_is_proof_only_if_nothing_changed_and_nothing_was_under_way() {
        let scanned = Scanned { version_before: 7, ended: UnixMillis(1000) };
        let guard = Duration::from_millis(500);
        assert!(proved(&scanned, 7, [UnixMillis(1501), UnixMillis(9999)], guard));
        assert!(!proved(&scanned, 8, [UnixMillis(1501)], guard), "the counter changed");
        assert!(!proved(&scanned, 7, [UnixMillis(9999), UnixMillis(1500)], guard), "a shard may hold a change back");
        assert!(!proved(&scanned, 7, [], guard), "the next shards may hold a change back");
    }

    #[test]
    fn a_gap_closes_only_by_an_audit_that_began_after_it() {
        assert!(gap_may_close(UnixMillis(5), UnixMillis(6), 0));
        assert!(!gap_may_close(UnixMillis(5), UnixMillis(5), 0));
        assert!(!gap_may_close(UnixMillis(5), UnixMillis(6), 1));
    }
}
