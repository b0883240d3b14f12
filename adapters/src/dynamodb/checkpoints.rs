//! The item `config` of the checkpoints table: what the deployment was created with. (Fences, and what is stored of the log
//! `changes`, have modules of their own.)

mod definitions;
mod deployment;

pub use deployment::Configuration;

use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::item::{Item, Reader, item, text};
use super::items::Items;
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

    fn items(&self) -> Items<'_> {
        self.connection.items(self.table())
    }
}

/// The key of an item of the table `checkpoints`.
pub(super) fn key(id: &str) -> Item {
    item([(ID, text(id))])
}

/// Every item whose id begins with `prefix`, with the rest of its id. Reads the whole table, which is small: a claim
/// per Kafka partition, an item per topic and an item per stream shard of the last days.
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
