//! Capacity units: the cost of an operation, and how the answer reports it.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::limits::KIB;
use crate::wire::json::Writer;

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

/// The consumption of one table.
#[derive(Debug, Default)]
struct Used {
    table: Halves,
    indexes: BTreeMap<String, Halves>,
}

/// The consumption of one request.
#[derive(Debug, Default)]
pub(super) struct Consumed {
    tables: BTreeMap<String, Used>,
}

impl Consumed {
    pub(super) fn add(&mut self, table: &str, halves: Halves) {
        self.of(table).table += halves;
    }

    pub(super) fn add_index(&mut self, table: &str, index: &str, halves: Halves) {
        *self.of(table).indexes.entry(index.to_owned()).or_default() += halves;
    }

    fn of(&mut self, table: &str) -> &mut Used {
        // The entry API would need an owned name even if the key exists.
        if !self.tables.contains_key(table) {
            self.tables.insert(table.to_owned(), Used::default());
        }
        self.tables.get_mut(table).expect("it was just made sure of")
    }

    /// Writes the consumption of a request for one table.
    pub(super) fn write_one(&self, out: &mut Writer, report: Report) {
        if let Some((table, used)) = self.tables.first_key_value().filter(|_| report != Report::None) {
            out.key("ConsumedCapacity");
            used.write(out, table, report, None);
        }
    }

    /// Writes the consumption of a request for several tables.
    pub(super) fn write_all(&self, out: &mut Writer, report: Report, kind: Option<&str>) {
        if report != Report::None {
            out.key("ConsumedCapacity").array(|out| {
                self.tables.iter().for_each(|(table, used)| used.write(out, table, report, kind));
            });
        }
    }
}

impl Used {
    /// Writes the consumption. `kind` is the member that repeats the sum for a transaction, by reads or writes.
    fn write(&self, out: &mut Writer, table: &str, report: Report, kind: Option<&str>) {
        let units = |halves: Halves| format!("{}.{}", halves / 2, if halves.is_multiple_of(2) { 0 } else { 5 });
        let total = self.table + self.indexes.values().sum::<Halves>();
        out.object(|out| {
            out.key("TableName").string(table);
            out.key("CapacityUnits").plain(units(total));
            if let Some(kind) = kind {
                out.key(kind).plain(units(total));
            }
            if report == Report::Indexes {
                out.key("Table").object(|out| out.key("CapacityUnits").plain(units(self.table)));
                if !self.indexes.is_empty() {
                    out.key("LocalSecondaryIndexes").object(|out| {
                        for (index, halves) in &self.indexes {
                            out.key(index).object(|out| out.key("CapacityUnits").plain(units(*halves)));
                        }
                    });
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_rounded_up_and_eventual_reads_cost_half() {
        assert_eq!([write_halves(0), write_halves(1024), write_halves(1025)], [2, 2, 4]);
        assert_eq!([read_halves(0, true), read_halves(4096, false), read_halves(4097, true)], [2, 1, 4]);
    }

    #[test]
    fn the_sum_counts_indexes() {
        let mut consumed = Consumed::default();
        consumed.add("t", 3);
        consumed.add_index("t", "i", 2);
        let text = Writer::document(|out| consumed.write_one(out, Report::Indexes));
        let expected = r#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":2.5,"Table":{"CapacityUnits":1.5},"LocalSecondaryIndexes":{"i":{"CapacityUnits":1.0}}}}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
