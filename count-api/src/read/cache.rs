//! The shared cache (Redis), with a time limit for each call. A call that fails or takes longer counts as no answer,
//! and the read goes to the table. After several failures a breaker skips calls for a while.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tally_adapters::redis::ForeignStandings;
use tally_core::cached::{Cache, FillToken, Got, TakeOverNumber, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_service::Seldom;
use tokio::time::timeout;

use crate::metrics::{CACHE_FAULTS, CACHE_FILLS};

/// The shared cache, its time limit and its breaker. Clones share them.
#[derive(Clone)]
pub struct SharedCache {
    cache: Arc<dyn Cache>,
    budget: Duration,
    breaker: Arc<Breaker>,
    foreign: Arc<ForeignStandings>,
}

impl SharedCache {
    /// Allows each call of `cache` the time `budget`.
    pub fn new(cache: Arc<dyn Cache>, budget: Duration) -> Self {
        Self { cache, budget, breaker: Arc::default(), foreign: Arc::default() }
    }

    /// Returns the cached standing of a partition and the values of `ids` in their order, read at one moment. Returns
    /// `None` if the cache did not answer in time, or has none of the deployment `of`.
    pub async fn get(&self, partition: u32, of: &DeploymentId, ids: &[CounterId]) -> Option<Got> {
        let got = self.call(self.cache.get(partition, ids)).await?;
        let taken = got.taken.as_ref()?;
        if taken.of != *of {
            self.foreign.warn(partition, &taken.of.0, of);
            return None;
        }
        (got.values.len() == ids.len()).then_some(got)
    }

    /// Returns the right to fill `id`, unless another reader has it. Drops a token of another take-over than `number`,
    /// which may be another deployment's.
    pub async fn begin_fill(&self, partition: u32, number: TakeOverNumber, id: &CounterId) -> Option<FillToken> {
        self.call(self.cache.begin_fill(partition, id)).await.flatten().filter(|token| token.number() == number)
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
        if !self.breaker.admits() {
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
        if self.breaker.failed() {
            tracing::warn!(error = said, "the cache is away: reading the table");
        }
        None
    }
}

/// How many calls in a row have to fail before calls are skipped.
const FAILURES: u32 = 5;

/// How long calls are skipped before one is tried.
const REST: Duration = Duration::from_millis(500);

/// A circuit breaker, so that requests do not wait for a cache that does not answer. Opens after several failures in a
/// row. Then it admits one call after each [`REST`], until one succeeds.
#[derive(Debug, Default)]
struct Breaker {
    failures: AtomicU32,
    /// The calls that are tried while it is open.
    trials: Seldom,
}

impl Breaker {
    /// Returns whether a call may be made now. If the outcome of a trial is never reported, the next one comes after
    /// another rest.
    fn admits(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < FAILURES || self.trials.is_due(REST)
    }

    /// Records that a call was answered.
    fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Records that a call failed or took too long: a rest begins where there were several. Returns whether this opened
    /// the breaker.
    fn failed(&self) -> bool {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= FAILURES {
            self.trials.is_due(Duration::ZERO);
        }
        failures == FAILURES
    }
}

/// A value to write to the cache. Its token was given before the value was read from the table.
pub(super) struct Fill {
    pub(super) partition: u32,
    pub(super) id: CounterId,
    pub(super) token: FillToken,
    pub(super) value: Value,
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::PartitionCache;
    use tally_core::cached::StandingAt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_closes_at_the_first_success() {
        let breaker = Breaker::default();
        for _ in 1..FAILURES {
            assert!(!breaker.failed() && breaker.admits());
        }
        breaker.succeeded();
        for _ in 1..FAILURES {
            assert!(!breaker.failed());
        }
        assert!(breaker.failed(), "only failures in a row count");
        assert!(!breaker.admits());
        advance(REST / 2).await;
        assert!(!breaker.admits());
        breaker.succeeded();
        assert!(breaker.admits());
    }

    #[tokio::test(start_paused = true)]
    async fn while_open_one_call_a_rest_is_the_trial() {
        let breaker = Breaker::default();
        (0..FAILURES).for_each(|_| {
            breaker.failed();
        });
        advance(REST).await;
        assert!(breaker.admits() && !breaker.admits(), "one trial");
        advance(REST).await;
        assert!(breaker.admits(), "also when the outcome of the first is never reported");
        advance(REST / 2).await;
        assert!(!breaker.failed(), "it was open already");
        advance(REST / 2).await;
        assert!(!breaker.admits(), "a rest begins when a trial fails");
        advance(REST / 2).await;
        assert!(breaker.admits());
    }

    #[tokio::test]
    async fn a_token_of_another_deployment_that_took_the_cache_over_meanwhile_is_dropped() {
        let [own, other] = ["own", "other"].map(|id| DeploymentId(id.into()));
        let (cache, id) = (PartitionCache::default(), CounterId::likes("p".parse().unwrap()));
        let shared = SharedCache::new(Arc::new(cache.clone()), Duration::from_secs(1));
        let take_over = async |of| cache.take_over(7, of, &StandingAt::default()).await.unwrap().unwrap();
        take_over(&own).await;
        let number = shared.get(7, &own, &[]).await.unwrap().taken.unwrap().number;
        take_over(&other).await;
        assert_eq!(shared.begin_fill(7, number, &id).await, None);
        assert_eq!(shared.get(7, &own, &[]).await, None);
        assert!(cache.begin_fill(7, &id).await.unwrap().is_none(), "a token was given and dropped");
    }
}
