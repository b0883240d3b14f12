//! The item `config` of the checkpoints table: what the deployment was created with. (Fences, and what is stored of the log
//! `changes`, have modules of their own.)

mod definitions;
mod deployment;

pub use deployment::Configuration;

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::ReturnValue;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::expression::Aliases;
use super::fault::{fault, unless_refused};
use super::item::{Item, Reader, item, text};
use super::names::checkpoints::ID;

/// The configuration of a deployment.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    connection: Connection,
}

impl Checkpoints {
    /// The configuration over this connection.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.checkpoints
    }

    /// The item `id`, read consistently.
    async fn get(&self, id: &str) -> Outcome<Option<Item>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(id)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.item)
    }

    fn update(&self, id: &str) -> UpdateItemFluentBuilder {
        self.connection.client.update_item().table_name(self.table()).set_key(Some(key(id)))
    }

    /// Updates the item `id` under a condition. Safe to repeat wherever carrying it out makes the condition false, or
    /// leaves the item as it is.
    async fn update_if(&self, id: &str, say: Aliases, update: String, condition: String) -> Outcome<Option<Item>> {
        let (names, values) = say.finish();
        let sent = self
            .update(id)
            .update_expression(update)
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllNew)
            .send()
            .await;
        let reply = unless_refused(self.table(), sent)?;
        Ok(reply.map(|reply| reply.attributes.unwrap_or_default()))
    }

    async fn put_new(&self, stored: Item) -> Outcome<bool> {
        let put = self.connection.client.put_item().table_name(self.table()).set_item(Some(stored));
        let put = put.condition_expression("attribute_not_exists(#id)").expression_attribute_names("#id", ID);
        Ok(unless_refused(self.table(), put.send().await)?.is_some())
    }
}

fn key(id: &str) -> Item {
    item([(ID, text(id))])
}

/// Every item whose id begins with `prefix`, with the rest of its id. Reads the whole table, which is small: a fence
/// per Kafka partition and an item per stream shard of the last days.
pub(super) async fn under(connection: &Connection, prefix: &str) -> Outcome<Vec<(String, Item)>> {
    let table = &connection.tables.checkpoints;
    let mut found = Vec::new();
    let mut start = None;
    loop {
        let scan = connection
            .client
            .scan()
            .table_name(table)
            .filter_expression("begins_with(#id,:prefix)")
            .expression_attribute_names("#id", ID)
            .expression_attribute_values(":prefix", text(prefix))
            .set_exclusive_start_key(start)
            .consistent_read(true);
        let reply = scan.send().await.map_err(|error| fault(table, &error))?;
        for item in reply.items.unwrap_or_default() {
            let id = Reader::new(table, &item).required_text(ID)?;
            found.push((id.strip_prefix(prefix).unwrap_or(id).to_owned(), item));
        }
        start = reply.last_evaluated_key;
        if start.is_none() {
            return Ok(found);
        }
    }
}
