//! What a recount costs the store: read and write units, counted where they are spent, and their list price.

use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::audit::Cost;

/// On-demand list price of a million read units in the cheapest regions, in dollars.
const READ_MILLION: f64 = 0.125;
/// The same of a million write units.
const WRITE_MILLION: f64 = 0.625;

/// Half a read unit is the least the store charges; one item of up to 4 KB read consistently is two halves.
pub(crate) const ITEM: u64 = 2;

/// Units spent so far by everything that shares it.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    half_reads: AtomicU64,
    writes: AtomicU64,
}

impl Spent {
    pub(crate) fn read(&self, half_units: u64) {
        self.half_reads.fetch_add(half_units, Ordering::Relaxed);
        crate::metrics::units("read", half_units.div_ceil(2));
    }

    pub(crate) fn wrote(&self, units: u64) {
        self.writes.fetch_add(units, Ordering::Relaxed);
        crate::metrics::units("write", units);
    }

    pub(crate) fn so_far(&self) -> Cost {
        let read_units = self.half_reads.load(Ordering::Relaxed).div_ceil(2);
        Cost { read_units, write_units: self.writes.load(Ordering::Relaxed) }
    }
}

/// The list price of `cost`, in dollars.
#[expect(clippy::cast_precision_loss, reason = "a price is shown to the cent; units stay far below 2^52")]
pub(crate) fn dollars(cost: Cost) -> f64 {
    (cost.read_units as f64 * READ_MILLION + cost.write_units as f64 * WRITE_MILLION) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_units_add_up_before_they_are_rounded() {
        let spent = Spent::default();
        spent.read(1);
        spent.read(2);
        spent.wrote(4);
        assert_eq!(spent.so_far(), Cost { read_units: 2, write_units: 4 });
    }

    #[test]
    fn a_price_is_that_of_the_list() {
        let million = Cost { read_units: 1_000_000, write_units: 2_000_000 };
        assert!((dollars(million) - 1.375).abs() < 1e-9);
    }
}
