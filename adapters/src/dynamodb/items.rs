//! Requests about single items of a table.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::expression::Aliases;
use super::fault::{fault, unless_refused};
use super::get::Consistency;
use super::item::Item;

/// The items of one table.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    client: &'a aws_sdk_dynamodb::Client,
    table: &'a str,
}

/// What became of a conditional write.
pub(super) enum Conditional {
    /// It was carried out; the item afterwards.
    Done(Item),
    /// Its condition does not hold; the item as it is, if there is one.
    Refused(Option<Item>),
}

impl Conditional {
    /// The item afterwards, if it was carried out.
    pub(super) fn done(self) -> Option<Item> {
        match self {
            Self::Done(item) => Some(item),
            Self::Refused(_) => None,
        }
    }
}

impl Connection {
    /// The items of a table.
    pub(super) fn items<'a>(&'a self, table: &'a str) -> Items<'a> {
        Items { client: &self.client, table }
    }
}

impl Items<'_> {
    /// The item under `key`, read consistently.
    pub(super) async fn get(self, key: Item) -> Outcome<Option<Item>> {
        self.get_as(key, Consistency::Strong).await
    }

    /// The item under `key`.
    pub(super) async fn get_as(self, key: Item, consistency: Consistency) -> Outcome<Option<Item>> {
        let get = self.client.get_item().table_name(self.table).set_key(Some(key));
        let reply = get.consistent_read(consistency.is_strong()).send().await;
        Ok(reply.map_err(|error| fault(self.table, &error))?.item)
    }

    /// Puts an item in the place of the one that is there. Safe to repeat wherever the same item is meant to stand.
    pub(super) async fn put(self, item: Item) -> Outcome<()> {
        let put = self.client.put_item().table_name(self.table).set_item(Some(item));
        put.send().await.map(|_| ()).map_err(|error| fault(self.table, &error))
    }

    /// Puts an item if `condition` holds. Safe to repeat wherever carrying it out makes the condition false.
    pub(super) async fn put_if(self, item: Item, say: Aliases, condition: String) -> Outcome<Conditional> {
        let (names, values) = say.finish();
        let put = self
            .client
            .put_item()
            .table_name(self.table)
            .set_item(Some(item.clone()))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match put.send().await {
            Ok(_) => Ok(Conditional::Done(item)),
            Err(error) => match error.as_service_error() {
                Some(PutItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Conditional::Refused(refused.item().cloned()))
                }
                _ => Err(fault(self.table, &error)),
            },
        }
    }

    /// Puts an item where there is none under its key, of which `part` is a part; the item that is there. Safe to repeat: what is
    /// there stays.
    pub(super) async fn put_new(self, item: Item, part: &str) -> Outcome<Item> {
        let mut say = Aliases::default();
        let absent = format!("attribute_not_exists({})", say.name(part));
        match self.put_if(item, say, absent).await? {
            Conditional::Done(item) | Conditional::Refused(Some(item)) => Ok(item),
            Conditional::Refused(None) => {
                Err(Fault::Transient(format!("{}: a put was refused over no item", self.table)))
            }
        }
    }

    /// Updates the item under `key`; the item afterwards.
    pub(super) async fn update(self, key: Item, say: Aliases, update: String) -> Outcome<Item> {
        let reply = self.updating(key, say, update).send().await.map_err(|error| fault(self.table, &error))?;
        Ok(reply.attributes.unwrap_or_default())
    }

    /// Updates the item under `key` if `condition` holds. Safe to repeat wherever carrying it out makes the condition false, or
    /// leaves the item as it is.
    pub(super) async fn update_if(
        self,
        key: Item,
        say: Aliases,
        update: String,
        condition: String,
    ) -> Outcome<Conditional> {
        let update = self
            .updating(key, say, update)
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.send().await {
            Ok(reply) => Ok(Conditional::Done(reply.attributes.unwrap_or_default())),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Conditional::Refused(refused.item().cloned()))
                }
                _ => Err(fault(self.table, &error)),
            },
        }
    }

    fn updating(self, key: Item, say: Aliases, update: String) -> UpdateItemFluentBuilder {
        let (names, values) = say.finish();
        self.client
            .update_item()
            .table_name(self.table)
            .set_key(Some(key))
            .update_expression(update)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllNew)
    }

    /// Deletes the item under `key` if `condition` holds. Safe to repeat: what is gone stays gone.
    pub(super) async fn delete_if(self, key: Item, say: Aliases, condition: String) -> Outcome<()> {
        let (names, values) = say.finish();
        let delete = self
            .client
            .delete_item()
            .table_name(self.table)
            .set_key(Some(key))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table, delete.send().await).map(|_| ())
    }
}
