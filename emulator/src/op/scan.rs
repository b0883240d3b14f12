//! Scan: everything, by the hash of the partition key, whole or in segments of the space of hashes.

use std::ops::Bound;

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::rows::Range;
use crate::error::Error;
use crate::limits::SEGMENTS;
use crate::value::{Item, Values};

use super::Operation;
use super::capacity::Report;
use super::page::{Ask, Select, Source};
use super::params::{
    Names, ReadExpressions, Unsupported, check_limit, check_table_name, constraint, placeholders, refuse,
};

/// Reads a table or index from one end to the other.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Scan {
    #[serde(default)]
    table_name: String,
    index_name: Option<String>,
    filter_expression: Option<String>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    select: Option<String>,
    limit: Option<i64>,
    consistent_read: Option<bool>,
    segment: Option<i64>,
    total_segments: Option<i64>,
    exclusive_start_key: Option<Item>,
    return_consumed_capacity: Option<String>,
    scan_filter: Unsupported,
    conditional_operator: Unsupported,
    attributes_to_get: Unsupported,
}

impl Operation for Scan {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        refuse(&[
            ("ScanFilter", &self.scan_filter),
            ("ConditionalOperator", &self.conditional_operator),
            ("AttributesToGet", &self.attributes_to_get),
        ])?;
        check_table_name(&self.table_name)?;
        let limit = check_limit(self.limit)?;
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let consistent = self.consistent_read.unwrap_or(false);
        let mut range = segment(self.segment, self.total_segments)?;
        let mut open = placeholders(self.expression_attribute_names, self.expression_attribute_values)?;
        let filter = self.filter_expression.as_deref();
        let expressions = ReadExpressions::parse(filter, self.projection_expression.as_deref(), &mut open)?;
        if expressions.filter.is_some() || expressions.projection.is_some() {
            open.finish()?;
        } else {
            open.refuse_without_expression("FilterExpression is null")?;
        }
        let select =
            Select::parse(self.select.as_deref(), expressions.projection.is_some(), self.index_name.is_some())?;
        let as_of = engine.as_of(consistent);
        let source = Source::new(engine.table(&self.table_name)?, self.index_name.as_deref())?;
        if let Some(start) = &self.exclusive_start_key {
            let start = source.start(start)?;
            if !std::ops::RangeBounds::contains(&range, &start) {
                return Err(Error::validation(
                    "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment.",
                ));
            }
            range.0 = Bound::Excluded(start);
        }
        let ask =
            Ask { source, range, forward: true, limit, select, expressions: &expressions, as_of, consistent, report };
        Ok(ask.answer().0)
    }
}

/// The part of the space of hashes that a segment is.
fn segment(segment: Option<i64>, total: Option<i64>) -> Result<Range, Error> {
    let (segment, total) = match (segment, total) {
        (None, None) => (0, 1),
        (Some(segment), Some(total)) => (segment, total),
        (None, Some(_)) => {
            return Err(Error::validation(
                "The Segment parameter is required but was not present in the request when parameter TotalSegments is present",
            ));
        }
        (Some(_), None) => {
            return Err(Error::validation(
                "The TotalSegments parameter is required but was not present in the request when Segment parameter is present",
            ));
        }
    };
    let invalid = |name: &str, value: i64, rule: &str| constraint(name, &value.to_string(), rule);
    let count = u64::try_from(total).ok().filter(|count| (1..=SEGMENTS).contains(count));
    let count = count.ok_or_else(|| {
        invalid(
            "totalSegments",
            total,
            "Member must have value less than or equal to 1000000, Member must have value greater than or equal to 1",
        )
    })?;
    let nth = u64::try_from(segment)
        .map_err(|_| invalid("segment", segment, "Member must have value greater than or equal to 0"))?;
    if nth >= count {
        return Err(Error::validation(format!(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: {nth} is not less than TotalSegments: {count}"
        )));
    }
    Ok((
        Bound::Included(boundary(nth, count)),
        if nth + 1 == count { Bound::Unbounded } else { Bound::Excluded(boundary(nth + 1, count)) },
    ))
}

/// Where the nth of `count` equal parts of the space of hashes begins.
fn boundary(nth: u64, count: u64) -> Key {
    let hash = (u128::from(nth) << 64) / u128::from(count);
    Key::at_hash(u64::try_from(hash).expect("nth is below count"))
}
