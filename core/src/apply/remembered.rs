//! What a stream shard remembers of the counters it has updated: the watermarks that a later update may drop, and where the
//! totals near a threshold stood. What is forgotten is seen again: watermarks are pruned blindly, and a total refuses one
//! update more.

use crate::Map;
use crate::counter::Counter;
use crate::ids::{CounterId, Ordinal};
use crate::milestone::{Ladder, Seen};
use crate::watermark::Watermarks;

/// Counters remembered by one stream shard, in each of two generations.
const LIMIT: usize = 10_000;

/// The same of totals, which take less room and are asked for by every update of a counter above the first threshold.
const TOTALS: usize = 50_000;

/// Two generations: when the younger one is full, what is only in the older one is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generations<V> {
    limit: usize,
    young: Map<CounterId, V>,
    old: Map<CounterId, V>,
}

impl<V> Generations<V> {
    fn new(limit: usize) -> Self {
        Self { limit, young: Map::default(), old: Map::default() }
    }

    fn of(&self, counter: &CounterId) -> Option<&V> {
        self.young.get(counter).or_else(|| self.old.get(counter))
    }

    /// Remembers `known` of `counter`, or nothing.
    fn set(&mut self, counter: &CounterId, known: Option<V>) {
        self.old.remove(counter);
        let Some(known) = known else {
            self.young.remove(counter);
            return;
        };
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(counter.clone(), known);
    }
}

/// The watermarks of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered(Generations<Watermarks>);

impl Default for Remembered {
    fn default() -> Self {
        Self(Generations::new(LIMIT))
    }
}

impl Remembered {
    /// What `counter` carried when it was last answered, if that was something to prune.
    pub(super) fn of(&self, counter: &CounterId) -> Option<&Watermarks> {
        self.0.of(counter)
    }

    /// Takes note of what `counter` carries now, every stream shard up to `closed_through` being closed.
    pub(super) fn note(&mut self, counter: &CounterId, marks: &Watermarks, closed_through: Option<Ordinal>) {
        let is_prunable = marks.marks().first_key_value().is_some_and(|(least, _)| Some(*least) <= closed_through);
        self.0.set(counter, is_prunable.then(|| marks.clone()));
    }
}

/// The totals of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Totals(Generations<Seen>);

impl Default for Totals {
    fn default() -> Self {
        Self(Generations::new(TOTALS))
    }
}

impl Totals {
    /// Where `counter` was last seen, if that was near a threshold.
    pub(super) fn of(&self, counter: &CounterId) -> Option<Seen> {
        self.0.of(counter).copied()
    }

    /// Takes note of `counter` as an update has left it. One that is far below the first threshold need not be known: its
    /// updates are taken as they are.
    pub(super) fn note(&mut self, id: &CounterId, counter: &Counter, ladder: &Ladder) {
        let is_near = ladder.above(None).is_some_and(|first| counter.likes >= first / 2);
        self.0.set(id, is_near.then(|| Seen::of(id.name.kind(), counter)));
    }

    /// Takes note of `counter` as it refused an update, wherever it stands: what is sent next depends on it.
    pub(super) fn refused(&mut self, id: &CounterId, counter: Option<&Counter>, ladder: &Ladder) {
        if !ladder.is_empty() {
            let absent = Counter::default();
            self.0.set(id, Some(Seen::of(id.name.kind(), counter.unwrap_or(&absent))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Sequence;

    const THROUGH: Option<Ordinal> = Some(Ordinal(2));

    fn marks(from: u64, to: u64) -> Watermarks {
        Watermarks::new((from..=to).map(|n| (Ordinal(n), Sequence::from(n))).collect(), None)
    }

    fn likes(n: u64) -> CounterId {
        CounterId::likes(format!("p{n}").parse().unwrap())
    }

    #[test]
    fn the_counters_written_last_are_remembered_and_no_more_than_twice_the_limit() {
        let mut remembered = Remembered(Generations::new(10));
        (0..100).for_each(|n| remembered.note(&likes(n), &marks(1, 3), THROUGH));
        assert!(remembered.of(&likes(99)).is_some() && remembered.of(&likes(90)).is_some());
        assert!(remembered.of(&likes(0)).is_none());
        assert!(remembered.0.young.len() + remembered.0.old.len() <= 20);
    }

    #[test]
    fn a_counter_without_anything_to_prune_takes_no_room() {
        let mut remembered = Remembered::default();
        remembered.note(&likes(1), &marks(2, 9), THROUGH);
        assert!(remembered.of(&likes(1)).is_some());
        remembered.note(&likes(1), &marks(3, 9), THROUGH);
        assert!(remembered.of(&likes(1)).is_none());
        remembered.note(&likes(2), &marks(1, 9), None);
        assert!(remembered.of(&likes(2)).is_none());
    }

    #[test]
    fn a_total_is_remembered_near_the_first_threshold_and_above_it_and_where_it_refused() {
        let (mut totals, ladder) = (Totals::default(), "100,1000".parse().unwrap());
        let counter = |likes| Counter { likes, version: 1, ..Counter::default() };
        for (n, total, is_known) in [(1, 49, false), (2, 50, true), (3, 100_000, true), (2, 49, false)] {
            totals.note(&likes(n), &counter(total), &ladder);
            assert_eq!(totals.of(&likes(n)).map(|seen| seen.likes), is_known.then_some(total), "{total}");
        }
        totals.refused(&likes(4), Some(&counter(3)), &ladder);
        totals.refused(&likes(5), None, &ladder);
        assert_eq!([4, 5].map(|n| totals.of(&likes(n)).map(|seen| seen.version)), [Some(1), Some(0)]);
        totals.refused(&likes(6), Some(&counter(3)), &Ladder::default());
        assert_eq!(totals.of(&likes(6)), None, "without a ladder nothing is remembered");
    }
}
