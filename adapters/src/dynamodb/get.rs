//! Items by their keys. BatchGetItem promises to read some of them; it is asked for the others again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// How much of a wait is waited: drawn anew each time, by no two processes alike unless they are given one seed.
#[derive(Clone, Debug)]
pub(super) struct Jitter(Arc<AtomicU64>);

impl Jitter {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// From 0 up to 1: SplitMix64.
    pub(super) fn fraction(&self) -> f64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.0.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from(bits >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
    }
}
