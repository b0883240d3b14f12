//! Counters that still carry watermarks of finished stream shards, as last seen: for the next update to prune them. A
//! bounded memory; what is not in it is pruned blindly.

use tally_core::Map;
use tally_core::ids::{CounterId, Ordinal};
use tally_core::watermark::Watermarks;

/// Two generations: what is not asked for while the younger one fills up is forgotten with the older one.
#[derive(Debug)]
pub(crate) struct Seen {
    limit: usize,
    young: Map<CounterId, Watermarks>,
    old: Map<CounterId, Watermarks>,
}

impl Seen {
    /// Remembers at most twice `limit` counters.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, young: Map::default(), old: Map::default() }
    }

    /// What was last seen of `id`, if there is something to prune.
    pub(crate) fn get(&self, id: &CounterId) -> Option<Watermarks> {
        self.young.get(id).or_else(|| self.old.get(id)).cloned()
    }

    /// Takes note of what the counter `id` carries now, every stream shard up to `closed_through` being closed.
    pub(crate) fn put(&mut self, id: &CounterId, marks: &Watermarks, closed_through: Option<Ordinal>) {
        self.old.remove(id);
        let is_prunable = marks.marks().first_key_value().is_some_and(|(least, _)| Some(*least) <= closed_through);
        if !is_prunable {
            self.young.remove(id);
            return;
        }
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id.clone(), marks.clone());
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::Sequence;

    use super::*;

    const THROUGH: Option<Ordinal> = Some(Ordinal(2));

    fn marks(from: u64, to: u64) -> Watermarks {
        Watermarks::new((from..=to).map(|n| (Ordinal(n), Sequence::from(n))).collect(), None)
    }

    fn likes(n: u64) -> CounterId {
        CounterId::likes(format!("p{n}").parse().unwrap())
    }

    #[test]
    fn the_counters_written_last_are_remembered_and_no_more_than_twice_the_limit() {
        let mut seen = Seen::new(10);
        (0..100).for_each(|n| seen.put(&likes(n), &marks(1, 3), THROUGH));
        assert!(seen.get(&likes(99)).is_some() && seen.get(&likes(90)).is_some());
        assert!(seen.get(&likes(0)).is_none());
        assert!(seen.young.len() + seen.old.len() <= 20);
    }

    #[test]
    fn a_counter_without_anything_to_prune_takes_no_room() {
        let mut seen = Seen::new(10);
        seen.put(&likes(1), &marks(2, 9), THROUGH);
        assert!(seen.get(&likes(1)).is_some());
        seen.put(&likes(1), &marks(3, 9), THROUGH);
        assert!(seen.get(&likes(1)).is_none());
        seen.put(&likes(2), &marks(1, 9), None);
        assert!(seen.get(&likes(2)).is_none());
    }
}
