//! Which row keys an audit has met rows of, as fingerprints, so that a count without rows is told without asking for
//! each.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use foldhash::quality::FixedState;
use hashbrown::HashSet;
use tally_core::ids::RowKey;

/// Fingerprints kept, of eight bytes each; a larger table has its counts without rows looked up one by one.
const MOST: usize = 1_000_000;

/// Row keys met. Two keys share a fingerprint of 64 bits once in ten million audits of a million keys.
#[derive(Debug, Default)]
pub(super) struct Seen {
    keys: Mutex<HashSet<u64, FixedState>>,
    /// Segments that this process has scanned from end to end.
    segments: AtomicU32,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// Rows of it were compared.
    Yes,
    /// The whole table was scanned here, and there was none of it.
    No,
    /// It was not met here, which says nothing: others scanned a part, or too many keys were met.
    Unknown,
}

impl Seen {
    pub(super) fn add(&self, key: &RowKey) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < MOST {
            keys.insert(fingerprint(key));
        }
    }

    /// One more segment was scanned here from its first row to its last.
    pub(super) fn whole_segment(&self) {
        self.segments.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether all of the table, scanned in `segments` parts, was scanned here.
    pub(super) fn is_whole(&self, segments: u32) -> bool {
        segments > 0 && self.segments.load(Ordering::Relaxed) == segments
    }

    /// What is known of `key`, where rows are scanned in `segments` parts.
    pub(super) fn met(&self, key: &RowKey, segments: u32) -> Met {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.is_whole(segments) && keys.len() < MOST;
        match keys.contains(&fingerprint(key)) {
            true => Met::Yes,
            false if all => Met::No,
            false => Met::Unknown,
        }
    }
}

fn fingerprint(key: &RowKey) -> u64 {
    foldhash::quality::FixedState::default().hash_one((&key.counter, key.shard.index()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_absence_is_known_once_everything_was_scanned_here() {
        let (seen, key) = (Seen::default(), |text: &str| text.parse::<RowKey>().unwrap());
        seen.add(&key("p#1"));
        seen.whole_segment();
        assert_eq!(seen.met(&key("p#1"), 2), Met::Yes);
        for other in ["p#2", "p1#0", "q#1", "p##1"] {
            assert_eq!(seen.met(&key(other), 2), Met::Unknown, "{other}");
        }
        seen.whole_segment();
        assert_eq!(seen.met(&key("p#2"), 2), Met::No);
        assert_eq!(Seen::default().met(&key("p#2"), 0), Met::Unknown, "an audit of counters alone scans no rows");
    }
}
