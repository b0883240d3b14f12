//! Capacity units: the cost of an operation, and how the answer reports it.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::json::Writer;
use crate::limits::KIB;

use super::params::one_of;

/// `ReturnConsumedCapacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    None,
    Total,
    Indexes,
}

impl Report {
    pub(super) fn parse(given: Option<&str>) -> Result<Self, Error> {
        let choices = [("NONE", Self::None), ("TOTAL", Self::Total), ("INDEXES", Self::Indexes)];
        one_of("returnConsumedCapacity", given, &choices)
    }
}

/// Half units, since an eventually consistent read costs half a unit.
pub(super) type Halves = u64;

/// The write units of an item with this many bytes, in halves.
pub(super) fn write_halves(bytes: usize) -> Halves {
    2 * bytes.div_ceil(KIB).max(1) as u64
}

/// The read units of this many bytes, in halves.
pub(super) fn read_halves(bytes: usize, consistent: bool) -> Halves {
    let units = bytes.div_ceil(4 * KIB).max(1) as u64;
    if consistent { 2 * units } else { units }
}

/// The consumption of one request, by table.
#[derive(Debug, Default)]
pub(super) struct Consumed {
    tables: BTreeMap<String, Halves>,
}

impl Consumed {
    pub(super) fn add(&mut self, table: &str, halves: Halves) {
        match self.tables.get_mut(table) {
            Some(used) => *used += halves,
            // The entry API would need an owned name even if the key exists.
            None => drop(self.tables.insert(table.to_owned(), halves)),
        }
    }

    /// Adds a cost, which the key's throughput has to pay.
    pub(super) fn pay(&mut self, used: Use, table: &str, key: &Key, halves: Halves, engine: &mut Engine) {
        self.add(table, halves);
        engine.spend(used, table, key, halves);
    }

    /// Writes the consumption of a request for one table.
    pub(super) fn write_one(&self, out: &mut Writer, report: Report) {
        if let Some((table, used)) = self.tables.first_key_value().filter(|_| report != Report::None) {
            out.key("ConsumedCapacity");
            write(out, table, *used, report, None);
        }
    }

    /// Writes the consumption of a request for several tables.
    pub(super) fn write_all(&self, out: &mut Writer, report: Report, kind: Option<&str>) {
        if report != Report::None {
            out.key("ConsumedCapacity").array(|out| {
                self.tables.iter().for_each(|(table, used)| write(out, table, *used, report, kind));
            });
        }
    }
}

/// Writes the consumption of one table. `kind` is the member that repeats it for a transaction, by reads or writes.
fn write(out: &mut Writer, table: &str, used: Halves, report: Report, kind: Option<&str>) {
    let units = format!("{}.{}", used / 2, if used.is_multiple_of(2) { 0 } else { 5 });
    out.object(|out| {
        out.key("TableName").string(table);
        out.key("CapacityUnits").plain(&units);
        if let Some(kind) = kind {
            out.key(kind).plain(&units);
        }
        if report == Report::Indexes {
            out.key("Table").object(|out| out.key("CapacityUnits").plain(&units));
        }
    });
}
