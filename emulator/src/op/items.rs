//! PutItem, GetItem, UpdateItem and DeleteItem.

use serde::Deserialize;

use crate::engine::Engine;
use crate::engine::image::Image;
use crate::engine::key::Key;
use crate::engine::throughput::Use;
use crate::error::Error;
use crate::value::{Item, Values};
use crate::wire::json::Writer;

use super::Operation;
use super::capacity::{Consumed, Report, read_halves};
use super::params::{Names, ReturnValues, Unsupported, check_table_name, parse_projection, refuse, required_item};
use super::write::{Action, Parameters, Verb};

/// Stores an item whole.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct PutItem {
    #[serde(default)]
    table_name: String,
    item: Option<Item>,
    condition_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    return_values: Option<String>,
    return_values_on_condition_check_failure: Option<String>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
    expected: Unsupported,
    conditional_operator: Unsupported,
}

/// Changes attributes of an item, or makes one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct UpdateItem {
    #[serde(default)]
    table_name: String,
    key: Option<Item>,
    update_expression: Option<String>,
    condition_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    return_values: Option<String>,
    return_values_on_condition_check_failure: Option<String>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
    attribute_updates: Unsupported,
    expected: Unsupported,
    conditional_operator: Unsupported,
    /// What was prepared of it.
    #[serde(skip)]
    ready: Option<Box<Result<(Answer, Action), Error>>>,
}

/// Removes an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DeleteItem {
    #[serde(default)]
    table_name: String,
    key: Option<Item>,
    condition_expression: Option<String>,
    expression_attribute_names: Names,
    expression_attribute_values: Option<Values>,
    return_values: Option<String>,
    return_values_on_condition_check_failure: Option<String>,
    return_consumed_capacity: Option<String>,
    return_item_collection_metrics: Option<String>,
    expected: Unsupported,
    conditional_operator: Unsupported,
}

impl Operation for PutItem {
    fn touches(&self, table: &str) -> bool {
        self.table_name == table
    }

    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        refuse(&[("Expected", &self.expected), ("ConditionalOperator", &self.conditional_operator)])?;
        let returns = ReturnValues::parse(self.return_values.as_deref())?.only_old()?;
        let answer = Answer::new(
            returns,
            self.return_consumed_capacity.as_deref(),
            self.return_item_collection_metrics.as_deref(),
        )?;
        let parameters = Parameters {
            table: self.table_name,
            item: self.item,
            condition: self.condition_expression,
            names: self.expression_attribute_names,
            values: self.expression_attribute_values,
            on_failure: self.return_values_on_condition_check_failure,
            ..Parameters::default()
        };
        answer.carry_out(read(parameters, Verb::Put)?, engine)
    }
}

impl Operation for UpdateItem {
    fn touches(&self, table: &str) -> bool {
        self.table_name == table
    }

    fn prepare(&mut self) {
        self.ready = Some(Box::new(self.read()));
    }

    fn run(mut self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        let (answer, action) = match self.ready.take() {
            Some(ready) => (*ready)?,
            None => self.read()?,
        };
        answer.carry_out(action, engine)
    }
}

impl UpdateItem {
    fn read(&mut self) -> Result<(Answer, Action), Error> {
        refuse(&[
            ("AttributeUpdates", &self.attribute_updates),
            ("Expected", &self.expected),
            ("ConditionalOperator", &self.conditional_operator),
        ])?;
        let returns = ReturnValues::parse(self.return_values.as_deref())?;
        let answer = Answer::new(
            returns,
            self.return_consumed_capacity.as_deref(),
            self.return_item_collection_metrics.as_deref(),
        )?;
        let parameters = Parameters {
            table: self.table_name.clone(),
            key: self.key.take(),
            update: self.update_expression.take(),
            condition: self.condition_expression.take(),
            names: self.expression_attribute_names.take(),
            values: self.expression_attribute_values.take(),
            on_failure: self.return_values_on_condition_check_failure.take(),
            ..Parameters::default()
        };
        Ok((answer, read(parameters, Verb::Update)?))
    }
}

impl Operation for DeleteItem {
    fn touches(&self, table: &str) -> bool {
        self.table_name == table
    }

    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        refuse(&[("Expected", &self.expected), ("ConditionalOperator", &self.conditional_operator)])?;
        let returns = ReturnValues::parse(self.return_values.as_deref())?.only_old()?;
        let answer = Answer::new(
            returns,
            self.return_consumed_capacity.as_deref(),
            self.return_item_collection_metrics.as_deref(),
        )?;
        let parameters = Parameters {
            table: self.table_name,
            key: self.key,
            condition: self.condition_expression,
            names: self.expression_attribute_names,
            values: self.expression_attribute_values,
            on_failure: self.return_values_on_condition_check_failure,
            ..Parameters::default()
        };
        answer.carry_out(read(parameters, Verb::Delete)?, engine)
    }
}

/// A write whose expressions are read.
fn read(parameters: Parameters, verb: Verb) -> Result<Action, Error> {
    check_table_name(&parameters.table)?;
    parameters.parse(verb)
}

/// What a single write is to answer.
#[derive(Debug)]
struct Answer {
    returns: ReturnValues,
    report: Report,
}

impl Answer {
    fn new(returns: ReturnValues, report: Option<&str>, metrics: Option<&str>) -> Result<Self, Error> {
        refuse_metrics(metrics)?;
        Ok(Self { returns, report: Report::parse(report)? })
    }

    fn carry_out(&self, mut action: Action, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        let key = action.key(engine.table(&action.table)?)?;
        let mut consumed = Consumed::default();
        let plan = action.carry_out(&key, engine, &mut consumed)?;
        Ok(Writer::document(|out| {
            if let Some(returned) = plan.returned(self.returns, &action) {
                returned.write(out.key("Attributes"));
            }
            consumed.write_one(out, self.report);
        }))
    }
}

/// Sizes of collections are not kept.
pub(super) fn refuse_metrics(given: Option<&str>) -> Result<(), Error> {
    match given {
        None | Some("NONE") => Ok(()),
        Some(_) => refuse(&[("ReturnItemCollectionMetrics", &Some(serde::de::IgnoredAny))]),
    }
}

/// Reads an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GetItem {
    #[serde(default)]
    table_name: String,
    key: Option<Item>,
    consistent_read: Option<bool>,
    projection_expression: Option<String>,
    expression_attribute_names: Names,
    return_consumed_capacity: Option<String>,
    attributes_to_get: Unsupported,
}

impl Operation for GetItem {
    fn touches(&self, table: &str) -> bool {
        self.table_name == table
    }

    fn run(self, engine: &mut Engine) -> Result<Vec<u8>, Error> {
        refuse(&[("AttributesToGet", &self.attributes_to_get)])?;
        check_table_name(&self.table_name)?;
        let report = Report::parse(self.return_consumed_capacity.as_deref())?;
        let consistent = self.consistent_read.unwrap_or(false);
        let key = required_item("key", self.key)?;
        let projection = parse_projection(self.projection_expression.as_deref(), self.expression_attribute_names)?;
        let key = engine.table(&self.table_name)?.schema.key_of(&key)?;
        let mut consumed = Consumed::default();
        let found = read_item(&self.table_name, &key, consistent, engine, &mut consumed)?;
        Ok(Writer::document(|out| {
            if let Some(image) = found {
                out.key("Item");
                match &projection {
                    None => out.image(&image),
                    Some(projection) => out.item(&projection.project(&image.item())),
                }
            }
            consumed.write_one(out, report);
        }))
    }
}

/// Reads one item by its key, and adds what that costs.
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
    consumed.add(table, halves);
    engine.spend(Use::Read, table, key, halves);
    Ok(found)
}
