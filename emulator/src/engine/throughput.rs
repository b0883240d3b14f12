//! What one partition key may use in a second. Where a limit is set, a hot key is refused until enough time has passed, as the real store refuses it.

use std::collections::HashMap;

use super::key::Key;
use super::table::Table;
use crate::clock::Millis;
use crate::error::Error;

/// What a request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// The meters of all partition keys.
#[derive(Debug)]
pub(crate) struct Throughput {
    reads: Meter,
    writes: Meter,
}

impl Throughput {
    /// Units a second for each partition key; `None` for no limit.
    pub(crate) fn new(reads: Option<u32>, writes: Option<u32>) -> Self {
        Self { reads: Meter::new(reads), writes: Meter::new(writes) }
    }

    /// Whether a request of `key` may begin. One that may can use more than is left: the next ones wait for it.
    pub(crate) fn admit(&self, used: Use, table: &Table, key: &Key, now: Millis) -> Result<(), Error> {
        if self.meter(used).admits(&(table.arn.clone(), key.hash()), now) {
            return Ok(());
        }
        Err(Error::key_is_hot(used, &table.arn, table.is_on_demand()))
    }

    /// Adds half units that a request of `key` used.
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

/// A table's resource name, and the hash of a partition key.
type Place = (String, u64);

/// A leaking bucket for each partition key that was used a moment ago.
#[derive(Debug)]
struct Meter {
    /// Half units a second.
    limit: Option<u64>,
    spent: HashMap<Place, Spent>,
    /// With so many buckets, those that are empty by now are taken out.
    sweep_at: usize,
}

/// Thousandths of half units, and when it was so many: what a limit of so many half units a second takes off in a millisecond is a whole number.
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
    /// What of it has not leaked away by now.
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
    fn a_key_gets_its_units_a_second_and_what_is_overdrawn_is_paid_back() {
        let mut meter = Meter::new(Some(10));
        spend(&mut meter, 1, 19, 0);
        assert!(meter.admits(&place(1), 0), "half a unit is left");
        spend(&mut meter, 1, 21, 0);
        assert!(!meter.admits(&place(1), 1000), "two seconds' units were used");
        assert!(meter.admits(&place(1), 1001) && meter.admits(&place(2), 0));
    }

    #[test]
    fn buckets_that_are_empty_again_are_taken_out() {
        let mut meter = Meter::new(Some(1));
        for hash in 0..10_000 {
            spend(&mut meter, hash, 2, 10 * hash);
        }
        assert!(meter.spent.len() <= 2 * FEWEST_TO_SWEEP, "{}", meter.spent.len());
    }
}
