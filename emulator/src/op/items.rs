//! The operations on one item: PutItem, GetItem, UpdateItem and DeleteItem.

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::json::Writer;
use crate::value::Item;

use super::capacity::{Consumed, Report, read_halves};
use super::params::{Names, ReturnValues, check_table_name, parse_projection, required};
use super::write::{Parameters, Verb};

/// Puts an item.
pub(super) fn put(request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    write(Verb::Put, request, engine)
}

/// Changes attributes of an item, or creates it.
pub(super) fn update(request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    write(Verb::Update, request, engine)
}

/// Deletes an item.
pub(super) fn delete(request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    write(Verb::Delete, request, engine)
}

/// Writes one item.
fn write(verb: Verb, request: Parameters, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    let mut returns = ReturnValues::parse(request.return_values.as_deref())?;
    if verb != Verb::Update {
        returns = returns.only_old()?;
    }
    refuse_metrics(request.return_item_collection_metrics.as_deref())?;
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    check_table_name(&request.table_name)?;
    let mut action = request.parse(verb)?;
    let key = action.key(engine.table(&action.table)?)?;
    let mut consumed = Consumed::default();
    let plan = action.carry_out(&key, engine, &mut consumed)?;
    Ok(Writer::document(|out| {
        if let Some(returned) = plan.returned(returns, &action) {
            returned.write(out.key("Attributes"));
        }
        consumed.write_one(out, report);
    }))
}

/// Refuses ReturnItemCollectionMetrics, since the sizes of collections are not kept.
pub(super) fn refuse_metrics(given: Option<&str>) -> Result<(), Error> {
    match given {
        None | Some("NONE") => Ok(()),
        Some(_) => {
            Err(Error::validation("The parameter ReturnItemCollectionMetrics is not supported by this emulator"))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct GetItem {
    #[serde(default)]
    table_name: String,
    key: Option<Item>,
    consistent_read: Option<bool>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
    return_consumed_capacity: Option<String>,
}

/// Reads an item.
pub(super) fn get(request: GetItem, engine: &mut Engine) -> Result<Vec<u8>, Error> {
    check_table_name(&request.table_name)?;
    let report = Report::parse(request.return_consumed_capacity.as_deref())?;
    let consistent = request.consistent_read.unwrap_or(false);
    let key = required("key", request.key)?;
    let projection = parse_projection(request.projection_expression.as_deref(), request.expression_attribute_names)?;
    let key = engine.table(&request.table_name)?.schema.key_of(&key)?;
    let mut consumed = Consumed::default();
    let found = read_item(&request.table_name, &key, consistent, engine, &mut consumed)?;
    Ok(Writer::document(|out| {
        if let Some(image) = found {
            out.key("Item").parts(&image, projection.as_ref());
        }
        consumed.write_one(out, report);
    }))
}

/// Reads one item by its key, and adds the cost.
pub(super) fn read_item(
    table: &str,
    key: &Key,
    consistent: bool,
    engine: &mut Engine,
    consumed: &mut Consumed,
) -> Result<Option<Image>, Error> {
    let as_of = engine.as_of(consistent);
    engine.admit(Use::Read, table, key)?;
    let found = engine.table(table)?.rows.get(key, as_of).cloned();
    let halves = read_halves(found.as_ref().map_or(0, Image::size), consistent);
    consumed.pay(Use::Read, table, key, halves, engine);
    Ok(found)
}
