//! How far the stream had been applied at one moment, so that a counter read later can tell whether it has changed since.

use std::collections::BTreeMap;

use crate::counter::Counter;
use crate::ids::{Ordinal, Sequence};
use crate::lineage::Lineage;

/// Everything that every counter was sure to have at one moment: what the checkpoints said then.
///
/// A checkpoint moves only once all records up to it are answered, so a counter none of whose watermarks lies beyond
/// has taken nothing from the stream since. Unlike a time in the item, a late copy of an update cannot forge this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Horizon {
    /// By stream shard; `None` where all of it was applied.
    reached: BTreeMap<Ordinal, Option<Sequence>>,
    closed_through: Option<Ordinal>,
}

impl Horizon {
    /// The horizon that these checkpoints state. A shard nothing was applied of yet has none.
    pub fn of(lineage: &Lineage) -> Self {
        let reached = lineage.checkpoints().filter_map(|shard| match (shard.closed, shard.sequence) {
            (true, _) => Some((shard.ordinal, None)),
            (false, sequence) => Some((shard.ordinal, Some(sequence?))),
        });
        Self { reached: reached.collect(), closed_through: lineage.closed_through() }
    }

    /// Whether `counter`, read later, has taken nothing from the stream since. An item that is not there never has.
    pub fn covers(&self, counter: Option<&Counter>) -> bool {
        let Some(counter) = counter else { return true };
        let floor = counter.watermarks.floor().is_none_or(|floor| self.is_finished(floor));
        floor && counter.watermarks.marks().iter().all(|(shard, mark)| self.has(*shard, *mark))
    }

    fn has(&self, shard: Ordinal, mark: Sequence) -> bool {
        match self.reached.get(&shard) {
            Some(Some(reached)) => mark <= *reached,
            Some(None) => true,
            None => self.is_finished(shard),
        }
    }

    fn is_finished(&self, shard: Ordinal) -> bool {
        self.closed_through.is_some_and(|through| shard <= through)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::Checkpoint;
    use crate::time::UnixMillis;
    use crate::watermark::Watermarks;

    fn checkpoint(ordinal: u64, sequence: Option<u64>, closed: bool) -> Checkpoint {
        let id = ordinal.to_string().as_str().into();
        let sequence = sequence.map(Sequence::from);
        Checkpoint { id, parent: None, ordinal: Ordinal(ordinal), sequence, closed, at: UnixMillis(0) }
    }

    fn counter(marks: &[(u64, u64)], floor: Option<u64>) -> Counter {
        let marks = marks.iter().map(|(shard, mark)| (Ordinal(*shard), Sequence::from(*mark))).collect();
        Counter { watermarks: Watermarks::new(marks, floor.map(Ordinal)), ..Counter::default() }
    }

    fn horizon() -> Horizon {
        let shards = [checkpoint(2, None, true), checkpoint(3, Some(70), false), checkpoint(4, None, false)];
        Horizon::of(&Lineage::new(shards, [], Some(Ordinal(1))))
    }

    #[test]
    fn a_counter_within_the_horizon_has_not_changed_since() {
        let horizon = horizon();
        assert!(horizon.covers(None));
        for marks in [&[(3, 70)][..], &[(3, 12), (2, 999)], &[(1, 999)], &[]] {
            assert!(horizon.covers(Some(&counter(marks, None))), "{marks:?}");
        }
    }

    #[test]
    fn a_counter_beyond_the_horizon_may_have_changed_since() {
        let horizon = horizon();
        for marks in [&[(3, 71)][..], &[(3, 12), (4, 1)], &[(5, 1)]] {
            assert!(!horizon.covers(Some(&counter(marks, None))), "{marks:?}");
        }
    }

    #[test]
    fn a_floor_beyond_the_horizon_may_hide_what_was_applied_since() {
        assert!(horizon().covers(Some(&counter(&[(3, 70)], Some(2)))));
        assert!(!horizon().covers(Some(&counter(&[], Some(3)))));
    }
}
