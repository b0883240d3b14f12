//! New counts for the cache: only keys that are in it are updated, and only by newer counts. A count that is missed is made
//! up for by the next one of its post, or when the key expires.

use std::sync::Arc;

use tally_core::ids::CounterId;
use tally_core::ports::Cache;
use tally_core::served::Served;

use crate::metrics;
use crate::publisher::{Destination, Sent};

/// The cache as a destination.
pub(crate) struct CacheUpdates(pub(crate) Arc<dyn Cache>);

impl Destination for CacheUpdates {
    const NAME: &'static str = "cache";

    async fn send(&self, counts: Vec<(CounterId, Served)>) -> Sent {
        let outcome = self.0.update(&counts).await;
        match &outcome {
            Ok(replaced) => {
                metrics::cached("replaced", *replaced);
                metrics::cached("absent_or_newer", counts.len().saturating_sub(*replaced));
            }
            Err(_) => metrics::cached("failed", counts.len()),
        }
        // A failed update is sent again behind newer ones: a count that never changes again would otherwise stay old until
        // its key expires.
        let left = if outcome.is_ok() { Vec::new() } else { counts };
        Sent { left, outcome: outcome.map(|_| ()) }
    }
}
