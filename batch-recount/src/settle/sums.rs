//! Sums the weights of rows, which is what they count for, by row key, as the scan of an audit reads them. If memory is
//! short, keeps one *part* of the posts, and leaves the others to later passes.

use serde::{Deserialize, Serialize};
use tally_core::Map;
use tally_core::changes::partition_of;
use tally_core::ids::RowKey;
use tally_core::weight::Weight;

/// Some of all posts: those whose hash has the remainder `nth` of a division by `of`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    of: u32,
    nth: u32,
}

/// The sums of the row keys in one part.
#[derive(Debug)]
pub(super) struct Sums {
    part: Part,
    /// The sum of each row key; `None` where a weight cannot be read, or the sum has more than 64 bits.
    sums: Map<RowKey, Option<i64>>,
    /// How many sums there may be.
    most: usize,
    /// Parts that there was no room for.
    rest: Vec<Part>,
}

impl Part {
    pub(crate) const ALL: Self = Self { of: 1, nth: 0 };

    pub(super) fn has(self, key: &RowKey) -> bool {
        partition_of(key, self.of) == self.nth
    }

    fn halves(self) -> [Self; 2] {
        [self.nth, self.nth + self.of].map(|nth| Self { of: self.of * 2, nth })
    }
}

impl Sums {
    pub(super) fn new(part: Part, most: usize) -> Self {
        Self { part, sums: Map::default(), most, rest: Vec::new() }
    }

    /// Adds a row's weight; `None` if it cannot be read. If there is no room any more, gives up half of the posts.
    pub(super) fn add(&mut self, key: &RowKey, weight: Option<Weight>) {
        if !self.part.has(key) {
            return;
        }
        if let Some(sum) = self.sums.get_mut(key) {
            *sum = sum.zip(weight).and_then(|(sum, weight)| sum.checked_add(weight.get()));
            return;
        }
        self.sums.insert(key.clone(), weight.map(Weight::get));
        while self.sums.len() > self.most && self.part.of < 1 << 24 {
            let [kept, rest] = self.part.halves();
            self.part = kept;
            self.rest.push(rest);
            self.sums.retain(|key, _| kept.has(key));
        }
    }

    /// Returns the part that there was room for.
    pub(super) fn part(&self) -> Part {
        self.part
    }

    /// Returns the parts that there was no room for.
    pub(super) fn rest(&self) -> &[Part] {
        &self.rest
    }

    /// Returns one of the row keys.
    pub(super) fn any(&self) -> Option<&RowKey> {
        self.sums.keys().next()
    }

    /// Removes the sum of `key` and returns it; 0 if there are no rows.
    pub(super) fn take(&mut self, key: &RowKey) -> Option<i64> {
        self.sums.remove(key).unwrap_or(Some(0))
    }

    /// Removes and returns all sums that are left.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (RowKey, Option<i64>)> + use<> {
        std::mem::take(&mut self.sums).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn whatever_there_is_room_for_each_row_key_is_in_one_part() {
        let keys: BTreeSet<RowKey> = (0..500).map(|n| format!("p-{n}#{}", n % 4).parse().unwrap()).collect();
        for most in [1, 7, 100, 500] {
            let (mut todo, mut met) = (vec![Part::ALL], Vec::new());
            while let Some(part) = todo.pop() {
                let mut sums = Sums::new(part, most);
                for key in keys.iter().chain(&keys) {
                    sums.add(key, Some(Weight::ONE));
                }
                todo.extend(sums.rest());
                let found: Vec<_> = sums.drain().collect();
                assert!(found.len() <= most && found.iter().all(|(_, sum)| *sum == Some(2)));
                met.extend(found.into_iter().map(|(key, _)| key));
            }
            assert_eq!((met.len(), met.into_iter().collect::<BTreeSet<_>>()), (keys.len(), keys.clone()), "{most}");
        }
    }
}
