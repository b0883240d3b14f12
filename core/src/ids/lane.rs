//! Which lane of its Kafka partition an event goes through: calculated from what it is about, so that a replay finds the same.

use std::fmt;

use xxhash_rust::xxh64::xxh64;

use super::CounterId;

/// The seed: another than that of shards, or the rows of one lane would lie in few shards.
const SEED: u64 = 1;

/// One of a partition's lanes, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u8);

impl Lane {
    /// The lane that every partition has. Records that are no events go through it.
    pub const FIRST: Self = Self(0);

    /// Lane `index`, if some partition could have it.
    pub fn new(index: u8) -> Option<Self> {
        (index < LaneCount::MAX.0).then_some(Self(index))
    }

    /// The lane's number.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many lanes a partition has: 1, 2, 4, 8 or 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneCount(u8);

impl Default for LaneCount {
    fn default() -> Self {
        Self::ONE
    }
}

impl LaneCount {
    /// One chain of transactions.
    pub const ONE: Self = Self(1);
    /// Side by side they are as many as one partition is given.
    pub const MAX: Self = Self(16);

    /// `n` lanes, if a partition can have so many.
    pub fn new(n: u64) -> Option<Self> {
        u8::try_from(n).ok().filter(|n| n.is_power_of_two() && *n <= Self::MAX.0).map(Self)
    }

    /// The number of lanes.
    pub fn get(self) -> usize {
        self.0.into()
    }

    /// Every lane, in order.
    pub fn all(self) -> impl DoubleEndedIterator<Item = Lane> + ExactSizeIterator {
        (0..self.0).map(Lane)
    }

    /// Twice as many; as many, where there are no more.
    #[must_use]
    pub fn doubled(self) -> Self {
        Self((self.0 * 2).min(Self::MAX.0))
    }

    /// Half as many; one at least.
    #[must_use]
    pub fn halved(self) -> Self {
        Self((self.0 / 2).max(1))
    }

    /// The lane of what is done to a member of any set.
    pub fn lane_of_member(self, member: &str) -> Lane {
        self.lane_of(member.as_bytes())
    }

    /// The lane of what is added to a sum: of all of it, so that a batch folds it into one cell.
    pub fn lane_of_sum(self, counter: &CounterId) -> Lane {
        if self == Self::ONE { Lane::FIRST } else { self.lane_of(counter.stored().as_bytes()) }
    }

    /// XXH64 with seed 1, modulo the count. A record's lane is a function of the record and the count: anything that is drawn
    /// anew on a replay counts twice.
    fn lane_of(self, bytes: &[u8]) -> Lane {
        if self == Self::ONE {
            return Lane::FIRST;
        }
        let lane = xxh64(bytes, SEED) % u64::from(self.0);
        Lane(u8::try_from(lane).expect("a remainder of a u8 fits a u8"))
    }
}

impl fmt::Display for LaneCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fences already stored count by these: a change here is a migration, never an edit.
    const VECTORS: &str = include_str!("../../tests/vectors/lanes.tsv");

    #[test]
    fn the_lane_of_a_member_and_of_a_sum_is_pinned_by_vectors() {
        let mut seen = [0, 0];
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [hashed, hash, lanes @ ..] = &fields[..] else { panic!("malformed vector {line:?}") };
            let hashed: String = serde_json::from_str(hashed).unwrap();
            assert_eq!(format!("{:016x}", xxh64(hashed.as_bytes(), SEED)), *hash, "{hashed:?}");
            let sum = hashed.contains('\u{1f}').then(|| hashed.parse::<CounterId>().unwrap());
            assert_eq!(lanes.len(), 4);
            for (count, lane) in [2, 4, 8, 16].into_iter().zip(lanes) {
                let count = LaneCount::new(count).unwrap();
                let found = match &sum {
                    Some(counter) => count.lane_of_sum(counter),
                    None => count.lane_of_member(&hashed),
                };
                assert_eq!(found.to_string(), *lane, "{hashed:?} of {count}");
            }
            assert_eq!(LaneCount::ONE.lane_of_member(&hashed), Lane::FIRST);
            seen[usize::from(sum.is_some())] += 1;
        }
        assert!(seen[0] >= 12 && seen[1] >= 4, "{seen:?} vectors");
    }

    #[test]
    fn a_lane_count_is_a_power_of_two_up_to_16() {
        for n in [1, 2, 4, 8, 16] {
            assert_eq!(LaneCount::new(n).unwrap().get() as u64, n);
        }
        for n in [0, 3, 5, 15, 17, 32, 256, 65_537, u64::MAX] {
            assert_eq!(LaneCount::new(n), None);
        }
        assert_eq!((LaneCount::MAX.doubled(), LaneCount::ONE.halved()), (LaneCount::MAX, LaneCount::ONE));
        assert_eq!((LaneCount::ONE.doubled().get(), LaneCount::MAX.halved().get()), (2, 8));
        assert_eq!(Lane::new(15).map(Lane::index), Some(15));
        assert_eq!(Lane::new(16), None);
    }
}
