//! Which of many sets have one member: its rows, read together. A tombstone is none.

use std::collections::{BTreeSet, HashSet};

use tally_core::ids::{RowKey, UserId};
use tally_core::ports::Outcome;

use super::super::connection::Connection;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::super::names::likes::GONE;
use super::row_key;

/// Whether `member` is in each of `keys`. Read consistently, until none is left out.
pub(super) async fn present(connection: &Connection, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
    let table = &connection.tables.likes;
    let pks: Vec<String> = keys.iter().map(RowKey::to_string).collect();
    // A request that names a key twice is refused.
    let distinct: BTreeSet<&String> = pks.iter().collect();
    let keys: Vec<Item> = distinct.into_iter().map(|pk| row_key(pk.clone(), text(member.as_str()))).collect();
    let found = get::items(connection, table, &keys, Consistency::Strong).await?;
    let found = found.iter().filter(|row| !row.contains_key(GONE));
    let found = found.map(|row| Reader::new(table, row).required_text(PK)).collect::<Outcome<HashSet<_>>>()?;
    Ok(pks.iter().map(|pk| found.contains(pk.as_str())).collect())
}
