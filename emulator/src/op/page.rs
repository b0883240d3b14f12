//! One page of a Query or Scan: the items that it evaluates, its end, and the attributes that it returns.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::Deserialize;

use crate::clock::Millis;
use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::rows::{Range, Rows};
use crate::engine::table::{LocalIndex, Projected, Table, index_key};
use crate::error::Error;
use crate::expression::{Condition, Kind, Placeholders, Projection};
use crate::limits::PAGE_BYTES;
use crate::value::{Item, Values};
use crate::wire::json::Writer;

use super::capacity::{Consumed, Halves, Report, read_halves};
use super::params::{Names, Unsupported, check_limit, check_table_name, one_of, refuse};

/// The checked `Select` parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Select {
    All,
    /// The projection of the index; whole items from the table.
    Projected,
    /// Only the number of items.
    Count,
    /// The attributes in the projection expression.
    Specific,
}

impl Select {
    fn parse(given: Option<&str>, has_projection: bool, on_index: bool) -> Result<Self, Error> {
        let default = match (has_projection, on_index) {
            (true, _) => Self::Specific,
            (false, true) => Self::Projected,
            (false, false) => Self::All,
        };
        let choices = [
            ("", default),
            ("ALL_ATTRIBUTES", Self::All),
            ("ALL_PROJECTED_ATTRIBUTES", Self::Projected),
            ("COUNT", Self::Count),
            ("SPECIFIC_ATTRIBUTES", Self::Specific),
        ];
        let select = one_of("select", given.filter(|given| !given.is_empty()), &choices)?;
        match select {
            Self::Specific if !has_projection => {
                Err(Error::validation("Must specify the ProjectionExpression when choosing to get SPECIFIC_ATTRIBUTES"))
            }
            Self::All | Self::Projected | Self::Count if has_projection => Err(Error::validation(format!(
                "Cannot specify the ProjectionExpression when choosing to get {}",
                given.unwrap_or_default()
            ))),
            Self::Projected if !on_index => {
                Err(Error::validation("ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName"))
            }
            select => Ok(select),
        }
    }
}

/// The source of a page: a table or one of its indexes.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) table: &'a Table,
    pub(super) index: Option<&'a LocalIndex>,
}

impl<'a> Source<'a> {
    fn new(table: &'a Table, index: Option<&str>) -> Result<Self, Error> {
        Ok(Self { table, index: index.map(|name| table.index(name)).transpose()? })
    }

    /// The sort key of this source.
    pub(super) fn range_name(&self) -> Option<&'a str> {
        match self.index {
            Some(index) => Some(&index.range.name),
            None => self.table.schema.range.as_ref().map(|range| range.name.as_str()),
        }
    }

    fn rows(&self) -> &'a Rows {
        self.index.map_or(&self.table.rows, |index| &index.rows)
    }

    /// The position of an `ExclusiveStartKey`.
    pub(super) fn start(&self, key: &Item) -> Result<Key, Error> {
        let invalid = || {
            Error::validation(
                "The provided starting key is invalid: The provided key element does not match the schema",
            )
        };
        let Some(index) = self.index else { return self.table.schema.key_of(key).map_err(|_| invalid()) };
        let mut base = key.clone();
        if self.table.schema.names().all(|name| name != index.range.name) {
            base.remove(&index.range.name);
        }
        self.table.schema.key_of(&base).map_err(|_| invalid())?;
        index_key(&self.table.schema, &index.range, key).ok_or_else(invalid)
    }

    fn write_last_key(&self, out: &mut Writer, image: &Image) {
        out.key("LastEvaluatedKey");
        match self.index {
            None => out.members(image.key_members()),
            Some(index) => {
                let mut key = image.key();
                if let Some(value) = image.item().remove(&index.range.name) {
                    key.insert(index.range.name.clone(), value);
                }
                out.item(&key);
            }
        }
    }

    /// The attributes of an item that the index contains.
    fn project(&self, item: Item, projected: &Projected) -> Item {
        let range = self.range_name();
        let kept = |name: &str| {
            self.table.schema.names().any(|key| key == name)
                || range == Some(name)
                || matches!(projected, Projected::Include(names) if names.iter().any(|kept| kept == name))
        };
        item.into_iter().filter(|(name, _)| kept(name)).collect()
    }
}

/// The parameters of a Query or Scan.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Parameters {
    #[serde(default)]
    pub(super) table_name: String,
    pub(super) index_name: Option<String>,
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
    pub(super) key_conditions: Unsupported,
    pub(super) query_filter: Unsupported,
    pub(super) scan_filter: Unsupported,
    pub(super) conditional_operator: Unsupported,
    pub(super) attributes_to_get: Unsupported,
}

impl Parameters {
    /// Checks the limit and `ReturnConsumedCapacity`, which come before the expressions.
    pub(super) fn check(&self) -> Result<(Option<usize>, Report), Error> {
        let unsupported =
            [("ConditionalOperator", &self.conditional_operator), ("AttributesToGet", &self.attributes_to_get)];
        refuse(&unsupported)?;
        check_table_name(&self.table_name)?;
        Ok((check_limit(self.limit)?, Report::parse(self.return_consumed_capacity.as_deref())?))
    }

    /// Parses the filter and the projection. The placeholders stay open.
    pub(super) fn expressions(&self, open: &mut Placeholders) -> Result<ReadExpressions, Error> {
        let filter = self.filter_expression.as_deref();
        let projection = self.projection_expression.as_deref();
        Ok(ReadExpressions {
            filter: filter.map(|text| Condition::parse(Kind::Filter, text, open)).transpose()?,
            projection: projection.map(|text| Projection::parse(text, open)).transpose()?,
        })
    }

    pub(super) fn select(&self, expressions: &ReadExpressions) -> Result<Select, Error> {
        Select::parse(self.select.as_deref(), expressions.projection.is_some(), self.index_name.is_some())
    }

    pub(super) fn source<'e>(&self, engine: &'e Engine) -> Result<Source<'e>, Error> {
        Source::new(engine.table(&self.table_name)?, self.index_name.as_deref())
    }
}

/// The expressions of a page.
#[derive(Default)]
pub(super) struct ReadExpressions {
    pub(super) filter: Option<Condition>,
    pub(super) projection: Option<Projection>,
}

/// A request for a page.
pub(super) struct Ask<'a> {
    pub(super) source: Source<'a>,
    pub(super) range: Range,
    pub(super) forward: bool,
    pub(super) limit: Option<usize>,
    pub(super) select: Select,
    pub(super) expressions: &'a ReadExpressions,
    pub(super) as_of: Option<Millis>,
    pub(super) consistent: bool,
    pub(super) report: Report,
}

impl Ask<'_> {
    /// Reads the page, and returns the answer and the cost.
    pub(super) fn answer(&self) -> (Vec<u8>, Halves) {
        let mut out = Writer::new();
        let mut page = Page::default();
        let mut cost = 0;
        out.object(|out| {
            if self.select == Select::Count {
                self.read(&mut page, None);
            } else {
                out.key("Items").array(|out| self.read(&mut page, Some(out)));
            }
            out.key("Count").plain(page.count);
            out.key("ScannedCount").plain(page.scanned);
            if let Some(last) = page.last.filter(|_| page.cut) {
                self.source.write_last_key(out, last);
            }
            let mut consumed = Consumed::default();
            let halves = self.halves(&page);
            cost = halves;
            let table = &self.source.table.name;
            match self.source.index {
                None => consumed.add(table, halves),
                Some(index) => consumed.add_index(table, &index.name, halves),
            }
            consumed.write_one(out, self.report);
        });
        (out.finish(), cost)
    }

    /// The cost of the page. Each partition that it touches is rounded up by itself, even if it had no items.
    fn halves(&self, page: &Page<'_>) -> Halves {
        let count = self.source.table.partitions();
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
        for (key, image) in self.source.rows().range(self.range.clone(), self.forward, self.as_of) {
            if page.scanned > 0 && page.bytes + image.size() > PAGE_BYTES {
                page.cut = true;
                return;
            }
            page.bytes += image.size();
            *page.partitions.entry(key.partition(self.source.table.partitions())).or_default() += image.size();
            page.scanned += 1;
            page.last = Some(image);
            if let Some(out) = out.as_deref_mut() {
                page.count += usize::from(self.show(image, out));
            } else {
                let filter = self.expressions.filter.as_ref();
                page.count += usize::from(filter.is_none_or(|filter| filter.holds(Some(&image.item()))));
            }
            if self.limit == Some(page.scanned) {
                page.cut = true;
                return;
            }
        }
    }

    /// Writes an item if it passes the filter.
    fn show(&self, image: &Image, out: &mut Writer) -> bool {
        let ReadExpressions { filter, projection } = self.expressions;
        let projected = self.source.index.map(|index| &index.projected).filter(|_| self.select == Select::Projected);
        let projected = projected.filter(|projected| **projected != Projected::All);
        match (filter, projection, projected) {
            (None, None, None) => out.image(image),
            (filter, projection, projected) => {
                let item = image.item();
                if filter.as_ref().is_some_and(|filter: &Condition| !filter.holds(Some(&item))) {
                    return false;
                }
                match (projection, projected) {
                    (None, None) => out.image(image),
                    (Some(projection), _) => out.item(&Projection::project(projection, &item)),
                    (None, Some(projected)) => out.item(&self.source.project(item, projected)),
                }
            }
        }
        true
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
