//! Items by their keys. BatchGetItem promises to read some of them; it is asked for the others again.

use aws_sdk_dynamodb::types::KeysAndAttributes;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::item::Item;

/// The keys of one BatchGetItem.
const KEYS: usize = 100;
/// How often a request is made before what it leaves out is a fault: 3 s of waits at most.
pub(super) const ROUNDS: u32 = 8;

/// How recent an item is when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// The item as it was at some moment of the last second or so, for half the read units.
    Eventual,
    /// The item with every write that was answered before.
    Strong,
}

impl Consistency {
    pub(super) fn is_strong(self) -> bool {
        self == Self::Strong
    }
}

/// The items under the distinct `keys`, in no order; absent ones are left out.
///
/// # Errors
/// [`Fault::Throttled`] where some keys are left out again and again.
pub(super) async fn items(
    connection: &Connection,
    table: &str,
    keys: &[Item],
    consistency: Consistency,
) -> Outcome<Vec<Item>> {
    let mut found = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS) {
        read_some(connection, table, keys.to_vec(), consistency, &mut found).await?;
    }
    Ok(found)
}

async fn read_some(
    connection: &Connection,
    table: &str,
    mut keys: Vec<Item>,
    consistency: Consistency,
    found: &mut Vec<Item>,
) -> Outcome<()> {
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(Backoff::STORE.wait(round - 1, connection.jitter.fraction())).await;
        }
        let asked = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(consistency.is_strong());
        let get = connection.client.batch_get_item().request_items(table, asked.build().expect("keys are set"));
        let reply = get.send().await.map_err(|error| fault(table, &error))?;
        found.extend(reply.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default());
        keys = reply
            .unprocessed_keys
            .and_then(|mut tables| tables.remove(table))
            .map(|left| left.keys)
            .unwrap_or_default();
        if keys.is_empty() {
            return Ok(());
        }
    }
    Err(Fault::Throttled(format!("table {table}: {} items of a batch were left out {ROUNDS} times", keys.len())))
}
