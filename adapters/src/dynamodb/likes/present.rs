//! Which of many sets have one member: its rows, read together.

use std::collections::HashSet;

use aws_sdk_dynamodb::types::KeysAndAttributes;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::{RowKey, UserId};
use tally_core::ports::Outcome;

use super::super::connection::Connection;
use super::super::fault::fault;
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::row_key;

/// The keys of one BatchGetItem.
const KEYS: usize = 100;

/// How often what a BatchGetItem left out is asked for before that is a fault.
const ROUNDS: u32 = 8;

/// Whether `member` has a row in each of `keys`. Read consistently, until none is left out.
pub(super) async fn present(connection: &Connection, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
    let pks: Vec<String> = keys.iter().map(RowKey::to_string).collect();
    // A request that names a key twice is refused.
    let mut distinct: Vec<&str> = pks.iter().map(String::as_str).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let mut found = HashSet::with_capacity(distinct.len());
    for pks in distinct.chunks(KEYS) {
        let keys = pks.iter().map(|pk| row_key((*pk).to_owned(), text(member.as_str()))).collect();
        read(connection, keys, &mut found).await?;
    }
    Ok(pks.iter().map(|pk| found.contains(pk)).collect())
}

/// Adds to `found` the partition keys of those of `asked` that have a row.
async fn read(connection: &Connection, mut asked: Vec<Item>, found: &mut HashSet<String>) -> Outcome<()> {
    let table = &connection.tables.likes;
    for round in 0..ROUNDS {
        let keys = KeysAndAttributes::builder().set_keys(Some(asked)).consistent_read(true);
        let keys = keys.projection_expression("#pk").expression_attribute_names("#pk", PK);
        let keys = keys.build().expect("keys are set");
        let reply = connection.client.batch_get_item().request_items(table, keys).send().await;
        let reply = reply.map_err(|error| fault(table, &error))?;
        for row in reply.responses().and_then(|tables| tables.get(table)).into_iter().flatten() {
            found.insert(Reader::new(table, row).required_text(PK)?.to_owned());
        }
        let left = reply.unprocessed_keys.and_then(|mut tables| tables.remove(table));
        asked = left.map(|left| left.keys).unwrap_or_default();
        if asked.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Backoff::STORE.ceiling(round)).await;
    }
    Err(Fault::Throttled(format!("table {table}: {} rows were left out {ROUNDS} times", asked.len())))
}
