//! That no stream shard is forgotten: each known one is closed, read by some worker, waiting for its parent, or reported.

use std::collections::{BTreeMap, BTreeSet};

use super::{Effect, Shards, Wait};
use crate::fault::Fault;
use crate::ids::StreamShardId;

/// What has become of a known stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// All of it is in the counters, or lost under a gap.
    Closed,
    /// Read by this worker.
    Here,
    /// Read by another.
    Elsewhere,
    /// Not to be read yet: a parent is not closed, or it is listed no more.
    Waiting,
    /// To be read, and no worker reads it; or each that tries finds it gone.
    Orphaned,
}

impl Place {
    /// Every place there is.
    pub const ALL: [Self; 5] = [Self::Closed, Self::Here, Self::Elsewhere, Self::Waiting, Self::Orphaned];

    /// The place, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
            Self::Waiting => "waiting",
            Self::Orphaned => "orphaned",
        }
    }
}

/// How well the stream is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How many known stream shards are in each place; `None` where that could not be seen.
    pub places: Option<BTreeMap<Place, usize>>,
    /// What is not as it should be.
    pub trouble: Option<Trouble>,
}

/// Why the stream is not followed as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// A look failed; the next may not.
    #[error("cannot look: {0}")]
    Unknown(Fault),
    /// The table's stream is none that can be followed.
    #[error("{0}")]
    Refused(String),
    /// Nothing can be read.
    #[error("the stream has no open shard: nothing that is written now is counted")]
    NoOpenShard,
    /// Stream shards to be read that no worker has read for too long.
    #[error("read by no worker: {}", .0.iter().map(StreamShardId::as_str).collect::<Vec<_>>().join(", "))]
    Unread(Vec<StreamShardId>),
}

impl Health {
    pub(super) fn unknown(fault: Fault) -> Self {
        Self { places: None, trouble: Some(Trouble::Unknown(fault)) }
    }
}

impl Shards {
    /// What has become of each known stream shard. One that is orphaned has some time to find a reader.
    pub(super) fn health(&mut self, effects: &mut Vec<Effect>) -> Health {
        let places = self.places();
        let is_orphaned = |shard: &&StreamShardId| places[*shard] == Place::Orphaned;
        let orphans: BTreeSet<_> = places.keys().filter(is_orphaned).cloned().collect();
        self.unread.retain(|shard, _| orphans.contains(shard));
        for shard in orphans {
            self.unread.entry(shard).or_insert_with_key(|shard| {
                effects.push(Effect::Wait(Wait::Unread(shard.clone()), self.rules.unread));
                false
            });
        }
        let unread: Vec<_> =
            self.unread.iter().filter(|(_, too_long)| **too_long).map(|(shard, _)| shard.clone()).collect();
        let trouble = if let Some(refused) = &self.listing.refused {
            Some(Trouble::Refused(refused.clone()))
        } else if places.values().all(|place| *place == Place::Closed) {
            Some(Trouble::NoOpenShard)
        } else if !unread.is_empty() {
            Some(Trouble::Unread(unread))
        } else {
            None
        };
        let count = |place| places.values().filter(|other| **other == place).count();
        Health { places: Some(Place::ALL.into_iter().map(|place| (place, count(place))).collect()), trouble }
    }

    fn places(&self) -> BTreeMap<StreamShardId, Place> {
        let lineage = &self.picture.lineage;
        let readable: BTreeSet<_> = lineage.readable().map(|shard| &shard.id).collect();
        let numbered = lineage.checkpoints().map(|shard| {
            let place = match &shard.id {
                _ if shard.closed => Place::Closed,
                id if self.is_here(id) => Place::Here,
                id if self.is_elsewhere(id) => Place::Elsewhere,
                id if readable.contains(id) => Place::Orphaned,
                _ => Place::Waiting,
            };
            (shard.id.clone(), place)
        });
        let unnumbered = lineage.unnumbered().into_iter().map(|shard| (shard.clone(), Place::Waiting));
        numbered.chain(unnumbered).collect()
    }

    fn is_here(&self, shard: &StreamShardId) -> bool {
        let is_read = self.reading.get(shard).is_some_and(|reader| !reader.is_gone);
        is_read && !self.gone.contains(shard) || self.ends.contains_key(shard)
    }

    fn is_elsewhere(&self, shard: &StreamShardId) -> bool {
        self.rules.sharing.as_ref().is_some_and(|sharing| self.leases.is_elsewhere(shard, &sharing.me))
    }
}
