//! What is stored of the log `changes`, in items of the table `checkpoints`:
//!
//! | id | what |
//! |---|---|
//! | `changes/config` | the deployment's id, and the topic that the log is in: [`Config`] |
//! | `changes/losses` | the losses, open and closed: [`Losses`] |
//! | `changes/standing/<partition>` | what may be said of the counters of a partition, and up to where folds have read: [`Stated`](tally_core::fold::Stated) |
//! | `changes/position/<partition>` | where a reader of a partition begins: [`Position`](tally_core::fold::Position) |
//! | `changes/shard/<label>/<id>` | how far a stream shard is in the log, and who relays it: [`StoredShard`] |
//!
//! All reads are consistent. Beside them, relays write canaries into the table `likes`.

mod canary;
mod config;
mod losses;
mod partitions;
mod shards;

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

pub use self::config::Config;
pub use self::losses::{Loss, Losses};
pub use self::shards::StoredShard;
use super::connection::Connection;
use super::expression::Aliases;
use super::fault::fault;
use super::get::{self, Consistency};
use super::item::{Item, Reader, item, text};
use super::names::checkpoints::ID;

/// What is stored of the log `changes`.
#[derive(Clone, Debug)]
pub struct Changes {
    connection: Connection,
}

/// What became of a conditional write.
pub(super) enum Conditional {
    /// It was carried out; the item afterwards.
    Done(Item),
    /// Its condition does not hold; the item as it is, if there is one.
    Refused(Option<Item>),
}

impl Changes {
    /// The log of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    pub(super) fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    pub(super) async fn get(&self, id: &str) -> Outcome<Option<Item>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(id)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.item)
    }

    /// The items of these ids, by their ids, in one request for each hundred.
    pub(super) async fn get_all(&self, ids: &[String]) -> Outcome<HashMap<String, Item>> {
        let keys: Vec<Item> = ids.iter().map(|id| key(id)).collect();
        let found = get::items(&self.connection, self.table(), &keys, Consistency::Strong).await?;
        let by_id = |found: Item| Ok((Reader::new(self.table(), &found).required_text(ID)?.to_owned(), found));
        found.into_iter().map(by_id).collect()
    }

    /// Updates the item `id` if `condition` holds. Safe to repeat wherever carrying it out makes the condition false, or
    /// leaves the item as it is.
    pub(super) async fn update_if(
        &self,
        id: &str,
        say: Aliases,
        update: String,
        condition: String,
    ) -> Outcome<Conditional> {
        let update = self
            .updating(id, say, update)
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match update.send().await {
            Ok(reply) => Ok(Conditional::Done(reply.attributes.unwrap_or_default())),
            Err(error) => match error.as_service_error() {
                Some(UpdateItemError::ConditionalCheckFailedException(refused)) => {
                    Ok(Conditional::Refused(refused.item().cloned()))
                }
                _ => Err(fault(self.table(), &error)),
            },
        }
    }

    /// Updates the item `id`; the item afterwards.
    pub(super) async fn update(&self, id: &str, say: Aliases, update: String) -> Outcome<Item> {
        let update = self.updating(id, say, update);
        let reply = update.send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.attributes.unwrap_or_default())
    }

    fn updating(&self, id: &str, say: Aliases, update: String) -> UpdateItemFluentBuilder {
        let (names, values) = say.finish();
        let updating = self.connection.client.update_item().table_name(self.table()).set_key(Some(key(id)));
        updating
            .update_expression(update)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllNew)
    }

    /// Puts a whole item if `condition` holds. Safe to repeat wherever carrying it out makes the condition false.
    pub(super) async fn put_if(&self, item: Item, say: Aliases, condition: String) -> Outcome<Conditional> {
        let (names, values) = say.finish();
        let put = self
            .connection
            .client
            .put_item()
            .table_name(self.table())
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
                _ => Err(fault(self.table(), &error)),
            },
        }
    }

    /// Puts an item where there is none; the item that is there.
    pub(super) async fn put_new(&self, item: Item) -> Outcome<Item> {
        let mut say = Aliases::default();
        let absent = format!("attribute_not_exists({})", say.name(ID));
        match self.put_if(item, say, absent).await? {
            Conditional::Done(item) | Conditional::Refused(Some(item)) => Ok(item),
            Conditional::Refused(None) => {
                Err(Fault::Transient(format!("{}: a put was refused over no item", self.table())))
            }
        }
    }
}

fn key(id: &str) -> Item {
    item([(ID, text(id))])
}
