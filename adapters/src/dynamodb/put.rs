//! Puts of many items, each whatever was there. BatchWriteItem promises to write some of them; it is asked for the others again.

use aws_sdk_dynamodb::types::{PutRequest, WriteRequest};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::fault::fault;
use super::get::ROUNDS;
use super::item::Item;

/// The items of one BatchWriteItem.
pub const PUTS: usize = 25;

/// Puts items of different keys: one at least, [`PUTS`] at most. Safe to repeat wherever each put is.
///
/// # Errors
/// The table takes no write; [`Fault::Throttled`] where some items are left out again and again.
pub(super) async fn items(connection: &Connection, table: &str, items: impl IntoIterator<Item = Item>) -> Outcome<()> {
    let put = |item| PutRequest::builder().set_item(Some(item)).build().expect("the item is set");
    let request = |item| WriteRequest::builder().put_request(put(item)).build();
    let mut left: Vec<WriteRequest> = items.into_iter().map(request).collect();
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(Backoff::STORE.wait(round - 1, connection.jitter.fraction())).await;
        }
        let write = connection.client.batch_write_item().request_items(table, left);
        let reply = write.send().await.map_err(|error| fault(table, &error))?;
        left = reply.unprocessed_items.and_then(|mut tables| tables.remove(table)).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(Fault::Throttled(format!("table {table}: {} items of a batch were left out {ROUNDS} times", left.len())))
}
