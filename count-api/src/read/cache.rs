//! Calls the shared cache of counts (Redis), with a time limit for each call. A call that fails or takes longer counts
//! as no answer, and the read goes to the table. After calls have failed for a while, a breaker skips them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_adapters::redis::ForeignStandings;
use tally_core::cached::{Cache, FillToken, Got, TakeOverNumber, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_service::Seldom;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

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
        let got = self.call(partition, self.cache.get(partition, ids)).await?;
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
        let token = self.call(partition, self.cache.begin_fill(partition, id)).await.flatten();
        token.filter(|token| token.number() == number)
    }

    /// Writes a value to the cache. Safe to repeat: the first copy uses up the token.
    pub(super) async fn fill(&self, fill: Fill) {
        let Fill { partition, id, token, value } = fill;
        let outcome = match self.call(partition, self.cache.fill(partition, &id, &token, &value)).await {
            Some(true) => "written",
            Some(false) => "overtaken",
            None => "failed",
        };
        CACHE_FILLS.counter(&[outcome]).increment(1);
    }

    async fn call<T>(&self, partition: u32, call: impl Future<Output = Outcome<T>>) -> Option<T> {
        if self.breaker.is_open() {
            CACHE_FAULTS.counter(&["breaker_open"]).increment(1);
            if self.breaker.rest.is_due(REST) {
                let mut trials = self.breaker.trials.lock();
                while trials.try_join_next().is_some() {}
                trials.spawn(self.clone().trial(partition));
            }
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

    /// Asks the cache for one standing; an answer closes the breaker. No request waits for this, so the limit is longer
    /// than the budget: an overloaded process handles even prompt answers late.
    async fn trial(self, partition: u32) {
        let reason = match timeout(TRIAL, self.cache.get(partition, &[])).await {
            Ok(Ok(_)) => return self.breaker.succeeded(),
            Ok(Err(fault)) => fault.class(),
            Err(_) => "slow",
        };
        CACHE_FAULTS.counter(&[reason]).increment(1);
    }
}

/// How long calls have to fail, with no answer in between, before calls are skipped. A number of failures is not enough:
/// concurrent calls fail together.
const FAILING: Duration = Duration::from_millis(250);

/// How many calls have to fail in that time.
const FAILURES: u32 = 5;

/// How long a trial may take.
const TRIAL: Duration = Duration::from_millis(100);

/// How often it is logged that calls are skipped.
const SAID: Duration = Duration::from_secs(10);

/// How long calls are skipped before one is tried, and how long until the next one.
const REST: Duration = Duration::from_millis(500);

/// A circuit breaker, so that requests do not wait for a cache that does not answer. Opens when calls have failed for
/// [`FAILING`]. Then one call is tried after each [`REST`], until one is answered.
///
/// Opening sooner would send an overloaded process's reads to the table, which costs more processor time and delays
/// the cache's answers further.
#[derive(Debug, Default)]
struct Breaker {
    state: Mutex<State>,
    rest: Seldom,
    /// The trials under way.
    trials: Mutex<JoinSet<()>>,
    said: Seldom,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// How many calls have failed since the last answer.
    failures: u32,
    /// When the first of them failed.
    since: Option<Instant>,
    is_open: bool,
}

impl Breaker {
    fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Records that a call was answered.
    fn succeeded(&self) {
        *self.state.lock() = State::default();
    }

    /// Records that a call failed or took too long. Returns whether to log that this opened the breaker. A rest begins
    /// then.
    fn failed(&self) -> bool {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        let since = *state.since.get_or_insert_with(Instant::now);
        if state.is_open || state.failures < FAILURES || since.elapsed() < FAILING {
            return false;
        }
        state.is_open = true;
        self.rest.is_due(Duration::ZERO);
        self.said.is_due(SAID)
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
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tally_adapters::memory::PartitionCache;
    use tally_core::cached::StandingAt;
    use tokio::time::{advance, sleep};

    use super::*;

    const BUDGET: Duration = Duration::from_millis(30);

    fn shared() -> SharedCache {
        SharedCache::new(Arc::new(PartitionCache::default()), BUDGET)
    }

    /// Makes 64 calls at once that take so long. Returns how many were answered.
    async fn burst(shared: &SharedCache, takes: Duration) -> usize {
        let calls = (0..64).map(|_| shared.call(7, sleep(takes).map(Ok)));
        join_all(calls).await.into_iter().flatten().count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_silence_does_not_send_the_reads_after_it_to_the_table() {
        let (shared, began) = (shared(), Instant::now());
        while began.elapsed() < FAILING {
            assert_eq!(burst(&shared, BUDGET * 2).await, 0);
        }
        assert_eq!(burst(&shared, BUDGET / 2).await, 64);
        assert_eq!(burst(&shared, BUDGET * 2).await, 0);
        assert!(!shared.breaker.is_open(), "only failures with no answer in between count");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_failures_far_apart_do_not_open_it() {
        let breaker = Breaker::default();
        for _ in 1..FAILURES {
            assert!(!breaker.failed());
            advance(FAILING).await;
        }
        assert!(!breaker.is_open());
        assert!(breaker.failed() && breaker.is_open());
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
