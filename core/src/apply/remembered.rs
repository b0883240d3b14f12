//! The watermarks of finished stream shards that counters still carried when they were last answered: the next update of
//! such a counter prunes them. A bounded memory; what is not in it is pruned blindly.

use crate::Map;
use crate::ids::{CounterId, Ordinal};
use crate::watermark::Watermarks;

/// Counters remembered by one stream shard, in each of two generations.
const LIMIT: usize = 10_000;

/// Two generations: when the younger one is full, what is only in the older one is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remembered {
    limit: usize,
    young: Map<CounterId, Watermarks>,
    old: Map<CounterId, Watermarks>,
}

impl Default for Remembered {
    fn default() -> Self {
        Self { limit: LIMIT, young: Map::default(), old: Map::default() }
    }
}

impl Remembered {
    /// What `counter` carried when it was last answered, if that was something to prune.
    pub(super) fn of(&self, counter: &CounterId) -> Option<&Watermarks> {
        self.young.get(counter).or_else(|| self.old.get(counter))
    }

    /// Takes note of what `counter` carries now, every stream shard up to `closed_through` being closed.
    pub(super) fn note(&mut self, counter: &CounterId, marks: &Watermarks, closed_through: Option<Ordinal>) {
        self.old.remove(counter);
        let is_prunable = marks.marks().first_key_value().is_some_and(|(least, _)| Some(*least) <= closed_through);
        if !is_prunable {
            self.young.remove(counter);
            return;
        }
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(counter.clone(), marks.clone());
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
        let mut remembered = Remembered { limit: 10, ..Remembered::default() };
        (0..100).for_each(|n| remembered.note(&likes(n), &marks(1, 3), THROUGH));
        assert!(remembered.of(&likes(99)).is_some() && remembered.of(&likes(90)).is_some());
        assert!(remembered.of(&likes(0)).is_none());
        assert!(remembered.young.len() + remembered.old.len() <= 20);
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
}
