//! Which row keys an audit has met rows of, as fingerprints, so that a count without rows is told without asking for
//! each.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashSet;

use super::{Doubt, Horizon, Wrong};
use crate::counter::Counter;
use crate::ids::{CounterId, RowKey};

/// Fingerprints kept, of eight bytes each; a larger table has its counts without rows looked up one by one.
const MOST: usize = 1_000_000;

/// Row keys met by one process. Two keys share a fingerprint of 64 bits less than once in ten million audits of a million keys.
#[derive(Debug, Default)]
pub struct MetKeys {
    keys: HashSet<u64, FixedState>,
    /// Segments that this process has scanned from end to end.
    segments: u32,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Rows of it were compared.
    Yes,
    /// The whole table was scanned here, and there was none of it.
    No,
    /// It was not met here, which says nothing: other processes scanned a part, or too many keys were met.
    Unknown,
}

impl MetKeys {
    /// Rows of `key` were met.
    pub fn add(&mut self, key: &RowKey) {
        if self.keys.len() < MOST {
            self.keys.insert(fingerprint(key));
        }
    }

    /// One more segment was scanned here from its first row to its last.
    pub fn whole_segment(&mut self) {
        self.segments += 1;
    }

    /// Whether all of the table, scanned in `segments` parts, was scanned here.
    pub fn is_whole(&self, segments: u32) -> bool {
        segments > 0 && self.segments == segments
    }

    /// What is known of `key`, where rows are scanned in `segments` parts.
    pub fn met(&self, key: &RowKey, segments: u32) -> Met {
        let all = self.is_whole(segments) && self.keys.len() < MOST;
        match self.keys.contains(&fingerprint(key)) {
            true => Met::Yes,
            false if all => Met::No,
            false => Met::Unknown,
        }
    }
}

/// The row keys of a counter that the scan of the rows, in `segments` parts, has not settled, and how many it proves that
/// no row was met of. `began` is what every counter was sure to have before the first row was read: one that has changed
/// since may count rows that came behind the scan.
pub fn in_doubt(
    id: &CounterId,
    counter: &Counter,
    met: &MetKeys,
    segments: u32,
    began: &Horizon,
) -> (u64, Vec<(RowKey, Doubt)>) {
    let (unchanged, mut proved, mut doubts) = (began.covers(Some(counter)), 0, Vec::new());
    for shard in counter.shards.keys() {
        let key = RowKey { counter: id.clone(), shard: *shard };
        match met.met(&key, segments) {
            Met::Yes => {}
            Met::No if unchanged => match Wrong::with(&key, 0, Some(counter)) {
                Some(wrong) => doubts.push((key, Doubt::Wrong(wrong))),
                None => proved += 1,
            },
            Met::No | Met::Unknown => doubts.push((key, Doubt::UNKNOWN)),
        }
    }
    (proved, doubts)
}

fn fingerprint(key: &RowKey) -> u64 {
    FixedState::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_absence_is_known_once_every_segment_was_scanned_here() {
        let (mut met, key) = (MetKeys::default(), |text: &str| text.parse::<RowKey>().unwrap());
        met.add(&key("p#1"));
        met.whole_segment();
        assert_eq!(met.met(&key("p#1"), 2), Met::Yes);
        for other in ["p#2", "p1#0", "q#1", "p##1", "p#retweets.1"] {
            assert_eq!(met.met(&key(other), 2), Met::Unknown, "{other}");
        }
        met.whole_segment();
        assert_eq!(met.met(&key("p#2"), 2), Met::No);
        assert_eq!(MetKeys::default().met(&key("p#2"), 0), Met::Unknown, "an audit of counters alone scans no rows");
    }
}
