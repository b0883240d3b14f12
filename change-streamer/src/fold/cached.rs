//! Tells the cache what the fold has written: the values first, the standing with them.

use std::sync::Arc;

use tally_core::cached::{Cache, StandingAt, TakeOver, Told, Value};
use tally_core::ids::CounterId;

/// The cache of one partition, as its fold keeps it. It may be away: then it is taken over again once it answers, which makes
/// it empty, so nothing that it was not told can be read from it.
pub(super) struct Cached {
    cache: Option<Arc<dyn Cache>>,
    partition: u32,
    hold: Option<TakeOver>,
}

impl Cached {
    pub(super) fn new(cache: Option<Arc<dyn Cache>>, partition: u32) -> Self {
        Self { cache, partition, hold: None }
    }

    /// Tells the values that were written, also those that were found to be in already, and the standing behind all of them.
    pub(super) async fn tell(&mut self, values: &[(CounterId, Value)], stated: &StandingAt) {
        let Some(cache) = &self.cache else { return };
        if let Some(hold) = &mut self.hold {
            match cache.tell(self.partition, hold, values, Some(stated)).await {
                Ok(Told::Written(_)) => return,
                Ok(Told::Lost) => {
                    tracing::warn!(partition = self.partition, "the cache forgot what it was told: taken over again");
                }
                Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not told"),
            }
            self.hold = None;
        }
        // Everything before the place of the standing is in the table by now.
        match cache.take_over(self.partition, stated).await {
            Ok(hold) => self.hold = hold,
            Err(fault) => tracing::warn!(partition = self.partition, %fault, "the cache was not taken over"),
        }
    }
}
