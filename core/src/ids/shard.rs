//! Shards: the parts that a counter's rows are divided into. A user's shard is computed from the user id, so that a
//! like and its unlike have the same row.

use std::fmt;

use thiserror::Error;
use xxhash_rust::xxh64::xxh64;

/// The number of one shard of a counter, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(u16);

impl Shard {
    /// The shard that every counter has.
    pub const FIRST: Self = Self(0);

    /// Returns shard `k`, if a deployment may have it.
    pub fn new(k: u16) -> Option<Self> {
        (k < ShardCount::MAX.0).then_some(Self(k))
    }

    pub fn index(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many shards each counter of a deployment has: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(u16);

/// No deployment can have this number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("shards must be a power of two from 1 to {max}, not {0}", max = ShardCount::MAX)]
pub struct BadShardCount(pub u64);

impl ShardCount {
    /// Enough for 8,000 likes/s on one post, and for some 800 million rows.
    pub const DEFAULT: Self = Self(64);
    /// With more shards, the item of a busy counter would be too slow to write.
    pub const MAX: Self = Self(256);

    /// Returns a count of `n` shards.
    pub fn new(n: u64) -> Result<Self, BadShardCount> {
        u16::try_from(n).ok().filter(|n| n.is_power_of_two() && *n <= Self::MAX.0).map(Self).ok_or(BadShardCount(n))
    }

    /// Returns every possible number of shards, the smallest first.
    pub fn each() -> impl Iterator<Item = Self> {
        std::iter::successors(Some(Self(1)), |count| (*count < Self::MAX).then_some(Self(count.0 * 2)))
    }

    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the shard of `user`'s row: XXH64 with seed 0 of the id's bytes, modulo the count. Stored data depend on
    /// it for ever.
    pub fn shard_of(self, user: &str) -> Shard {
        let hash = xxh64(user.as_bytes(), 0) % u64::from(self.0);
        Shard(u16::try_from(hash).expect("a remainder of a u16 fits a u16"))
    }

    /// Returns the shard of the cell that Kafka partition `partition` adds to.
    pub fn shard_of_cell(self, partition: u32) -> Shard {
        Shard(u16::try_from(partition % u32::from(self.0)).expect("a remainder of a u16 fits a u16"))
    }

    /// Returns every shard, in order.
    pub fn all(self) -> impl DoubleEndedIterator<Item = Shard> + ExactSizeIterator {
        (0..self.0).map(Shard)
    }
}

impl fmt::Display for ShardCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored rows have these shards: a change here is a migration.
    const VECTORS: &str = include_str!("../../tests/vectors/shards.tsv");

    #[test]
    fn the_shard_of_a_user_is_pinned_by_vectors() {
        let mut seen = 0;
        for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [user, hash, of_16, of_64] = fields[..] else { panic!("malformed vector {line:?}") };
            let user: String = serde_json::from_str(user).unwrap();
            assert_eq!(format!("{:016x}", xxh64(user.as_bytes(), 0)), hash, "{user:?}");
            for (count, shard) in [(16, of_16), (64, of_64)] {
                assert_eq!(ShardCount::new(count).unwrap().shard_of(&user).to_string(), shard, "{user:?} of {count}");
            }
            seen += 1;
        }
        assert!(seen >= 12, "{seen} vectors");
    }

    #[test]
    fn a_shard_count_is_a_power_of_two_up_to_256() {
        for n in [1, 2, 16, 256] {
            assert_eq!(u64::from(ShardCount::new(n).unwrap().get()), n);
        }
        for n in [0, 3, 15, 17, 255, 512, 65_536, u64::MAX] {
            assert_eq!(ShardCount::new(n), Err(BadShardCount(n)));
        }
    }
}
