//! New counts on their way to the cache: only keys that are there are updated, only by something newer, and whatever
//! is missed heals with the next version or when the key expires.

use std::sync::Arc;

use tally_core::ids::CounterId;
use tally_core::ports::Cache;
use tally_core::served::Served;

use crate::courier::{Destination, Offered};
use crate::metrics;

/// The cache as a destination.
pub(crate) struct Cached(pub(crate) Arc<dyn Cache>);

impl Destination for Cached {
    const NAME: &'static str = "cache";

    async fn offer(&self, counts: Vec<(CounterId, Served)>) -> Offered {
        let outcome = self.0.update(&counts).await;
        match &outcome {
            Ok(replaced) => {
                metrics::cached("replaced", *replaced);
                metrics::cached("absent_or_newer", counts.len().saturating_sub(*replaced));
            }
            Err(_) => metrics::cached("failed", counts.len()),
        }
        // A failed update is offered again behind what has come meanwhile: a count that never changes again would
        // otherwise stay old until its key expires.
        let left = if outcome.is_ok() { Vec::new() } else { counts };
        Offered { left, outcome: outcome.map(|_| ()) }
    }
}
