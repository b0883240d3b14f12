//! Tells the cache what the fold has written: the values first, the standing with them.

use std::sync::Arc;
use std::time::Duration;

use tally_core::cached::{Cache, StandingAt, TakeOver, Told, Value};
use tally_core::ids::CounterId;
use tokio::time::Instant;

use crate::metrics;

/// The cache of one partition, as its fold keeps it. It may be away: then it is taken over again once it answers, which makes
/// it empty, so nothing that it was not told can be read from it.
pub(super) struct Cached {
    cache: Option<Arc<dyn Cache>>,
    partition: u32,
    hold: Option<TakeOver>,
    /// When the cache may be taken over.
    from: Instant,
}

/// How long the cache is left alone after another fold took it over: two that take it from each other keep it empty.
const LOST: Duration = Duration::from_secs(3);

impl Cached {
    pub(super) fn new(cache: Option<Arc<dyn Cache>>, partition: u32) -> Self {
        Self { cache, partition, hold: None, from: Instant::now() }
    }

    /// Tells the values that were written, also those that were found to be in already, and the standing behind all of them.
    pub(super) async fn tell(&mut self, values: &[(CounterId, Value)], stated: &StandingAt) {
        let Some(cache) = &self.cache else { return };
        if let Some(hold) = &mut self.hold {
            match cache.tell(self.partition, hold, values, Some(stated)).await {
                Ok(Told::Written(replaced)) => {
                    metrics::CACHE_UPDATES.counter(&["replaced"]).increment(replaced as u64);
                    metrics::CACHE_UPDATES
                        .counter(&["absent_or_newer"])
                        .increment(values.len().saturating_sub(replaced) as u64);
                    return;
                }
                Ok(Told::Lost) => {
                    self.from = Instant::now() + LOST;
                    tracing::warn!(
                        partition = self.partition,
                        "the cache forgot what it was told, or another fold has it: it is taken over again"
                    );
                }
                Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not told"),
            }
            metrics::CACHE_UPDATES.counter(&["failed"]).increment(values.len() as u64);
            self.hold = None;
        }
        if Instant::now() < self.from {
            return;
        }
        // Everything before the place of the standing is in the table by now.
        match cache.take_over(self.partition, stated).await {
            Ok(hold) => self.hold = hold,
            Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not taken over"),
        }
    }
}
