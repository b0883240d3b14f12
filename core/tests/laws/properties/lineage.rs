//! The tree of stream shards, for random forests and for listings that make no sense.

use std::collections::BTreeSet;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use tally_core::counter::ClosedAncestry;
use tally_core::ids::{Ordinal, StreamShardId};
use tally_core::lineage::{Checkpoint, Lineage, Listed};
use tally_core::time::UnixMillis;

use super::cases;

fn name(shard: usize) -> StreamShardId {
    // Names say nothing about who came first.
    format!("shard-{:03}", shard * 37 % 101).as_str().into()
}

fn listed(shard: usize, parent: Option<usize>) -> Listed {
    Listed { id: name(shard), parent: parent.map(name), ended: false }
}

fn checkpoint(shard: usize, parent: Option<usize>, ordinal: u64, closed: bool) -> Checkpoint {
    let parent = parent.map(name);
    Checkpoint { id: name(shard), parent, ordinal: Ordinal(ordinal), sequence: None, closed, at: UnixMillis(0) }
}

/// The parent of each shard: an earlier one, or none.
fn forest() -> impl Strategy<Value = Vec<Option<usize>>> {
    proptest::collection::vec(proptest::option::weighted(0.8, any::<Index>()), 1..20).prop_map(|parents| {
        let parent =
            |(shard, parent): (usize, Option<Index>)| parent.filter(|_| shard > 0).map(|parent| parent.index(shard));
        parents.into_iter().enumerate().map(parent).collect()
    })
}

/// Any shard may name any other as its parent, also itself and one that is not listed.
fn garbage() -> impl Strategy<Value = Vec<Option<usize>>> {
    proptest::collection::vec(proptest::option::of(0..25usize), 1..20)
}

fn listing(parents: &[Option<usize>]) -> Vec<Listed> {
    parents.iter().enumerate().map(|(shard, parent)| listed(shard, *parent)).collect()
}

/// Every shard with its number, which is its place here, and whether it is closed.
fn numbered(parents: &[Option<usize>], closed: &[bool]) -> Vec<Checkpoint> {
    let checkpoint = |(shard, (parent, closed)): (usize, (&Option<usize>, &bool))| {
        checkpoint(shard, *parent, shard as u64 + 1, *closed)
    };
    parents.iter().zip(closed).enumerate().map(checkpoint).collect()
}

fn ancestors(parents: &[Option<usize>], shard: usize) -> Vec<usize> {
    std::iter::successors(parents[shard], |parent| parents[*parent]).collect()
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn numbers_are_given_to_ancestors_first_and_to_each_shard_once(parents in forest(), known in any::<Index>()) {
        // The first few have numbers already, as they have when a listing grows.
        let known = known.index(parents.len());
        let checkpoints = numbered(&parents[..known], &vec![false; known]);
        let lineage = Lineage::new(checkpoints, listing(&parents), None);
        let order: Vec<_> = lineage.unnumbered();
        prop_assert_eq!(order.len(), parents.len() - known);
        let place = |shard: usize| order.iter().position(|id| **id == name(shard));
        for (shard, parent) in parents.iter().enumerate().skip(known) {
            prop_assert!(place(shard).is_some());
            prop_assert!(parent.is_none_or(|parent| place(parent) < place(shard)));
        }
    }

    #[test]
    fn a_listing_without_sense_ends_and_numbers_each_shard_once(parents in garbage()) {
        let lineage = Lineage::new([], listing(&parents), None);
        let order = lineage.unnumbered();
        let different: BTreeSet<_> = order.iter().collect();
        prop_assert_eq!(different.len(), order.len());
        prop_assert!(order.len() >= parents.len());
        for shard in 0..parents.len() {
            prop_assert!(lineage.closed_ancestors(&name(shard), 99).is_empty());
        }
        prop_assert_eq!(lineage.readable().count(), 0, "nothing is read before it has a number");
    }

    #[test]
    fn a_child_is_never_readable_before_its_parents_are_closed(
        parents in forest(),
        closed in proptest::collection::vec(any::<bool>(), 20),
    ) {
        let lineage = Lineage::new(numbered(&parents, &closed), listing(&parents), None);
        let readable: BTreeSet<_> = lineage.readable().map(|shard| shard.id.clone()).collect();
        for (shard, parent) in parents.iter().enumerate() {
            let expected = !closed[shard] && parent.is_none_or(|parent| closed[parent]);
            prop_assert_eq!(readable.contains(&name(shard)), expected);
        }
        for shard in 0..parents.len() {
            let kin: Vec<_> = ancestors(&parents, shard).into_iter().filter(|kin| closed[*kin]).collect();
            let kin: Vec<_> = kin.into_iter().map(|kin| Ordinal(kin as u64 + 1)).collect();
            for other in (1..=parents.len() as u64).map(Ordinal) {
                prop_assert_eq!(lineage.is_closed_ancestor(other, Ordinal(shard as u64 + 1)), kin.contains(&other));
            }
            prop_assert_eq!(lineage.closed_ancestors(&name(shard), parents.len()), kin);
        }
    }

    #[test]
    fn shards_close_one_after_another_until_all_are_and_the_floor_never_moves_back(
        parents in forest(),
        picks in proptest::collection::vec(any::<Index>(), 20),
    ) {
        let mut closed = vec![false; parents.len()];
        let mut floor = None;
        for pick in picks.iter().take(parents.len()) {
            let lineage = Lineage::new(numbered(&parents, &closed), listing(&parents), floor);
            let readable: Vec<_> = lineage.readable().collect();
            prop_assert!(!readable.is_empty(), "some shard can always be read on");
            let next = readable[pick.index(readable.len())].ordinal;
            closed[usize::try_from(next.0).unwrap() - 1] = true;
            let through = Lineage::new(numbered(&parents, &closed), listing(&parents), floor).closed_through();
            prop_assert!(through >= floor);
            let unbroken = closed.iter().take_while(|closed| **closed).count() as u64;
            prop_assert_eq!(through, (unbroken > 0).then_some(Ordinal(unbroken)));
            floor = through;
        }
        prop_assert_eq!(floor, Some(Ordinal(parents.len() as u64)));
    }
}
