//! Capacity units: what an operation costs, and how the answer says so.

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

/// Half units, so that the half unit of an eventually consistent read stays exact.
pub(super) type Halves = u64;

/// Write units of an item of this many bytes, in halves.
pub(super) fn write_halves(bytes: usize) -> Halves {
    2 * bytes.div_ceil(KIB).max(1) as u64
}

/// Read units of this many bytes, in halves.
pub(super) fn read_halves(bytes: usize, consistent: bool) -> Halves {
    let units = bytes.div_ceil(4 * KIB).max(1) as u64;
    if consistent { 2 * units } else { units }
}

/// What was consumed of one table.
#[derive(Debug, Default)]
struct Used {
    table: Halves,
    indexes: BTreeMap<String, Halves>,
}

/// What one request consumed.
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
        // An entry would need an owned name even where one is there.
        if !self.tables.contains_key(table) {
            self.tables.insert(table.to_owned(), Used::default());
        }
        self.tables.get_mut(table).expect("it was just made sure of")
    }

    /// The member of an answer about one table.
    pub(super) fn write_one(&self, out: &mut Writer, report: Report) {
        if let Some((table, used)) = self.tables.first_key_value().filter(|_| report != Report::None) {
            out.key("ConsumedCapacity");
            used.write(out, table, report, None);
        }
    }

    /// The member of an answer about several tables.
    pub(super) fn write_all(&self, out: &mut Writer, report: Report, kind: Option<&str>) {
        if report != Report::None {
            out.key("ConsumedCapacity").array(|out| {
                self.tables.iter().for_each(|(table, used)| used.write(out, table, report, kind));
            });
        }
    }
}

impl Used {
    /// `kind` is the member that repeats the sum in transactions, which say whether they read or wrote.
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
