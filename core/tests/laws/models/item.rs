//! A counter item as part of a model's state.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use tally_core::counter::{Counter, ShardTally, Update};
use tally_core::ids::Shard;

/// A counter item, without what decides nothing: its version and the time of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Item(Counter);

impl Item {
    pub(super) fn new(counter: Counter) -> Self {
        Self(Counter { version: 0, ..counter })
    }

    /// The item after `update`, whatever its conditions say.
    pub(super) fn after(&self, update: &Update) -> Self {
        Self::new(self.0.clone().updated(update).expect("a model counts in single digits"))
    }

    pub(super) fn tally(&self, shard: Shard) -> ShardTally {
        self.0.shards.get(&shard).cloned().unwrap_or_default()
    }
}

impl Deref for Item {
    type Target = Counter;

    fn deref(&self) -> &Counter {
        &self.0
    }
}

impl Hash for Item {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.watermarks.floor().hash(state);
        self.0.watermarks.marks().hash(state);
        for (shard, tally) in &self.0.shards {
            (shard, tally.rows, tally.feeder, tally.switches, tally.suspect).hash(state);
            tally.window.map(|window| (window.run, window.rows)).hash(state);
        }
    }
}
