//! The throughput limit of partition keys. If one is set, requests for a hot key are throttled until enough time has passed,
//! as DynamoDB does.

use std::collections::HashMap;

use crate::clock::Millis;

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Read,
    Write,
}

/// A use, a table, and the hash of a partition key.
type Place = (Use, String, u64);

/// A leaky bucket for each partition key that was used recently. Limits are in half units per second.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    spent: HashMap<Place, Spent>,
    /// The number of buckets at which the empty ones are removed.
    sweep_at: usize,
}

/// The level of a bucket in thousandths of half units, and its time. In this unit, a limit in half units per second is a whole
/// number per millisecond.
#[derive(Clone, Copy, Debug)]
struct Spent {
    amount: u64,
    at: Millis,
    /// The limit of its use: one sweep covers reads and writes.
    limit: u64,
}

const FEWEST_TO_SWEEP: usize = 1024;

impl Throughput {
    /// Whether a request is admitted. An admitted request may overdraw the limit, and the next ones wait for it.
    pub(crate) fn admits(&self, place: &Place, limit: u64, now: Millis) -> bool {
        self.spent.get(place).is_none_or(|spent| spent.left(now) < 1000 * limit)
    }

    /// Adds the consumption of a request, in half units.
    pub(crate) fn spend(&mut self, place: Place, limit: u64, halves: u64, now: Millis) {
        if self.spent.len() >= self.sweep_at {
            self.spent.retain(|_, spent| spent.left(now) > 0);
            self.sweep_at = FEWEST_TO_SWEEP.max(2 * self.spent.len());
        }
        let spent = self.spent.entry(place).or_insert(Spent { amount: 0, at: now, limit });
        *spent = Spent { amount: spent.left(now) + 1000 * halves, at: now, limit };
    }
}

impl Spent {
    /// The level that has not leaked by now.
    fn left(self, now: Millis) -> u64 {
        self.amount.saturating_sub(self.limit.saturating_mul(now.saturating_sub(self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_buckets_are_removed() {
        let mut throughput = Throughput::default();
        for hash in 0..10_000 {
            throughput.spend((Use::Write, "table".to_owned(), hash), 2, 2, 10 * hash);
        }
        assert!(throughput.spent.len() <= 2 * FEWEST_TO_SWEEP, "{}", throughput.spent.len());
    }
}
