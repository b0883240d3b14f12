//! The shared cache (Redis), with a time limit for each call. A call that fails or takes longer counts as no answer,
//! and the read goes to the table. After several failures a breaker skips calls for a while.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tally_core::cached::{Cache, FillToken, Got, Value};
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tokio::time::{Instant, timeout};

use super::breaker::Breaker;
use crate::metrics::{CACHE_FAULTS, CACHE_FILLS};

/// The shared cache, its time limit and its breaker. Clones share them.
#[derive(Clone)]
pub struct SharedCache {
    cache: Arc<dyn Cache>,
    budget: Duration,
    breaker: Arc<Breaker>,
}

impl SharedCache {
    /// Allows each call of `cache` the time `budget`.
    pub fn new(cache: Arc<dyn Cache>, budget: Duration) -> Self {
        Self { cache, budget, breaker: Arc::default() }
    }

    /// Returns the cached standing of a partition and the values of `ids` in their order, read at one moment. Returns
    /// `None` if the cache did not answer in time.
    pub async fn get(&self, partition: u32, ids: &[CounterId]) -> Option<Got> {
        let got = self.call(self.cache.get(partition, ids)).await?;
        (got.values.len() == ids.len()).then_some(got)
    }

    /// Returns the right to fill `id`, unless another reader has it.
    pub async fn begin_fill(&self, partition: u32, id: &CounterId) -> Option<FillToken> {
        self.call(self.cache.begin_fill(partition, id)).await.flatten()
    }

    /// Writes a value to the cache. Safe to repeat: the first copy uses up the token.
    pub(super) async fn fill(&self, fill: Fill) {
        let Fill { partition, id, token, value } = fill;
        let outcome = match self.call(self.cache.fill(partition, &id, &token, &value)).await {
            Some(true) => "written",
            Some(false) => "overtaken",
            None => "failed",
        };
        CACHE_FILLS.counter(&[outcome]).increment(1);
    }

    async fn call<T>(&self, call: impl Future<Output = Outcome<T>>) -> Option<T> {
        if !self.breaker.admits(Instant::now()) {
            CACHE_FAULTS.counter(&["breaker_open"]).increment(1);
            return None;
        }
        let (reason, said) = match timeout(self.budget, call).await {
            Ok(Ok(answer)) => {
                self.breaker.succeeded();
                return Some(answer);
            }
            Ok(Err(fault)) => (fault.class(), fault.to_string()),
            Err(_) => ("slow", format!("no answer within {:?}", self.budget)),
        };
        CACHE_FAULTS.counter(&[reason]).increment(1);
        if self.breaker.failed(Instant::now()) {
            tracing::warn!(error = said, "the cache is away: reading the table");
        }
        None
    }
}

/// A value to write to the cache. Its token was given before the value was read from the table.
pub(super) struct Fill {
    pub(super) partition: u32,
    pub(super) id: CounterId,
    pub(super) token: FillToken,
    pub(super) value: Value,
}
