//! The fold: reads the log `changes` and keeps the counters, the cache, the milestones and what this Region publishes.
//! A consumer group shares out the partitions, and a `PartitionFold` works on each. A member that has lost a partition
//! without knowing it does no harm: every update names the values that it replaces.

mod partition;
mod stated;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::kafka::Membership;
use tally_core::cached::{Cache, StandingAt, TakeOver, Told, Value};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Host, Patience, Seldom, Stage};
use tokio::time::Instant;

use partition::PartitionFold;

use crate::args::Rules;
use crate::metrics;
use crate::regions::Publishing;

/// What the folds of a process share.
#[derive(Clone)]
pub(crate) struct Folding {
    /// The counters.
    pub counters: Arc<Counters>,
    /// The cache, where there is one.
    pub cache: Option<Arc<dyn Cache>>,
    /// Where positions, standings and losses are stored.
    pub store: Arc<Changes>,
    /// The deployment that the log belongs to.
    pub deployment: DeploymentId,
    /// How the log is folded.
    pub rules: Rules,
    /// How counts are published for other Regions, where this one has a name.
    pub publishing: Option<Arc<Publishing>>,
}

impl Folding {
    /// Starts the member of the group, which folds the partitions that it is given.
    pub(crate) fn spawn(self, intake: Box<dyn Intake>, host: &Host, patience: &Patience) {
        let (folding, of, patience) = (Arc::new(self), host.clone(), patience.clone());
        let membership = Membership::new(intake, host.readiness(), move |log: Arc<dyn OwnedPartition>| {
            let name = format!("fold {}", log.partition());
            let fold = PartitionFold::new(Arc::clone(&folding), log, patience.clone(), of.readiness());
            of.worker(Stage::Work, &name, fold);
        });
        host.spawn(Stage::Intake, "fold", membership);
    }
}

/// The cache of one partition. After each write the fold tells it the new values together with the standing, which says up
/// to when all changes are in them, and which losses are open. The fold sends the values of a write that got no answer
/// again with the next one. If it has to, the fold takes the cache over again: after the cache forgot a write, when more
/// than [`UNTOLD`] values wait, or behind changes that others wrote. That empties the cache, so no reader finds a value that
/// has missed a change.
struct Cached {
    cache: Option<Arc<dyn Cache>>,
    deployment: DeploymentId,
    partition: u32,
    hold: Option<TakeOver>,
    /// The latest values of the writes that the cache did not answer. It may have some of them.
    untold: Vec<(CounterId, Value)>,
    /// When this fold may take the cache over.
    from: Instant,
    /// When it was last logged that the cache failed.
    said: Seldom,
}

/// How long a fold leaves the cache alone after another took it over: two that fight over it keep it empty.
const LOST: Duration = Duration::from_secs(3);

/// If more values than this wait after a write without an answer, the fold takes the cache over instead.
const UNTOLD: usize = 30_000;

/// How often it is logged that the cache fails.
const SAID: Duration = Duration::from_secs(60);

impl Cached {
    fn new(cache: Option<Arc<dyn Cache>>, deployment: DeploymentId, partition: u32) -> Self {
        let (from, said) = (Instant::now(), Seldom::default());
        Self { cache, deployment, partition, hold: None, untold: Vec::new(), from, said }
    }

    /// Gives up the take-over and the values that wait, for a fold that goes on behind changes that others wrote.
    fn forget(&mut self) {
        self.hold = None;
        self.untold.clear();
    }

    /// Tells the cache the values of a flush, also those that another fold had written, and the standing behind all of
    /// them. If this fold does not hold the cache, takes it over instead.
    async fn tell(&mut self, values: Vec<(CounterId, Value)>, stated: &StandingAt) {
        let (Some(cache), partition) = (&self.cache, self.partition) else { return };
        if let Some(hold) = &mut self.hold {
            let values = latest(std::mem::take(&mut self.untold), values);
            let (told, offered) = (cache.tell(partition, hold, &values, Some(stated)).await, values.len() as u64);
            if let Ok(Told::Written(replaced)) = told {
                let replaced = replaced as u64;
                metrics::CACHE_UPDATES.counter(&["replaced"]).increment(replaced);
                metrics::CACHE_UPDATES.counter(&["absent_or_newer"]).increment(offered.saturating_sub(replaced));
                return;
            }
            metrics::CACHE_UPDATES.counter(&["failed"]).increment(offered);
            match told {
                Err(fault) if values.len() <= UNTOLD => {
                    if self.said.is_due(SAID) {
                        tracing::warn!(partition, %fault, "a write of the cache failed: the fold sends its values again with the next one");
                    }
                    self.untold = values;
                    return;
                }
                Err(fault) => tracing::warn!(
                    partition, %fault,
                    "too many values wait for the cache: the fold takes it over again, which empties it"
                ),
                Ok(_) => {
                    self.from = Instant::now() + LOST;
                    tracing::warn!(
                        partition,
                        "the cache forgot what it was told, or another fold has it: in 3 s this fold takes it over again"
                    );
                }
            }
            self.hold = None;
        }
        if Instant::now() < self.from {
            return;
        }
        // Everything before the place of the standing is in the table by now.
        match cache.take_over(partition, &self.deployment, stated).await {
            Ok(hold) => self.hold = hold,
            Err(fault) if self.said.is_due(SAID) => {
                tracing::warn!(partition, %fault, "the fold could not take the cache over");
            }
            Err(_) => {}
        }
    }
}

/// Returns the latest value of each counter.
fn latest(untold: Vec<(CounterId, Value)>, values: Vec<(CounterId, Value)>) -> Vec<(CounterId, Value)> {
    if untold.is_empty() {
        return values;
    }
    let mut latest: BTreeMap<_, _> = untold.into_iter().collect();
    for (id, value) in values {
        latest.entry(id).and_modify(|held: &mut Value| *held = held.later(value)).or_insert(value);
    }
    latest.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use async_trait::async_trait;
    use tally_adapters::memory::PartitionCache;
    use tally_core::cached::{FillToken, Got};
    use tally_core::changes::{Place, Standing};
    use tally_core::fault::Fault;
    use tally_core::ports::Outcome;
    use tally_core::topic::Offset;

    use super::*;

    /// A cache that does not answer its first writes.
    struct Silent {
        cache: PartitionCache,
        /// How many of the next writes are not answered.
        silent: AtomicU32,
        /// Whether the cache carries out the writes that it does not answer.
        happens: bool,
    }

    #[async_trait]
    impl Cache for Silent {
        async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
            self.cache.get(partition, counters).await
        }

        async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
            self.cache.begin_fill(partition, counter).await
        }

        async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
            self.cache.fill(partition, counter, token, value).await
        }

        async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
            self.cache.take_over(partition, of, stated).await
        }

        async fn tell(
            &self,
            partition: u32,
            take_over: &mut TakeOver,
            values: &[(CounterId, Value)],
            stated: Option<&StandingAt>,
        ) -> Outcome<Told> {
            if self.silent.load(Relaxed) == 0 {
                return self.cache.tell(partition, take_over, values, stated).await;
            }
            self.silent.fetch_sub(1, Relaxed);
            if self.happens {
                // Without an answer the fold does not know the numbers that the cache gave.
                self.cache.tell(partition, &mut take_over.clone(), values, stated).await?;
            }
            take_over.stamp();
            Err(Fault::Transient("no answer".to_owned()))
        }
    }

    fn place(offset: u64) -> Place {
        Place::new(1, Offset(offset))
    }

    fn value(offset: u64) -> Value {
        Value { likes: 1, version: place(offset), ..Value::default() }
    }

    fn stated(offset: u64) -> StandingAt {
        StandingAt { at: place(offset), standing: Standing::default() }
    }

    fn post(nth: usize) -> CounterId {
        CounterId::likes(format!("p-{nth}").parse().unwrap())
    }

    /// A fold's view of a cache that has a value of the first post, and does not answer the next `silent` writes.
    async fn told(silent: u32, happens: bool) -> (Arc<Silent>, Cached) {
        let cache = Arc::new(Silent { cache: PartitionCache::default(), silent: silent.into(), happens });
        let mut cached = Cached::new(Some(Arc::clone(&cache) as Arc<dyn Cache>), DeploymentId("test".into()), 0);
        cached.tell(Vec::new(), &stated(1)).await;
        let token = cache.begin_fill(0, &post(0)).await.unwrap().expect("the cache was taken over");
        assert!(cache.fill(0, &post(0), &token, &value(1)).await.unwrap());
        (cache, cached)
    }

    #[tokio::test(start_paused = true)]
    async fn values_without_an_answer_are_told_again_and_nothing_is_forgotten() {
        for happens in [false, true] {
            let (cache, mut cached) = told(2, happens).await;
            cached.tell(vec![(post(0), value(2))], &stated(3)).await;
            cached.tell(vec![(post(0), value(3))], &stated(4)).await;
            assert_eq!(cached.untold, [(post(0), value(3))]);
            cached.tell(Vec::new(), &stated(5)).await;
            let got = cache.get(0, &[post(0)]).await.unwrap();
            assert_eq!((got.stated, got.values), (Some(stated(5)), vec![Some(value(3))]), "happens: {happens}");
            assert!(cached.untold.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_values_without_an_answer_empty_the_cache() {
        let (cache, mut cached) = told(2, false).await;
        let some = |from: usize| (from..from + UNTOLD / 2 + 1).map(|nth| (post(nth), value(2))).collect();
        cached.tell(some(0), &stated(3)).await;
        assert!(cached.hold.is_some());
        cached.tell(some(UNTOLD), &stated(4)).await;
        let got = cache.get(0, &[post(0)]).await.unwrap();
        assert_eq!((got.stated, got.values), (Some(stated(4)), vec![None]));
        assert!(cached.untold.is_empty());
    }
}
