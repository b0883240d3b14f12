//! Keeps the cache of one partition. After each write the fold tells it the new values together with the standing,
//! which says up to when all changes are in them, and which losses are open.

use std::sync::Arc;
use std::time::Duration;

use tally_core::cached::{Cache, StandingAt, TakeOver, Told, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tokio::time::Instant;

use crate::metrics;

/// The cache of one partition, as its fold keeps it. If the cache does not answer, the fold takes it over once it
/// answers again. That empties it, so no reader finds a value that has missed a change.
pub(super) struct Cached {
    cache: Option<Arc<dyn Cache>>,
    deployment: DeploymentId,
    partition: u32,
    hold: Option<TakeOver>,
    /// When this fold may take the cache over.
    from: Instant,
}

/// How long a fold leaves the cache alone after another took it over: two that fight over it keep it empty.
const LOST: Duration = Duration::from_secs(3);

impl Cached {
    pub(super) fn new(cache: Option<Arc<dyn Cache>>, deployment: DeploymentId, partition: u32) -> Self {
        Self { cache, deployment, partition, hold: None, from: Instant::now() }
    }

    /// Tells the cache the values of a flush, also those that the table had already, and the standing behind all of
    /// them. If this fold does not hold the cache, takes it over instead.
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
        match cache.take_over(self.partition, &self.deployment, stated).await {
            Ok(hold) => self.hold = hold,
            Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not taken over"),
        }
    }
}
