//! One page of a Query or Scan: the items that it evaluates, its end, and the attributes that it returns.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::Deserialize;

use crate::clock::Millis;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::rows::Range;
use crate::engine::table::Table;
use crate::error::Error;
use crate::expression::{Condition, Placeholders, Projection};
use crate::json::Writer;
use crate::limits::PAGE_BYTES;
use crate::value::{Item, Values};

use super::capacity::{Consumed, Halves, Report, read_halves};
use super::params::{Names, check_limit, check_table_name, one_of};

/// The position of an `ExclusiveStartKey`.
pub(super) fn start_key(table: &Table, key: &Item) -> Result<Key, Error> {
    let invalid = "The provided starting key is invalid: The provided key element does not match the schema";
    table.schema.key_of(key).map_err(|_| Error::validation(invalid))
}

/// The parameters of a Query or Scan.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Parameters {
    #[serde(default)]
    pub(super) table_name: String,
    pub(super) key_condition_expression: Option<String>,
    filter_expression: Option<String>,
    projection_expression: Option<String>,
    pub(super) expression_attribute_names: Names,
    pub(super) expression_attribute_values: Option<Values>,
    select: Option<String>,
    pub(super) limit: Option<i64>,
    pub(super) consistent_read: Option<bool>,
    pub(super) scan_index_forward: Option<bool>,
    pub(super) segment: Option<i64>,
    pub(super) total_segments: Option<i64>,
    pub(super) exclusive_start_key: Option<Item>,
    pub(super) return_consumed_capacity: Option<String>,
}

impl Parameters {
    /// Checks the limit and `ReturnConsumedCapacity`, which come before the expressions.
    pub(super) fn check(&self) -> Result<(Option<usize>, Report), Error> {
        check_table_name(&self.table_name)?;
        Ok((check_limit(self.limit)?, Report::parse(self.return_consumed_capacity.as_deref())?))
    }

    /// Parses the filter and the projection. The placeholders stay open.
    pub(super) fn expressions(&self, open: &mut Placeholders) -> Result<ReadExpressions, Error> {
        let filter = self.filter_expression.as_deref();
        let projection = self.projection_expression.as_deref();
        Ok(ReadExpressions {
            filter: filter.map(|text| Condition::parse("FilterExpression", text, open)).transpose()?,
            projection: projection.map(|text| Projection::parse(text, open)).transpose()?,
        })
    }

    /// Checks `Select`, and returns whether only the number of items is asked for.
    pub(super) fn counts_only(&self, expressions: &ReadExpressions) -> Result<bool, Error> {
        let has_projection = expressions.projection.is_some();
        let words = ["", "ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "COUNT", "SPECIFIC_ATTRIBUTES"];
        match one_of("select", self.select.as_deref(), &words.map(|word| (word, word)))? {
            "SPECIFIC_ATTRIBUTES" if !has_projection => {
                Err(Error::validation("Must specify the ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"))
            }
            word @ ("ALL_ATTRIBUTES" | "ALL_PROJECTED_ATTRIBUTES" | "COUNT") if has_projection => {
                Err(Error::validation(format!("Cannot specify the ProjectionExpression when choosing to get {word}")))
            }
            "ALL_PROJECTED_ATTRIBUTES" => {
                Err(Error::validation("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName"))
            }
            word => Ok(word == "COUNT"),
        }
    }
}

/// The expressions of a page.
pub(super) struct ReadExpressions {
    pub(super) filter: Option<Condition>,
    pub(super) projection: Option<Projection>,
}

/// A request for a page.
pub(super) struct Ask<'a> {
    pub(super) table: &'a Table,
    pub(super) range: Range,
    pub(super) forward: bool,
    pub(super) limit: Option<usize>,
    /// Whether only the number of items is asked for.
    pub(super) counts_only: bool,
    pub(super) expressions: &'a ReadExpressions,
    pub(super) as_of: Option<Millis>,
    pub(super) consistent: bool,
    pub(super) report: Report,
}

impl Ask<'_> {
    /// Reads the page, and returns the answer and the cost.
    pub(super) fn answer(&self) -> (Vec<u8>, Halves) {
        let mut page = Page::default();
        let mut halves = 0;
        let answer = Writer::document(|out| {
            if self.counts_only {
                self.read(&mut page, None);
            } else {
                out.key("Items").array(|out| self.read(&mut page, Some(out)));
            }
            out.key("Count").plain(page.count);
            out.key("ScannedCount").plain(page.scanned);
            if let Some(last) = page.last.filter(|_| page.cut) {
                out.key("LastEvaluatedKey").members(last.key_members());
            }
            halves = self.halves(&page);
            let mut consumed = Consumed::default();
            consumed.add(&self.table.name, halves);
            consumed.write_one(out, self.report);
        });
        (answer, halves)
    }

    /// The cost of the page. Each partition that it touches is rounded up by itself, even if it had no items.
    fn halves(&self, page: &Page<'_>) -> Halves {
        let count = self.table.partitions();
        let first = match &self.range.0 {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => key.partition(count),
        };
        let last = match &self.range.1 {
            Bound::Unbounded => count - 1,
            Bound::Included(key) => key.partition(count),
            Bound::Excluded(key) => key.partition_before(count),
        };
        // Only a scan sees several partitions, and it goes forward.
        let last = if page.cut { page.partitions.keys().next_back().copied().unwrap_or(first) } else { last };
        let read: Halves = page.partitions.values().map(|bytes| read_halves(*bytes, self.consistent)).sum();
        let came_by = last.max(first) - first + 1;
        read + (came_by - page.partitions.len() as u64) * read_halves(0, self.consistent)
    }

    fn read<'s>(&'s self, page: &mut Page<'s>, mut out: Option<&mut Writer>) {
        for (key, image) in self.table.rows.range(self.range.clone(), self.forward, self.as_of) {
            if page.scanned > 0 && page.bytes + image.size() > PAGE_BYTES {
                page.cut = true;
                return;
            }
            page.bytes += image.size();
            *page.partitions.entry(key.partition(self.table.partitions())).or_default() += image.size();
            page.scanned += 1;
            page.last = Some(image);
            let ReadExpressions { filter, projection } = self.expressions;
            if filter.as_ref().is_none_or(|filter| filter.holds(Some(&image.item()))) {
                page.count += 1;
                if let Some(out) = out.as_deref_mut() {
                    out.parts(image, projection.as_ref());
                }
            }
            if self.limit == Some(page.scanned) {
                page.cut = true;
                return;
            }
        }
    }
}

/// A page that was read.
#[derive(Default)]
struct Page<'a> {
    count: usize,
    scanned: usize,
    bytes: usize,
    /// The bytes read from each partition of the table.
    partitions: BTreeMap<u64, usize>,
    last: Option<&'a Image>,
    /// Whether it ended early, or may have.
    cut: bool,
}
