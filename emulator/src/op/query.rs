//! Query: the items of one collection, in the order of a sort key.

use std::ops::Bound;

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::rows::Range;
use crate::engine::schema::KeyAttribute;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::expression::{KeyCondition, KeyRange, RangeCondition};
use crate::value::{Item, Value, Values};

use super::Operation;
use super::capacity::Report;
use super::page::{Ask, Select, Source};
use super::params::{Names, ReadExpressions, Unsupported, check_limit, check_table_name, placeholders, refuse};

/// Reads a part of a collection.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Query {
    #[serde(default)]
    table_name: String,
    index_name: Option<String>,
    key_condition_expression: Option<String>,
    filter_expression: Option<String>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    select: Option<String>,
    limit: Option<i64>,
    consistent_read: Option<bool>,
    scan_index_forward: Option<bool>,
    exclusive_start_key: Option<Item>,
    return_consumed_capacity: Option<String>,
    key_conditions: Unsupported,
    query_filter: Unsupported,
    conditional_operator: Unsupported,
    attributes_to_get: Unsupported,
}

impl Operation for Query {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        refuse(&[
            ("KeyConditions", &self.key_conditions),
            ("QueryFilter", &self.query_filter),
            ("ConditionalOperator", &self.conditional_operator),
            ("AttributesToGet", &self.attributes_to_get),
        ])?;
        check_table_name(&self.table_name)?;
        let limit = check_limit(self.limit)?;
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let consistent = self.consistent_read.unwrap_or(false);
        let mut open = placeholders(self.expression_attribute_names, self.expression_attribute_values)?;
        let Some(condition) = &self.key_condition_expression else {
            return Err(Error::validation(
                "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
            ));
        };
        let condition = KeyCondition::parse(condition, &mut open)?;
        let filter = self.filter_expression.as_deref();
        let expressions = ReadExpressions::parse(filter, self.projection_expression.as_deref(), &mut open)?;
        open.finish()?;
        let select =
            Select::parse(self.select.as_deref(), expressions.projection.is_some(), self.index_name.is_some())?;
        let as_of = engine.as_of(consistent);
        let source = Source::new(engine.table(&self.table_name)?, self.index_name.as_deref())?;
        let selected = condition.resolve(&source.table.schema.hash.name, source.range_name())?;
        check_types(source, &selected)?;
        refuse_key_filter(source, &expressions)?;
        let collection = Key::new(&selected.hash, &[]);
        engine.admit(Use::Read, &self.table_name, &collection)?;
        let mut range = Key::collection(&selected.hash, selected.range.as_ref());
        let forward = self.scan_index_forward.unwrap_or(true);
        let single = finds_one_at_most(source, &selected);
        if let Some(start) = &self.exclusive_start_key {
            resume(&mut range, source.start(start)?, forward)?;
            if single {
                return Err(Error::validation("The query can return at most one row and cannot be restarted"));
            }
        }
        // Where there is nothing behind the first item, a limit of one has cut nothing off.
        let limit = limit.filter(|_| !single);
        let ask = Ask { source, range, forward, limit, select, expressions: &expressions, as_of, consistent, report };
        let (answer, halves) = ask.answer();
        engine.spend(Use::Read, &self.table_name, &collection, halves);
        Ok(answer)
    }
}

/// Whether the condition names a whole key of the table, which one item can have.
fn finds_one_at_most(source: Source<'_>, selected: &KeyRange) -> bool {
    let names_range = matches!(selected.range, Some(RangeCondition::Eq(_)));
    source.index.is_none() && (source.table.schema.range.is_none() || names_range)
}

/// Narrows an interval to what stands behind a key in the direction of reading.
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

/// The values of a key condition have the types of the key.
fn check_types(source: Source<'_>, selected: &KeyRange) -> Result<(), Error> {
    let check = |attribute: &KeyAttribute, value: &Value| {
        if value.type_code() == attribute.key_type.name() {
            return Ok(());
        }
        Err(Error::parameters("Condition parameter type does not match schema type"))
    };
    check(&source.table.schema.hash, &selected.hash)?;
    let range = source.index.map(|index| &index.range).or(source.table.schema.range.as_ref());
    if let (Some(range), Some(condition)) = (range, &selected.range) {
        condition.operands().try_for_each(|operand| check(range, operand))?;
    }
    Ok(())
}

/// A filter is for what the key condition cannot say.
fn refuse_key_filter(source: Source<'_>, expressions: &ReadExpressions) -> Result<(), Error> {
    let Some(filter) = &expressions.filter else { return Ok(()) };
    let hash = source.table.schema.hash.name.as_str();
    match std::iter::once(hash).chain(source.range_name()).find(|name| filter.reads(name)) {
        None => Ok(()),
        Some(name) => Err(Error::validation(format!(
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: {name}"
        ))),
    }
}
