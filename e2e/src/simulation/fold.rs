//! What the records that the fences have passed come to: the members of every set, and every cell. Each record of a sum
//! counts once, also where a fence was moved back.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use tally_core::ids::{CounterId, UserId};

use super::events::{Deed, Events, Record};
use super::moves::{Fence, Move};

/// The fold of all moves so far.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    /// Moves that are in it.
    taken: usize,
    /// Who is in which set.
    pub(crate) members: BTreeSet<(CounterId, UserId)>,
    /// What each partition has added to which sum.
    pub(crate) cells: BTreeMap<(CounterId, u32), i64>,
    /// Records of sums that were counted.
    counted: BTreeSet<(u32, u64)>,
    /// Records that were passed while no definition in force had their action.
    pub(crate) unknown: BTreeSet<(u32, u64)>,
    /// The greatest offset of each fence.
    greatest: BTreeMap<u32, u64>,
}

impl Fold {
    /// How many moves are in it.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Takes in what moved since. A fence goes back only by an operator's command, which says how far it was, or by hand;
    /// `cfg` never goes back.
    pub(crate) fn follow(&mut self, events: &Events, moves: &[Move]) -> anyhow::Result<()> {
        for Move { partition, before, after, by_hand } in moves {
            self.taken += 1;
            let greatest = self.greatest.entry(*partition).or_default();
            let reset = before.is_some_and(|before| after.cfg > before.cfg && after.redo >= *greatest);
            *greatest = after.offset.max(*greatest);
            let Some(before) = before else { continue };
            ensure!(
                after.cfg >= before.cfg && (after.offset >= before.offset || reset || *by_hand),
                "the fence of partition {partition} went from {before:?} to {after:?}"
            );
            // What an operator moves forward is passed over; no schedule does.
            for offset in before.offset..after.offset {
                let record = events.record(*partition, offset).context("a fence is past the end of its log")?;
                self.pass(*partition, offset, record, before)?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, partition: u32, offset: u64, record: &Record, under: &Fence) -> anyhow::Result<()> {
        let Some(deed) = &record.deed else { return Ok(()) };
        if u64::from(record.needs) > under.defs.max(1) {
            ensure!(record.early, "{partition}:{offset} was said after it was defined, and passed under {under:?}");
            self.unknown.insert((partition, offset));
            return Ok(());
        }
        match deed {
            Deed::Member { counter, member, present } => {
                let member = (counter.clone(), member.clone());
                if *present {
                    self.members.insert(member)
                } else {
                    self.members.remove(&member)
                };
            }
            Deed::Amount { counter, n } if self.counted.insert((partition, offset)) => {
                *self.cells.entry((counter.clone(), partition)).or_default() += n;
            }
            Deed::Amount { .. } => ensure!(
                under.redo > under.offset,
                "{partition}:{offset} adds to a sum that has it, and was passed again under {under:?}"
            ),
        }
        Ok(())
    }

    /// What each counter comes to.
    pub(crate) fn totals(&self) -> BTreeMap<&CounterId, i64> {
        let mut totals = BTreeMap::new();
        for (counter, _) in &self.members {
            *totals.entry(counter).or_default() += 1;
        }
        for ((counter, _), n) in &self.cells {
            *totals.entry(counter).or_default() += n;
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterKind, CounterName, PostId};

    use super::*;

    fn counter(name: &str, kind: CounterKind) -> CounterId {
        CounterId { post: PostId::new("p").expect("an id"), name: CounterName::new(name, kind).expect("a name") }
    }

    fn fence(offset: u64, cfg: u64, redo: u64) -> Fence {
        Fence { offset, cfg, defs: 2, redo }
    }

    fn moved(before: Fence, after: Fence) -> Move {
        Move { partition: 0, before: Some(before), after, by_hand: false }
    }

    /// Three events of a sum of definition 2, of 1, 2 and 4.
    fn events() -> Events {
        let amount = |n| Deed::Amount { counter: counter("views", CounterKind::Sum), n };
        Events::of(0, [1, 2, 4].map(|n| Record { deed: Some(amount(n)), needs: 2, early: false }).into())
    }

    #[test]
    fn a_record_of_a_sum_counts_once_and_is_passed_again_only_by_a_fence_that_says_so() {
        let mut fold = Fold::default();
        fold.follow(&events(), &[moved(fence(0, 0, 0), fence(3, 0, 0))]).expect("it holds");
        fold.follow(&events(), &[moved(fence(3, 0, 0), fence(1, 1, 3))]).expect("a reset says how far it was");
        fold.follow(&events(), &[moved(fence(1, 1, 3), fence(3, 1, 3))]).expect("the cell is read first");
        assert_eq!(fold.totals().into_values().collect::<Vec<_>>(), [7]);
        let edited = Move { by_hand: true, ..moved(fence(3, 1, 3), fence(0, 1, 0)) };
        fold.follow(&events(), &[edited]).expect("it is told");
        assert!(
            fold.follow(&events(), &[moved(fence(0, 1, 0), fence(1, 1, 0))]).is_err(),
            "nothing says how far it was"
        );
    }

    #[test]
    fn a_fence_that_goes_back_by_itself_breaks_a_law() {
        for after in [fence(2, 0, 0), fence(2, 1, 2), fence(3, 0, 9)] {
            let mut fold = Fold::default();
            fold.follow(&events(), &[moved(fence(0, 0, 0), fence(3, 1, 0))]).expect("it holds");
            assert!(fold.follow(&events(), &[moved(fence(3, 1, 0), after)]).is_err(), "{after:?}");
        }
    }

    #[test]
    fn a_record_said_after_its_definition_is_never_passed_without_it() {
        let likes_alone = Fence { defs: 0, ..fence(0, 0, 0) };
        let passed = moved(likes_alone, Fence { offset: 1, ..likes_alone });
        assert!(Fold::default().follow(&events(), &[passed]).is_err());
    }
}
