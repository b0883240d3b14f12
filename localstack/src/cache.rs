//! A cache that can be taken away and brought back empty, as a server that was restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use tally_adapters::memory;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache, Cached, FillToken, Outcome};
use tally_core::served::Served;
use tally_service::{Clock, Stop, Task};

/// How long a value is cached: the cache in memory has no expiry of its own.
const LIFETIME: Duration = Duration::from_secs(60);

/// The cache of the stack. Clones are the same.
#[derive(Clone)]
pub(crate) struct Switchable {
    cache: Arc<RwLock<Arc<dyn Cache>>>,
    on: Arc<AtomicBool>,
    /// Whether it is in this process, where it can be emptied.
    embedded: bool,
    clock: Clock,
}

impl Switchable {
    pub(crate) fn embedded(clock: Clock) -> Self {
        Self::over(fresh(clock), true, clock)
    }

    pub(crate) fn real(cache: Arc<dyn Cache>, clock: Clock) -> Self {
        Self::over(cache, false, clock)
    }

    fn over(cache: Arc<dyn Cache>, embedded: bool, clock: Clock) -> Self {
        Self { cache: Arc::new(RwLock::new(cache)), on: Arc::new(AtomicBool::new(true)), embedded, clock }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Takes the cache away with all it holds, or brings it back.
    pub(crate) fn switch(&self, on: bool) {
        if !on {
            self.empty();
        }
        self.on.store(on, Ordering::Relaxed);
    }

    /// Forgets everything, fill tokens too. A real cache is left alone.
    pub(crate) fn empty(&self) {
        if self.embedded {
            *self.cache.write() = fresh(self.clock);
        }
    }

    fn now(&self) -> Outcome<Arc<dyn Cache>> {
        if !self.is_on() {
            return Err(Fault::Transient("the cache is switched off".to_owned()));
        }
        Ok(Arc::clone(&self.cache.read()))
    }
}

fn fresh(clock: Clock) -> Arc<dyn Cache> {
    Arc::new(memory::Memory::new(clock.now(), 1).cache())
}

#[async_trait]
impl Cache for Switchable {
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>> {
        self.now()?.get(counters).await
    }

    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        self.now()?.update(values).await
    }

    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>> {
        self.now()?.begin_fill(counter).await
    }

    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        self.now()?.fill(counter, token, value).await
    }
}

/// The task that empties the embedded cache now and then, in place of an expiry.
pub(crate) struct Expiry(pub(crate) Switchable);

impl Task for Expiry {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        loop {
            stop.unless_requested(self.0.clock.sleep(LIFETIME)).await?;
            self.0.empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_was_away_comes_back_empty_and_takes_no_fill_begun_before() {
        let cache = Switchable::embedded(Clock::starting_at(UnixMillis(0)));
        let likes = |post: &str| CounterId::likes(post.parse().unwrap());
        let (kept, begun) = (likes("kept"), likes("begun"));
        let served = Served { likes: 1, version: 1, ..Served::default() };
        let token = cache.begin_fill(&kept).await.unwrap().unwrap();
        assert!(cache.fill(&kept, &token, &served).await.unwrap());
        assert_eq!(cache.get(std::slice::from_ref(&kept)).await, Ok(vec![Cached::Hit(served)]));
        let late = cache.begin_fill(&begun).await.unwrap().unwrap();
        cache.switch(false);
        assert!(cache.get(std::slice::from_ref(&kept)).await.is_err());
        cache.switch(true);
        assert!(!cache.fill(&begun, &late, &served).await.unwrap());
        assert_eq!(cache.get(&[kept, begun]).await, Ok(vec![Cached::Miss, Cached::Miss]));
    }
}
