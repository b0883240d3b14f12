//! Scan: all items by the hash of the partition key, as a whole or in segments.

use std::ops::Bound;

use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::rows::Range;
use crate::error::Error;
use crate::limits::SEGMENTS;

use super::page::{Ask, Parameters, start_key};
use super::params::{constraint, placeholders};

/// Reads a table from its beginning to its end.
pub(super) fn run(mut request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let (limit, report) = request.check()?;
    let consistent = request.consistent_read.unwrap_or(false);
    let mut range = segment(request.segment, request.total_segments)?;
    let (names, values) = (request.expression_attribute_names.take(), request.expression_attribute_values.take());
    let mut open = placeholders(names, values)?;
    let expressions = request.expressions(&mut open)?;
    if expressions.filter.is_some() || expressions.projection.is_some() {
        open.finish()?;
    } else {
        open.refuse_without_expression("FilterExpression is null")?;
    }
    let counts_only = request.counts_only(&expressions)?;
    let as_of = engine.as_of(consistent);
    let table = engine.table(&request.table_name)?;
    if let Some(start) = &request.exclusive_start_key {
        let start = start_key(table, start)?;
        if !std::ops::RangeBounds::contains(&range, &start) {
            return Err(Error::validation(
                "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment.",
            ));
        }
        range.0 = Bound::Excluded(start);
    }
    let ask =
        Ask { table, range, forward: true, limit, counts_only, expressions: &expressions, as_of, consistent, report };
    Ok(ask.answer().0)
}

/// The range of a segment.
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
    let within =
        "Member must have value less than or equal to 1000000, Member must have value greater than or equal to 1";
    let count = count.ok_or_else(|| invalid("totalSegments", total, within))?;
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

/// The start of the nth of `count` equal parts of the space of hashes.
fn boundary(nth: u64, count: u64) -> Key {
    let hash = (u128::from(nth) << 64) / u128::from(count);
    Key::at_hash(u64::try_from(hash).expect("nth is below count"))
}
