//! What a counter already contains: for each stream shard the last record in it, and a floor up to which every stream shard
//! is finished.
//!
//! The watermark moves in the same write as the count, so a record is counted once, however many workers send it and however
//! often. A floor takes the place of the watermarks of finished shards. Time would be no safe rule for dropping them: a
//! process that stood still signs its old update afresh.

use std::collections::BTreeMap;

use crate::ids::{Ordinal, Sequence};

/// The watermarks of one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watermarks {
    marks: BTreeMap<Ordinal, Sequence>,
    floor: Option<Ordinal>,
}

/// How much of one stream shard a counter contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing of this shard is in the counter.
    Untouched,
    /// Everything up to this record is in the counter.
    Through(Sequence),
    /// All of the shard is in the counter, and it may never change it again: the shard is at or below the floor.
    Finished,
}

impl Watermarks {
    pub fn new(marks: BTreeMap<Ordinal, Sequence>, floor: Option<Ordinal>) -> Self {
        Self { marks, floor }
    }

    /// How much of the stream shard `shard` the counter contains.
    pub fn reach(&self, shard: Ordinal) -> Reach {
        match self.marks.get(&shard) {
            Some(mark) => Reach::Through(*mark),
            None if self.floor.is_some_and(|floor| floor >= shard) => Reach::Finished,
            None => Reach::Untouched,
        }
    }

    /// The condition of an update whose first record is `first`: none of it is in the counter yet.
    pub fn admits(&self, shard: Ordinal, first: Sequence) -> bool {
        match self.reach(shard) {
            Reach::Untouched => true,
            Reach::Through(mark) => mark < first,
            Reach::Finished => false,
        }
    }

    /// The condition of a prune: the floor never moves back.
    pub fn admits_floor(&self, floor: Ordinal) -> bool {
        self.floor.is_none_or(|current| current <= floor)
    }

    /// Everything of `shard` up to `last` is in the counter now.
    pub fn advance(&mut self, shard: Ordinal, last: Sequence) {
        self.marks.insert(shard, last);
    }

    /// Raises the floor and drops the watermarks named, all of them at or below it.
    pub fn prune(&mut self, prune: &Prune) {
        self.floor = Some(prune.floor);
        for shard in &prune.finished {
            self.marks.remove(shard);
        }
    }

    /// What an update of `updating` may prune, when every shard up to `closed_through` is closed. Never that shard's own.
    pub fn prunable(&self, closed_through: Option<Ordinal>, updating: Ordinal) -> Option<Prune> {
        let floor = closed_through.filter(|floor| *floor < updating && self.admits_floor(*floor))?;
        let finished: Vec<Ordinal> = self.marks.range(..=floor).map(|(shard, _)| *shard).take(Prune::MOST).collect();
        (!finished.is_empty()).then_some(Prune { floor, finished })
    }

    /// The watermarks, by stream shard.
    pub fn marks(&self) -> &BTreeMap<Ordinal, Sequence> {
        &self.marks
    }

    /// The floor, once there is one.
    pub fn floor(&self) -> Option<Ordinal> {
        self.floor
    }
}

/// Watermarks to be replaced by a floor, inside an ordinary update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// The new floor: every stream shard up to it is closed, all its records applied.
    pub floor: Ordinal,
    /// The shards at or below the floor whose watermarks the counter still carries.
    pub finished: Vec<Ordinal>,
}

impl Prune {
    /// How many watermarks one update drops at most: its expression has to stay below 4 KB. The next drops more.
    pub const MOST: usize = 100;

    /// What an update of `updating` may prune from a counter whose watermarks were not seen, when every shard up to
    /// `closed_through` is closed: those of `ancestors`, whose place it most likely takes. Dropping one that is not there is
    /// harmless.
    pub fn unseen(closed_through: Option<Ordinal>, updating: Ordinal, ancestors: &[Ordinal]) -> Option<Self> {
        let floor = closed_through.filter(|floor| *floor < updating)?;
        let finished = ancestors.iter().filter(|ancestor| **ancestor <= floor);
        let finished: Vec<Ordinal> = finished.take(Self::MOST).copied().collect();
        (!finished.is_empty()).then_some(Self { floor, finished })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Sequence {
        Sequence::from(n)
    }

    #[test]
    fn an_update_is_admitted_once() {
        let mut marks = Watermarks::default();
        assert!(marks.admits(Ordinal(1), at(10)));
        marks.advance(Ordinal(1), at(20));
        for (first, admitted) in [(10, false), (20, false), (21, true)] {
            assert_eq!(marks.admits(Ordinal(1), at(first)), admitted, "{first}");
        }
        assert!(marks.admits(Ordinal(2), at(1)), "each stream shard has its own");
    }

    #[test]
    fn a_shard_at_or_below_the_floor_is_never_admitted_again() {
        let mut marks = Watermarks::default();
        marks.advance(Ordinal(1), at(20));
        marks.advance(Ordinal(3), at(5));
        let prune = marks.prunable(Some(Ordinal(2)), Ordinal(3)).unwrap();
        marks.prune(&prune);
        assert_eq!(marks.marks().len(), 1);
        for (shard, admitted) in [(1, false), (2, false), (3, true), (4, true)] {
            assert_eq!(marks.admits(Ordinal(shard), at(99)), admitted, "{shard}");
        }
    }

    #[test]
    fn an_update_never_prunes_its_own_shard_nor_lowers_the_floor() {
        let mut marks = Watermarks::default();
        marks.advance(Ordinal(1), at(20));
        assert_eq!(marks.prunable(Some(Ordinal(1)), Ordinal(1)), None);
        assert_eq!(marks.prunable(Some(Ordinal(2)), Ordinal(1)), None);
        assert_eq!(marks.prunable(None, Ordinal(5)), None);
        marks.prune(&Prune { floor: Ordinal(4), finished: vec![] });
        assert_eq!(marks.prunable(Some(Ordinal(3)), Ordinal(9)), None);
        assert!(!marks.admits_floor(Ordinal(3)));
    }

    #[test]
    fn a_counter_not_seen_before_is_pruned_of_closed_ancestors_and_never_at_the_updating_shard_or_above() {
        let ancestors = [Ordinal(6), Ordinal(3), Ordinal(1)];
        let prune = |through| Prune::unseen(through, Ordinal(7), &ancestors);
        assert_eq!(prune(Some(Ordinal(4))).unwrap().finished, [Ordinal(3), Ordinal(1)]);
        assert_eq!(prune(Some(Ordinal(6))).unwrap().finished, ancestors);
        assert_eq!(prune(Some(Ordinal(7))), None);
        assert_eq!(prune(None), None);
        assert_eq!(
            Prune::unseen(Some(Ordinal(4)), Ordinal(7), &[Ordinal(6)]),
            None,
            "nothing to drop, nothing to raise"
        );
        let mut marks = Watermarks::new([(Ordinal(3), at(5)), (Ordinal(7), at(6))].into(), None);
        marks.prune(&prune(Some(Ordinal(4))).unwrap());
        assert_eq!((marks.marks().len(), marks.floor()), (1, Some(Ordinal(4))));
    }

    #[test]
    fn a_prune_drops_so_many_watermarks_and_the_next_one_the_rest() {
        let mut marks = Watermarks::default();
        (1..=150).for_each(|shard| marks.advance(Ordinal(shard), at(5)));
        for left in [50, 0] {
            let prune = marks.prunable(Some(Ordinal(150)), Ordinal(151)).unwrap();
            marks.prune(&prune);
            assert_eq!(marks.marks().len(), left);
        }
        assert_eq!(marks.prunable(Some(Ordinal(150)), Ordinal(151)), None);
    }
}
