//! The cache's twin as a process has it: it fails, and it is watched for a version that goes back.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tally_adapters::memory;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache, Cached, FillToken, Outcome};
use tally_core::served::Served;
use tally_service::Chance;

use super::chance::Draws;
use super::coverage::Coverage;
use super::gate::Gate;

/// Laws found broken on the way; clones are the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaches(Arc<Mutex<Vec<String>>>);

impl Breaches {
    /// One more.
    pub(crate) fn add(&self, breach: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(breach);
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

/// The cache behind a gate.
#[derive(Clone)]
pub(crate) struct WatchedCache {
    pub(crate) inner: memory::Cache,
    pub(crate) gate: Gate,
    pub(crate) chance: Chance,
    /// Calls that fail, in a hundred.
    pub(crate) failing: u64,
    /// A mutant's: where a newer version comes, the older one stays, under the newer one's `as_of`.
    pub(crate) keeps_older: bool,
    pub(crate) breaches: Breaches,
    pub(crate) coverage: Coverage,
}

impl WatchedCache {
    async fn cached(&self, id: &CounterId) -> Outcome<Option<Served>> {
        let cached = self.inner.get(std::slice::from_ref(id)).await?;
        Ok(cached.first().and_then(|cached| match cached {
            Cached::Hit(served) => Some(*served),
            Cached::Miss => None,
        }))
    }

    async fn version(&self, id: &CounterId) -> Outcome<Option<u64>> {
        Ok(self.cached(id).await?.map(|served| served.version))
    }

    /// Puts the value that is there in the place of a newer one, as if it were as young.
    async fn keep_older(&self, id: &CounterId, newer: &Served) -> Outcome<bool> {
        let Some(older) = self.cached(id).await?.filter(|older| older.version < newer.version) else {
            return Ok(false);
        };
        self.inner.evict(id);
        let Some(token) = self.inner.begin_fill(id).await? else { return Ok(false) };
        let kept = Served { likes: older.likes, version: older.version, ..*newer };
        self.inner.fill(id, &token, &kept).await
    }

    /// A value is in the cache where another was: never an older one.
    async fn replaced(&self, id: &CounterId, before: Option<u64>) -> Outcome<()> {
        let after = self.version(id).await?;
        if let (Some(before), Some(after)) = (before, after)
            && after < before
        {
            self.breaches.add(format!("the cached version of {id} went back from {before} to {after}"));
        }
        Ok(())
    }

    fn fails(&self) -> Outcome<()> {
        if self.chance.happens(self.failing) {
            self.coverage.fired("cache_failed");
            return Err(Fault::Transient("the cache is away".to_owned()));
        }
        Ok(())
    }
}

#[async_trait]
impl Cache for WatchedCache {
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>> {
        self.gate.pass().await;
        self.fails()?;
        self.inner.get(counters).await
    }

    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        self.gate.pass().await;
        let mut replaced = 0;
        for (id, served) in values {
            if self.keeps_older && self.keep_older(id, served).await? {
                continue;
            }
            let before = self.version(id).await?;
            replaced += self.inner.update(&[(id.clone(), *served)]).await?;
            self.replaced(id, before).await?;
        }
        self.fails()?;
        Ok(replaced)
    }

    async fn begin_fill(&self, id: &CounterId) -> Outcome<Option<FillToken>> {
        self.gate.pass().await;
        self.fails()?;
        self.inner.begin_fill(id).await
    }

    async fn fill(&self, id: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        self.gate.pass().await;
        let before = self.version(id).await?;
        let filled = self.inner.fill(id, token, value).await?;
        self.replaced(id, before).await?;
        self.fails()?;
        Ok(filled)
    }
}
