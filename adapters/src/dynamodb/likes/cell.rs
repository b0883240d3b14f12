//! The cell of a sum that one Kafka partition adds to.

use aws_sdk_dynamodb::types::{KeysAndAttributes, TransactWriteItem, Update};
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Offset, Partition, Reached};
use tally_core::ids::{CounterId, ReservedKey, RowKey, ShardCount};
use tally_core::ports::Outcome;

use super::super::connection::Connection;
use super::super::expression::Aliases;
use super::super::fault::fault;
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::super::names::likes::{GENERATION, N, TO, USER_ID};
use super::row_key;

/// The keys of one BatchGetItem.
const KEYS: usize = 100;

/// How often what a BatchGetItem left out is asked for again before that is a fault.
const ASKED: usize = 10;

/// The sort key of a partition's cells.
pub(super) fn sort(partition: &Partition) -> String {
    ReservedKey::Cell { topic: &partition.topic, partition: partition.index }.to_string()
}

/// Adds to a cell what the events from `from` on come to, if the cell has none of them: repeating it is safe, since it moves
/// `to` past them.
pub(super) fn add(table: &str, key: Item, add: i64, from: Offset, advance: &Advance) -> TransactWriteItem {
    let mut say = Aliases::default();
    let [n, to, generation] = say.names([N, TO, GENERATION]);
    let (added, reached) = (say.number(add), say.number(advance.to));
    let (current, first) = (say.number(advance.from.terms.generation), say.number(from));
    let (names, values) = say.finish();
    let update = Update::builder()
        .table_name(table)
        .set_key(Some(key))
        .update_expression(format!("ADD {n} {added} SET {to}={reached},{generation}={current}"))
        .condition_expression(format!(
            "attribute_not_exists({to}) OR {generation}<{current} OR ({generation}={current} AND {to}<={first})"
        ))
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set");
    TransactWriteItem::builder().update(update).build()
}

/// How far cells have come, in the order of their counters. Read consistently, until none is left out.
pub(super) async fn read(
    connection: &Connection,
    partition: &Partition,
    counters: &[CounterId],
    shards: ShardCount,
) -> Outcome<Vec<Option<Reached>>> {
    let table = &connection.tables.likes;
    let pks: Vec<String> =
        counters.iter().map(|counter| RowKey::of_cell(counter, partition.index, shards).to_string()).collect();
    let mut found: Vec<Item> = Vec::new();
    for pks in pks.chunks(KEYS) {
        let keys: Vec<Item> = pks.iter().map(|pk| row_key(pk.clone(), text(sort(partition)))).collect();
        let mut asked = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build().ok();
        for _ in 0..ASKED {
            let Some(keys) = asked.take() else { break };
            let reply = connection.client.batch_get_item().request_items(table, keys).send().await;
            let reply = reply.map_err(|error| fault(table, &error))?;
            found.extend(reply.responses.unwrap_or_default().remove(table).unwrap_or_default());
            asked = reply.unprocessed_keys.unwrap_or_default().remove(table);
        }
        if asked.is_some() {
            return Err(Fault::Throttled(format!("table {table}: cells were left out {ASKED} times")));
        }
    }
    pks.iter()
        .map(|pk| {
            let of_pk = found.iter().map(|cell| Reader::new(table, cell)).find(|cell| cell.required_text(PK) == Ok(pk));
            of_pk.map_or(Ok(None), |cell| reached(&cell))
        })
        .collect()
}

/// A cell that no consumer wrote has come nowhere.
fn reached(cell: &Reader<'_>) -> Outcome<Option<Reached>> {
    debug_assert!(cell.required_text(USER_ID).is_ok());
    let Some(to) = cell.number(TO)? else { return Ok(None) };
    Ok(Some(Reached { to: Offset(to), generation: cell.number(GENERATION)?.unwrap_or(0) }))
}
