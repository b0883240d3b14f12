//! The cache of counts in the local stack. An embedded one can be emptied, or taken away and brought back empty, as if
//! a Redis server were restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::PartitionCache;
use tally_core::cached::{Cache, FillToken, Got, StandingAt, TakeOver, Told, Value};
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_service::{Clock, Stop};

/// How long a value is cached: the cache in memory has no expiry of its own.
const LIFETIME: Duration = Duration::from_secs(60);

/// The cache of the stack. Clones are the same.
#[derive(Clone)]
pub(crate) struct Switchable {
    cache: Arc<dyn Cache>,
    on: Arc<AtomicBool>,
    /// The same, where it is in this process and can be emptied.
    embedded: Option<PartitionCache>,
}

impl Switchable {
    pub(crate) fn embedded(cache: PartitionCache) -> Self {
        Self { cache: Arc::new(cache.clone()), on: Arc::new(AtomicBool::new(true)), embedded: Some(cache) }
    }

    pub(crate) fn real(cache: Arc<dyn Cache>) -> Self {
        Self { cache, on: Arc::new(AtomicBool::new(true)), embedded: None }
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.embedded.is_some()
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
        if let Some(cache) = &self.embedded {
            cache.clear();
        }
    }

    /// Forgets every counter, and keeps who may write. A real cache is left alone.
    fn expire(&self) {
        if let Some(cache) = &self.embedded {
            cache.expire();
        }
    }

    /// Forgets one counter, so that it is read from the table. A real cache is left alone.
    pub(crate) fn forget(&self, partition: u32, counter: &CounterId) {
        if let Some(cache) = &self.embedded {
            cache.evict(partition, counter);
        }
    }

    fn now(&self) -> Outcome<&dyn Cache> {
        if self.is_on() { Ok(&*self.cache) } else { Err(Fault::Transient("the cache is switched off".to_owned())) }
    }
}

#[async_trait]
impl Cache for Switchable {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        self.now()?.get(partition, counters).await
    }

    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        self.now()?.begin_fill(partition, counter).await
    }

    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        self.now()?.fill(partition, counter, token, value).await
    }

    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        self.now()?.take_over(partition, of, stated).await
    }

    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told> {
        self.now()?.tell(partition, take_over, values, stated).await
    }
}

/// Lets what the embedded cache holds expire, all of it at once.
pub(crate) async fn expire(cache: Switchable, clock: Clock, stop: Stop) -> anyhow::Result<()> {
    loop {
        stop.unless_requested(clock.sleep(LIFETIME)).await?;
        cache.expire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likes(post: &str) -> CounterId {
        CounterId::likes(post.parse().unwrap())
    }

    async fn value_of(cache: &Switchable, counter: &CounterId) -> Outcome<Option<Value>> {
        cache.get(0, std::slice::from_ref(counter)).await.map(|got| got.values[0])
    }

    #[tokio::test(start_paused = true)]
    async fn what_expires_is_forgotten_and_a_cache_that_was_away_takes_no_fill_or_write_begun_before() {
        let cache = Switchable::embedded(PartitionCache::default());
        let (kept, begun, value) = (likes("kept"), likes("begun"), Value { likes: 1, ..Value::default() });
        let mut take_over =
            cache.take_over(0, &DeploymentId("d".into()), &StandingAt::default()).await.unwrap().unwrap();
        let token = cache.begin_fill(0, &kept).await.unwrap().unwrap();
        assert!(cache.fill(0, &kept, &token, &value).await.unwrap());
        assert_eq!(value_of(&cache, &kept).await, Ok(Some(value)));
        cache.expire();
        assert_eq!(value_of(&cache, &kept).await, Ok(None));
        assert_ne!(cache.tell(0, &mut take_over, &[(kept.clone(), value)], None).await, Ok(Told::Lost));
        let late = cache.begin_fill(0, &begun).await.unwrap().unwrap();
        cache.switch(false);
        assert!(value_of(&cache, &kept).await.is_err());
        cache.switch(true);
        assert!(!cache.fill(0, &begun, &late, &value).await.unwrap());
        assert_eq!((value_of(&cache, &kept).await, value_of(&cache, &begun).await), (Ok(None), Ok(None)));
        assert_eq!(cache.tell(0, &mut take_over, &[(kept, value)], None).await, Ok(Told::Lost));
    }
}
