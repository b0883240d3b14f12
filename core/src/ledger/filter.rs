//! The reader's side of the ledger: which of the entries that it meets count.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::ids::{Ordinal, Sequence};

/// What was counted of one partition of the log, by stream shard. A record counts if it lies behind all that were counted of
/// its stream shard in this partition; otherwise it is a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Filter(BTreeMap<Ordinal, Sequence>);

impl Filter {
    /// Whether a record of `shard` counts: each is asked for by itself, once, in the order of the log.
    pub fn takes(&mut self, shard: Ordinal, sequence: Sequence) -> bool {
        match self.0.entry(shard) {
            Entry::Vacant(first) => {
                first.insert(sequence);
                true
            }
            Entry::Occupied(mut mark) => {
                let counts = sequence > *mark.get();
                if counts {
                    mark.insert(sequence);
                }
                counts
            }
        }
    }

    /// The last record that was counted of each stream shard.
    pub fn marks(&self) -> impl Iterator<Item = (Ordinal, Sequence)> {
        self.0.iter().map(|(shard, mark)| (*shard, *mark))
    }

    /// The last record of `shard` that was counted.
    pub fn mark(&self, shard: Ordinal) -> Option<Sequence> {
        self.0.get(&shard).copied()
    }
}

impl FromIterator<(Ordinal, Sequence)> for Filter {
    fn from_iter<T: IntoIterator<Item = (Ordinal, Sequence)>>(marks: T) -> Self {
        Self(marks.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_once_and_never_behind_a_later_one_of_its_stream_shard() {
        let mut filter = Filter::default();
        let met = [(1, 5, true), (1, 5, false), (1, 4, false), (2, 4, true), (1, 6, true), (2, 4, false), (2, 5, true)];
        for (shard, sequence, counts) in met {
            assert_eq!(filter.takes(Ordinal(shard), sequence.into()), counts, "{shard}/{sequence}");
        }
        assert_eq!((filter.mark(Ordinal(1)), filter.mark(Ordinal(3))), (Some(6.into()), None));
    }
}
