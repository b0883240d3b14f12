//! The shared cache within a budget. A call that fails or takes longer counts as no answer, and the read goes to the table.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache, Cached, FillToken, Outcome};
use tally_core::served::Served;
use tally_service::{Stop, Task};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::breaker::Breaker;
use crate::metrics::{CACHE_FAULTS, CACHE_FILLS};

/// Counts waiting to be written to the cache; more are dropped, and the next reader offers them again.
const FILLS: usize = 1_024;

/// How many are written at once.
const FILLS_AT_ONCE: usize = 64;

/// The shared cache, its budget and its breaker. Clones share them.
#[derive(Clone)]
pub struct SharedCache {
    cache: Arc<dyn Cache>,
    budget: Duration,
    breaker: Arc<Breaker>,
}

impl SharedCache {
    /// Gives every call of `cache` this long.
    pub fn new(cache: Arc<dyn Cache>, budget: Duration) -> Self {
        Self { cache, budget, breaker: Arc::default() }
    }

    /// What is cached, in the order asked; `None` if the cache did not answer in time.
    pub async fn get(&self, ids: &[CounterId]) -> Option<Vec<Cached>> {
        let cached = self.call(self.cache.get(ids)).await?;
        (cached.len() == ids.len()).then_some(cached)
    }

    /// The right to fill `id`, unless another reader has it.
    pub async fn begin_fill(&self, id: &CounterId) -> Option<FillToken> {
        self.call(self.cache.begin_fill(id)).await.flatten()
    }

    /// Safe to repeat: the first copy takes the token's place, and a value does not replace itself.
    async fn write(&self, Fill { id, right, served }: Fill) {
        let written = match right {
            Right::Fill(token) => self.call(self.cache.fill(&id, &token, &served)).await,
            Right::Update => self.call(self.cache.update(&[(id, served)])).await.map(|replaced| replaced > 0),
        };
        let outcome = match written {
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

/// By what right a count is written to the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Right {
    /// Nothing was cached, and this token was given before the count was read.
    Fill(FillToken),
    /// Another count was cached, which this one may replace.
    Update,
}

/// A count read from the table, to be written to the cache.
struct Fill {
    id: CounterId,
    right: Right,
    served: Served,
}

/// The queue of counts to be written to the cache: the requests that read them do not wait for that.
#[derive(Clone)]
pub struct Fills(mpsc::Sender<Fill>);

/// The task that writes them.
pub struct Filler {
    cache: Option<SharedCache>,
    fills: mpsc::Receiver<Fill>,
}

impl Fills {
    /// The queue, and the task at its end.
    pub fn new(cache: Option<SharedCache>) -> (Self, Filler) {
        let (sender, fills) = mpsc::channel(FILLS);
        (Self(sender), Filler { cache, fills })
    }

    /// Queues a count that was read from the table after `right` was had.
    pub(super) fn offer(&self, id: &CounterId, right: Right, served: Served) {
        if self.0.try_send(Fill { id: id.clone(), right, served }).is_err() {
            CACHE_FILLS.counter(&["dropped"]).increment(1);
        }
    }
}

impl Task for Filler {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut waiting = Vec::with_capacity(FILLS_AT_ONCE);
        while stop.unless_requested(self.fills.recv_many(&mut waiting, FILLS_AT_ONCE)).await? > 0 {
            let Some(cache) = &self.cache else { continue };
            join_all(waiting.drain(..).map(|fill| cache.write(fill))).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;

    /// A cache that never answers.
    #[derive(Default)]
    struct Silent(AtomicUsize);

    #[async_trait]
    impl Cache for Silent {
        async fn get(&self, _: &[CounterId]) -> Outcome<Vec<Cached>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
        async fn update(&self, _: &[(CounterId, Served)]) -> Outcome<usize> {
            std::future::pending().await
        }
        async fn begin_fill(&self, _: &CounterId) -> Outcome<Option<FillToken>> {
            std::future::pending().await
        }
        async fn fill(&self, _: &CounterId, _: &FillToken, _: &Served) -> Outcome<bool> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_cache_costs_its_budget_a_few_times_and_then_nothing() {
        let (cache, began) = (Arc::new(Silent::default()), Instant::now());
        let layer = SharedCache::new(cache.clone(), Duration::from_millis(30));
        let id = [CounterId::likes("p".parse().unwrap())];
        for _ in 0..100 {
            assert_eq!(layer.get(&id).await, None);
        }
        assert_eq!((cache.0.load(Ordering::SeqCst), began.elapsed()), (5, Duration::from_millis(150)));
    }
}
