//! PutItem, GetItem, UpdateItem and DeleteItem.

use std::marker::PhantomData;

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::json::Writer;
use crate::value::Item;

use super::Operation;
use super::capacity::{Consumed, Report, read_halves};
use super::params::{Names, ReturnValues, check_table_name, parse_projection, required};
use super::write::{Action, Parameters, Verb};

/// Puts an item.
pub(crate) type PutItem = Write<Put>;
/// Changes attributes of an item, or creates it.
pub(crate) type UpdateItem = Write<Update>;
/// Deletes an item.
pub(crate) type DeleteItem = Write<Delete>;

/// Writes one item.
#[derive(Debug, Deserialize)]
#[serde(from = "Parameters", bound = "V: Single")]
pub(crate) struct Write<V> {
    ready: Box<Result<(ReturnValues, Report, Action), Error>>,
    verb: PhantomData<V>,
}

/// The kind of a single write.
pub(crate) trait Single {
    const VERB: Verb;
}

pub(crate) struct Put;
pub(crate) struct Update;
pub(crate) struct Delete;

impl Single for Put {
    const VERB: Verb = Verb::Put;
}

impl Single for Update {
    const VERB: Verb = Verb::Update;
}

impl Single for Delete {
    const VERB: Verb = Verb::Delete;
}

impl<V: Single> From<Parameters> for Write<V> {
    fn from(parameters: Parameters) -> Self {
        Self { ready: Box::new(read(V::VERB, parameters)), verb: PhantomData }
    }
}

fn read(verb: Verb, parameters: Parameters) -> Result<(ReturnValues, Report, Action), Error> {
    let mut returns = ReturnValues::parse(parameters.return_values.as_deref())?;
    if verb != Verb::Update {
        returns = returns.only_old()?;
    }
    refuse_metrics(parameters.return_item_collection_metrics.as_deref())?;
    let report = Report::parse(parameters.return_consumed_capacity.as_deref())?;
    check_table_name(&parameters.table_name)?;
    Ok((returns, report, parameters.parse(verb)?))
}

impl<V: Single> Operation for Write<V> {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        let (returns, report, mut action) = (*self.ready)?;
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

/// Reads an item.
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

impl Operation for GetItem {
    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        check_table_name(&self.table_name)?;
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let consistent = self.consistent_read.unwrap_or(false);
        let key = required("key", self.key)?;
        let projection = parse_projection(self.projection_expression.as_deref(), self.expression_attribute_names)?;
        let key = engine.table(&self.table_name)?.schema.key_of(&key)?;
        let mut consumed = Consumed::default();
        let found = read_item(&self.table_name, &key, consistent, engine, &mut consumed)?;
        Ok(Writer::document(|out| {
            if let Some(image) = found {
                out.key("Item").parts(&image, projection.as_ref());
            }
            consumed.write_one(out, report);
        }))
    }
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
