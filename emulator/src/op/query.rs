//! Query: the items of one collection (all items with one partition key), ordered by sort key.

use std::ops::Bound;

use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::rows::Range;
use crate::engine::schema::{KeyAttribute, Schema};
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::expression::{Comparator, KeyCondition, KeyRange, RangeCondition};
use crate::value::Value;

use super::page::{Ask, Parameters, ReadExpressions, start_key};
use super::params::placeholders;

/// Reads a part of a collection.
pub(super) fn run(mut request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let (limit, report) = request.check()?;
    let consistent = request.consistent_read.unwrap_or(false);
    let (names, values) = (request.expression_attribute_names.take(), request.expression_attribute_values.take());
    let mut open = placeholders(names, values)?;
    let Some(condition) = &request.key_condition_expression else {
        return Err(Error::validation(
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
        ));
    };
    let condition = KeyCondition::parse(condition, &mut open)?;
    let expressions = request.expressions(&mut open)?;
    open.finish()?;
    let counts_only = request.counts_only(&expressions)?;
    let as_of = engine.as_of(consistent);
    let table = engine.table(&request.table_name)?;
    let selected =
        condition.resolve(&table.schema.hash.name, table.schema.range.as_ref().map(|range| range.name.as_str()))?;
    check_types(&table.schema, &selected)?;
    refuse_key_filter(&table.schema, &expressions)?;
    let collection = Key::new(&selected.hash, &[]);
    engine.admit(Use::Read, &request.table_name, &collection)?;
    let mut range = Key::collection(&selected.hash, selected.range.as_ref());
    let forward = request.scan_index_forward.unwrap_or(true);
    let single = finds_one_at_most(&table.schema, &selected);
    if let Some(start) = &request.exclusive_start_key {
        resume(&mut range, start_key(table, start)?, forward)?;
        if single {
            return Err(Error::validation("The query can return at most one row and cannot be restarted"));
        }
    }
    // If there is nothing after the first item, a limit of one has cut nothing off.
    let limit = limit.filter(|_| !single);
    let ask = Ask { table, range, forward, limit, counts_only, expressions: &expressions, as_of, consistent, report };
    let (answer, halves) = ask.answer();
    engine.spend(Use::Read, &request.table_name, &collection, halves);
    Ok(answer)
}

/// Whether the condition names a whole key of the table, which at most one item has.
fn finds_one_at_most(schema: &Schema, selected: &KeyRange) -> bool {
    let names_range = matches!(selected.range, Some(RangeCondition::Compare(Comparator::Equal, _)));
    schema.range.is_none() || names_range
}

/// Narrows a range to the positions after a key, in the direction of reading.
fn resume(range: &mut Range, start: Key, forward: bool) -> Result<(), Error> {
    if !std::ops::RangeBounds::contains(range, &start) {
        return Err(Error::validation(
            "The provided starting key is outside query boundaries based on provided conditions",
        ));
    }
    let end = if forward { &mut range.0 } else { &mut range.1 };
    *end = Bound::Excluded(start);
    Ok(())
}

/// Checks the types in a key condition.
fn check_types(schema: &Schema, selected: &KeyRange) -> Result<(), Error> {
    let check = |attribute: &KeyAttribute, value: &Value| {
        if value.type_code() == attribute.key_type {
            return Ok(());
        }
        Err(Error::parameters("Condition parameter type does not match schema type"))
    };
    check(&schema.hash, &selected.hash)?;
    if let (Some(range), Some(condition)) = (&schema.range, &selected.range) {
        condition.operands().try_for_each(|operand| check(range, operand))?;
    }
    Ok(())
}

/// Refuses a filter on key attributes.
fn refuse_key_filter(schema: &Schema, expressions: &ReadExpressions) -> Result<(), Error> {
    let Some(filter) = &expressions.filter else { return Ok(()) };
    match schema.names().find(|name| filter.reads(name)) {
        None => Ok(()),
        Some(name) => Err(Error::validation(format!(
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: {name}"
        ))),
    }
}
