//! The table in small: one member's row under each of three homes, the map, and the fence.

use std::sync::Arc;

use tally_core::batch::Change;
use tally_core::consume::Transaction;
use tally_core::fence::{Advance, Commit, Fence, Offset, Refused, TopicId};
use tally_core::homes::{CounterMap, DecidedBy};
use tally_core::ids::ShardCount;
use tally_core::time::UnixMillis;

/// The homes: the deployment's first. The member is in another row key under each.
pub(super) const HOMES: [u64; 3] = [1, 2, 4];

/// Such a member.
pub(super) const MEMBER: &str = "a";

pub(super) fn shards(home: usize) -> ShardCount {
    ShardCount::new(HOMES[home]).expect("a power of two")
}

/// Which home has so many shards.
pub(super) fn home_of(shards: ShardCount) -> usize {
    HOMES.iter().position(|home| *home == u64::from(shards.get())).expect("one of the homes")
}

/// The map in small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Map {
    /// A bit for each home.
    pub(super) homes: u8,
    pub(super) newest: usize,
    pub(super) at: u64,
}

impl Default for Map {
    fn default() -> Self {
        Self { homes: 1, newest: 0, at: 0 }
    }
}

/// The map as it is stored.
pub(super) fn known(map: Map) -> CounterMap {
    let homes = (0..HOMES.len()).filter(|home| map.homes & (1 << home) != 0).map(shards).collect();
    CounterMap::new(homes, shards(map.newest), None, DecidedBy::Heat, UnixMillis(map.at)).expect("newest is a home")
}

/// A transaction under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) advance: Advance,
    /// The home, and whether the row is put there.
    row: Option<(usize, bool)>,
}

impl Request {
    pub(super) fn of(transaction: &Transaction) -> Self {
        let row = transaction.changes().into_iter().next().map(|change| {
            let Change::Member { home, present, .. } = change else { unreachable!("there is no sum") };
            (home.map_or(0, home_of), present)
        });
        Self { advance: transaction.advance.clone(), row }
    }

    /// One order for equal sets of requests.
    pub(super) fn order(&self) -> (Offset, Offset, Option<(usize, bool)>) {
        (self.advance.from.offset, self.advance.to, self.row)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    fence: Arc<Fence>,
    /// A bit for each home that has the row.
    pub(super) rows: u8,
    pub(super) map: Option<Map>,
    /// How often a change was announced.
    pub(super) announced: u64,
}

impl Default for Table {
    fn default() -> Self {
        let fence = Arc::new(Fence::new(Offset(0), 0, TopicId("likes".into())));
        Self { fence, rows: 0, map: None, announced: 0 }
    }
}

impl Table {
    pub(super) fn fence(&self) -> Fence {
        Fence::clone(&self.fence)
    }

    pub(super) fn offset(&self) -> usize {
        usize::try_from(self.fence.offset.0).expect("a log is short")
    }

    /// A map is put, if the one that it replaces stands.
    pub(super) fn put(&mut self, seen: Option<Map>, map: Map) {
        if self.map == seen {
            self.map = Some(map);
        }
    }

    /// A transaction reaches the table.
    pub(super) fn land(&mut self, request: &Request) -> Commit {
        if !request.advance.admitted_by(Some(&self.fence)) {
            return Commit::Cancelled(vec![Refused::Condition]);
        }
        match request.row {
            Some((home, true)) => self.rows |= 1 << home,
            Some((home, false)) => self.rows &= !(1 << home),
            None => {}
        }
        self.fence = Arc::new(request.advance.reached());
        Commit::Done
    }
}

#[test]
fn the_member_is_in_another_row_key_under_each_home() {
    let [one, two, three] = [0, 1, 2].map(|home| shards(home).shard_of(MEMBER));
    assert!(one != two && two != three && one != three, "{one} {two} {three}");
}
