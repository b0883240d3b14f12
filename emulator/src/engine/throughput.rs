//! The throughput limit of partition keys. If one is set, requests for a hot key are throttled until enough time has passed,
//! as DynamoDB does.

use std::collections::HashMap;

use super::key::Key;
use super::table::Table;
use crate::clock::Millis;
use crate::error::Error;

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The consumption of all partition keys.
#[derive(Debug)]
pub(crate) struct Throughput {
    reads: Meter,
    writes: Meter,
}

impl Throughput {
    /// Units per second for each partition key; `None` means no limit.
    pub(crate) fn new(reads: Option<u32>, writes: Option<u32>) -> Self {
        Self { reads: Meter::new(reads), writes: Meter::new(writes) }
    }

    /// Whether a request for `key` is admitted. An admitted request may overdraw the limit, and the next ones wait for it.
    pub(crate) fn admit(&self, used: Use, table: &Table, key: &Key, now: Millis) -> Result<(), Error> {
        if self.meter(used).admits(&(table.arn.clone(), key.hash()), now) {
            return Ok(());
        }
        Err(Error::key_is_hot(used, &table.arn, table.is_on_demand()))
    }

    /// Adds the consumption of a request for `key`, in half units.
    pub(crate) fn spend(&mut self, used: Use, table: &Table, key: &Key, halves: u64, now: Millis) {
        let meter = match used {
            Use::Read => &mut self.reads,
            Use::Write => &mut self.writes,
        };
        if let Some(limit) = meter.limit {
            meter.spend((table.arn.clone(), key.hash()), halves, limit, now);
        }
    }

    pub(crate) fn limits(&self, used: Use) -> bool {
        self.meter(used).limit.is_some()
    }

    fn meter(&self, used: Use) -> &Meter {
        match used {
            Use::Read => &self.reads,
            Use::Write => &self.writes,
        }
    }
}

/// The ARN of a table, and the hash of a partition key.
type Place = (String, u64);

/// A leaky bucket for each partition key that was used recently.
#[derive(Debug)]
struct Meter {
    /// Half units per second.
    limit: Option<u64>,
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
}

const FEWEST_TO_SWEEP: usize = 1024;

impl Meter {
    fn new(limit: Option<u32>) -> Self {
        Self { limit: limit.map(|units| 2 * u64::from(units)), spent: HashMap::new(), sweep_at: FEWEST_TO_SWEEP }
    }

    fn admits(&self, place: &Place, now: Millis) -> bool {
        let (Some(limit), Some(spent)) = (self.limit, self.spent.get(place)) else { return true };
        spent.left(limit, now) < 1000 * limit
    }

    fn spend(&mut self, place: Place, halves: u64, limit: u64, now: Millis) {
        if self.spent.len() >= self.sweep_at {
            self.spent.retain(|_, spent| spent.left(limit, now) > 0);
            self.sweep_at = FEWEST_TO_SWEEP.max(2 * self.spent.len());
        }
        let spent = self.spent.entry(place).or_insert(Spent { amount: 0, at: now });
        *spent = Spent { amount: spent.left(limit, now) + 1000 * halves, at: now };
    }
}

impl Spent {
    /// The level that has not leaked by now.
    fn left(self, limit: u64, now: Millis) -> u64 {
        self.amount.saturating_sub(limit.saturating_mul(now.saturating_sub(self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(meter: &mut Meter, hash: u64, halves: u64, now: Millis) {
        meter.spend(place(hash), halves, meter.limit.unwrap(), now);
    }

    fn place(hash: u64) -> Place {
        ("table".to_owned(), hash)
    }

    #[test]
    fn empty_buckets_are_removed() {
        let mut meter = Meter::new(Some(1));
        for hash in 0..10_000 {
            spend(&mut meter, hash, 2, 10 * hash);
        }
        assert!(meter.spent.len() <= 2 * FEWEST_TO_SWEEP, "{}", meter.spent.len());
    }
}
