//! Stands between one simulated process and the in-memory cache that replaces Redis in the simulation. It makes calls
//! fail, and checks that no cached count goes back to an earlier version. For a mutant (a pipeline with one rule
//! broken) it writes in another order, or hides what a reader needs to know about a loss.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tally_core::cached::{Cache, FillToken, Got, StandingAt, TakeOver, Told, Value};
use tally_core::changes::{DeploymentId, Place};
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_service::Chance;

use crate::simulation::Draws;
use crate::simulation::instance::Process;
use crate::simulation::mutant::Mutant;

/// How long after its standing a mutant writes the earlier values to the cache.
const BEHIND: Duration = Duration::from_millis(400);

/// The first law found broken during the run. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaches(Arc<OnceLock<String>>);

impl Breaches {
    /// Keeps a broken law unless an earlier one is known.
    pub(crate) fn add(&self, breach: String) {
        self.0.get_or_init(|| breach);
    }

    /// The first broken law.
    pub(crate) fn first(&self) -> Option<String> {
        self.0.get().cloned()
    }
}

/// A cache behind a gate.
#[derive(Clone)]
pub(crate) struct WatchedCache {
    pub(crate) process: Process,
    pub(crate) chance: Chance,
    /// The share of calls that fail, in percent.
    pub(crate) failing: u64,
    /// The rule that is broken here.
    pub(crate) mutant: Option<Mutant>,
}

impl WatchedCache {
    fn fails(&self) -> Outcome<()> {
        if self.chance.happens(self.failing) {
            self.process.world.coverage.fired("cache_failed");
            return Err(Fault::Transient("the cache is away".to_owned()));
        }
        Ok(())
    }

    /// Changes what was read as a mutant does.
    fn misread(&self, partition: u32, counters: &[CounterId], got: &mut Got) {
        let values = counters.iter().zip(&mut got.values).filter_map(|(id, value)| Some((id, value.as_mut()?)));
        match self.mutant {
            Some(Mutant::NoGap) => values.for_each(|(_, value)| value.gap = None),
            Some(Mutant::LossesByNumber) => {
                for (id, value) in values {
                    let number = value.gap.and_then(|gap| self.process.world.journal.announced(id, gap));
                    value.gap = number.map(|number| Place::from_stored(number.0)).or(value.gap);
                }
                if let Some(loss) = got.stated.as_mut().and_then(|stated| stated.standing.loss.as_mut())
                    && let Some(number) = self.process.world.journal.number(partition, *loss)
                {
                    *loss = Place::from_stored(number.0);
                }
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Cache for WatchedCache {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        self.process.wire.pass().await;
        self.fails()?;
        let mut got = self.process.world.cache.get(partition, counters).await?;
        self.misread(partition, counters, &mut got);
        self.process.wire.pass().await;
        Ok(got)
    }

    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        self.process.wire.pass().await;
        self.fails()?;
        self.process.world.cache.begin_fill(partition, counter).await
    }

    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        self.process.wire.pass().await;
        let filled = self.process.world.cache.fill(partition, counter, token, value).await?;
        self.fails()?;
        Ok(filled)
    }

    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        self.process.wire.pass().await;
        let hold = self.process.world.cache.take_over(partition, of, stated).await?;
        self.fails()?;
        Ok(hold)
    }

    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told> {
        self.process.wire.pass().await;
        if self.mutant == Some(Mutant::StandingFirst) && stated.is_some() {
            self.process.world.cache.tell(partition, take_over, &[], stated).await?;
            tokio::time::sleep(BEHIND).await;
            return self.process.world.cache.tell(partition, take_over, values, None).await;
        }
        let (answer, world) = (self.fails(), &self.process.world);
        if let Err(fault) = &answer
            && self.chance.happens(50)
        {
            // The write does not arrive.
            take_over.stamp();
            if !values.is_empty() {
                world.coverage.fired("cache_write_lost");
            }
            return Err(fault.clone());
        }
        let ids: Vec<CounterId> = values.iter().map(|(id, _)| id.clone()).collect();
        let before = world.cache.get(partition, &ids).await?.values;
        let told = world.cache.tell(partition, take_over, values, stated).await?;
        let after = world.cache.get(partition, &ids).await?.values;
        for ((id, before), after) in ids.iter().zip(before).zip(after) {
            if let (Some(before), Some(after)) = (before, after)
                && after.version < before.version
            {
                world.breaches.add(format!("the cached value of {id} went back from {before:?} to {after:?}"));
            }
        }
        // The values are written, also where the answer is lost.
        answer.map(|()| told)
    }
}
