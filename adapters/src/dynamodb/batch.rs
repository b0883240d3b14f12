//! Many items by their keys: BatchGetItem promises to read some of them, and this asks for the others again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::connection::Connection;
use super::direct::{BATCH_GET_ITEM, Batch, BatchGetItem};
use super::expression::{Aliases, Names};
use super::item::Item;

/// The keys of one BatchGetItem.
const KEYS: usize = 100;

/// How often a request is made before what it leaves out is a fault: 3 s of waits at most.
const ROUNDS: u32 = 8;

/// The items there are of the distinct `keys`, in no order, with all attributes or `attributes` alone, if there are any. Read consistently,
/// until none is left out.
///
/// # Errors
/// [`Fault::Throttled`] where some are left out again and again.
pub(super) async fn read(
    connection: &Connection,
    table: &str,
    keys: Vec<Item>,
    attributes: &[&str],
) -> Outcome<Vec<Item>> {
    let mut found = Vec::with_capacity(keys.len());
    let mut say = Aliases::default();
    let named: Vec<String> = attributes.iter().map(|attribute| say.name(*attribute)).collect();
    let projection = (!named.is_empty()).then(|| named.join(","));
    let names = say.finish().0;
    let mut keys = keys.into_iter();
    loop {
        let asked: Vec<Item> = keys.by_ref().take(KEYS).collect();
        if asked.is_empty() {
            return Ok(found);
        }
        read_some(connection, table, asked, (projection.as_deref(), names.as_ref()), &mut found).await?;
    }
}

async fn read_some(
    connection: &Connection,
    table: &str,
    mut asked: Vec<Item>,
    (projection, names): (Option<&str>, Option<&Names>),
    found: &mut Vec<Item>,
) -> Outcome<()> {
    for round in 0..ROUNDS {
        if round > 0 {
            tokio::time::sleep(Backoff::STORE.wait(round - 1, connection.jitter.fraction())).await;
        }
        let request = BatchGetItem::of(table, &asked, projection, names);
        let answer = connection.direct.call::<Batch>(BATCH_GET_ITEM, table, &request).await;
        let Batch { mut responses, mut unprocessed_keys } = answer.map_err(|failed| failed.into_fault(table))?;
        found.extend(responses.remove(table).unwrap_or_default().0);
        asked = unprocessed_keys.remove(table).map(|left| left.keys.0).unwrap_or_default();
        if asked.is_empty() {
            return Ok(());
        }
    }
    Err(Fault::Throttled(format!("table {table}: {} items of a batch were left out {ROUNDS} times", asked.len())))
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
