//! Which row keys have moved while an audit scans: as fingerprints, so that two row keys may be taken for one, which costs a
//! look and nothing else.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use tally_core::Set;
use tally_core::changes::{Effect, Entry};
use tally_core::ids::RowKey;

/// Fingerprints kept. Where more row keys have moved, all of them may have.
const MOST: usize = 8_000_000;

/// Row keys of which the log has an entry that changes what is counted.
#[derive(Debug, Default)]
pub(super) struct Moved(Set<u64>);

impl Moved {
    pub(super) fn take(&mut self, entry: &Entry) {
        let is_change = entry.gain() != 0 || matches!(entry.effect, Effect::Unreadable { .. });
        if is_change && self.0.len() < MOST {
            self.0.insert(fingerprint(&entry.key));
        }
    }

    /// Whether the row key may have moved.
    pub(super) fn has(&self, key: &RowKey) -> bool {
        self.0.len() >= MOST || self.0.contains(&fingerprint(key))
    }
}

fn fingerprint(key: &RowKey) -> u64 {
    FixedState::default().hash_one(key)
}
