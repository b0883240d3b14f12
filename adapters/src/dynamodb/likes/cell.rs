//! The cell of a sum that one Kafka partition adds to.

use aws_sdk_dynamodb::types::Update;
use tally_core::fence::{Advance, Offset, Partition, Reached};
use tally_core::ids::{CounterId, ReservedKey, RowKey, ShardCount};
use tally_core::ports::Outcome;

use super::super::connection::Connection;
use super::super::expression::Aliases;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::super::names::likes::{GENERATION, N, TO, USER_ID};
use super::row_key;

/// The sort key of a partition's cells.
pub(super) fn sort(partition: &Partition) -> String {
    ReservedKey::Cell { topic: &partition.topic, partition: partition.index }.to_string()
}

/// Adds to a cell what the events from `from` on come to, if the cell has none of them: repeating it is safe, since it moves
/// `to` past them.
pub(super) fn add(table: &str, key: Item, add: i64, from: Offset, advance: &Advance) -> Update {
    let mut say = Aliases::default();
    let [n, to, generation] = say.names([N, TO, GENERATION]);
    let (added, reached) = (say.number(add), say.number(advance.to));
    let (current, first) = (say.number(advance.from.terms.generation), say.number(from));
    let (names, values) = say.finish();
    Update::builder()
        .table_name(table)
        .set_key(Some(key))
        .update_expression(format!("ADD {n} {added} SET {to}={reached},{generation}={current}"))
        .condition_expression(format!(
            "attribute_not_exists({to}) OR {generation}<{current} OR ({generation}={current} AND {to}<={first})"
        ))
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table, key and expression are set")
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
    let keys: Vec<Item> = pks.iter().map(|pk| row_key(pk.clone(), text(sort(partition)))).collect();
    let found = get::items(connection, table, &keys, Consistency::Strong).await?;
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
