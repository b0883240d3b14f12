//! The cache in memory: it keeps what `Served::replaces` keeps, as the real one's script does.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tally_core::ids::CounterId;
use tally_core::ports::{Cache as CachePort, Cached, FillToken, Outcome};
use tally_core::served::Served;

use super::Memory;

/// How long the right to fill lasts.
const FILL: Duration = Duration::from_secs(5);

/// The twin of the cache. Values stay until they are evicted.
#[derive(Clone, Debug)]
pub struct Cache {
    memory: Memory,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: BTreeMap<CounterId, Slot>,
    tokens: u64,
}

#[derive(Debug)]
enum Slot {
    Value(Served),
    Filling { token: FillToken, until: Duration },
}

impl Slots {
    fn get(&self, counter: &CounterId, now: Duration) -> Option<&Slot> {
        let lives = |slot: &&Slot| !matches!(slot, Slot::Filling { until, .. } if *until <= now);
        self.slots.get(counter).filter(lives)
    }
}

impl Cache {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// Drops what is cached of `counter`, a fill under way too.
    pub fn evict(&self, counter: &CounterId) {
        self.memory.state().cache.slots.remove(counter);
    }
}

#[async_trait]
impl CachePort for Cache {
    async fn get(&self, counters: &[CounterId]) -> Outcome<Vec<Cached>> {
        let (state, now) = (self.memory.state(), self.memory.elapsed());
        let cached = counters.iter().map(|counter| match state.cache.get(counter, now) {
            Some(Slot::Value(served)) => Cached::Hit(*served),
            Some(Slot::Filling { .. }) | None => Cached::Miss,
        });
        Ok(cached.collect())
    }

    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        let now = self.memory.elapsed();
        let mut state = self.memory.state();
        let mut replaced = 0;
        for (counter, served) in values {
            let replaces = match state.cache.get(counter, now) {
                Some(Slot::Value(cached)) => served.replaces(cached),
                Some(Slot::Filling { .. }) => true,
                None => false,
            };
            if replaces {
                state.cache.slots.insert(counter.clone(), Slot::Value(*served));
                replaced += 1;
            }
        }
        Ok(replaced)
    }

    async fn begin_fill(&self, counter: &CounterId) -> Outcome<Option<FillToken>> {
        let now = self.memory.elapsed();
        let mut state = self.memory.state();
        if state.cache.get(counter, now).is_some() {
            return Ok(None);
        }
        state.cache.tokens += 1;
        let token = FillToken(state.cache.tokens.to_string());
        state.cache.slots.insert(counter.clone(), Slot::Filling { token: token.clone(), until: now + FILL });
        Ok(Some(token))
    }

    async fn fill(&self, counter: &CounterId, token: &FillToken, value: &Served) -> Outcome<bool> {
        let now = self.memory.elapsed();
        let mut state = self.memory.state();
        let ours =
            matches!(state.cache.get(counter, now), Some(Slot::Filling { token: standing, .. }) if standing == token);
        if ours {
            state.cache.slots.insert(counter.clone(), Slot::Value(*value));
        }
        Ok(ours)
    }
}
