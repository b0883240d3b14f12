//! The cache of counters in memory, in place of Redis: a slot for each partition of `changes`, by the rules of
//! `tally_core::cached::Slot`, and a bound on the number of counters.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_core::cached::{
    Cache, Entry, FillToken, Got, Slot, StandingAt, TakeOver, TakeOverNumber, Taken, Told, Value,
};
use tally_core::changes::DeploymentId;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tokio::time::Instant;

/// How long the right to fill a counter lasts.
const FILL: Duration = Duration::from_secs(5);

/// How many counters are kept. The one that was asked for first goes first.
const COUNTERS: usize = 100_000;

/// The cache by partitions, in memory. Clones are the same.
#[derive(Clone, Debug)]
pub struct PartitionCache {
    state: Arc<Mutex<State>>,
    origin: Instant,
}

#[derive(Debug, Default)]
struct State {
    partitions: BTreeMap<u32, Slot<CounterId>>,
    /// The counters that are kept, in the order in which they were first asked for.
    kept: VecDeque<(u32, CounterId)>,
    most: usize,
    /// How many nonces and numbers were drawn so far.
    drawn: u64,
}

impl Default for PartitionCache {
    fn default() -> Self {
        Self::bounded(COUNTERS)
    }
}

impl PartitionCache {
    /// An empty cache that keeps at most so many counters.
    pub fn bounded(most: usize) -> Self {
        let state = State { most, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), origin: Instant::now() }
    }

    /// Drops a counter, also one that is being filled.
    pub fn evict(&self, partition: u32, counter: &CounterId) {
        self.state.lock().slot(partition).entries.remove(counter);
    }

    /// Drops every counter, also those that are being filled, as if their time was over.
    pub fn expire(&self) {
        let State { partitions, kept, .. } = &mut *self.state.lock();
        partitions.values_mut().for_each(|slot| slot.entries.clear());
        kept.clear();
    }

    /// Drops everything, as a restart of the server does.
    pub fn clear(&self) {
        self.expire();
        self.state.lock().partitions.clear();
    }

    /// Drops the standing of a partition.
    pub fn evict_standing(&self, partition: u32) {
        self.state.lock().slot(partition).held = None;
    }

    /// Returns what a partition holds. With [`restore`](Self::restore) it simulates a failover that forgets the last
    /// writes.
    pub fn snapshot(&self, partition: u32) -> Slot<CounterId> {
        self.state.lock().slot(partition).clone()
    }

    /// Sets a partition back to a snapshot.
    pub fn restore(&self, partition: u32, slot: Slot<CounterId>) {
        *self.state.lock().slot(partition) = slot;
    }
}

impl State {
    fn slot(&mut self, partition: u32) -> &mut Slot<CounterId> {
        self.partitions.entry(partition).or_default()
    }

    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Drops the right to fill a counter if its time is over.
    fn end_right(&mut self, partition: u32, counter: &CounterId, now: Duration) {
        let entries = &mut self.slot(partition).entries;
        if let Some(Entry::Filling(token)) = entries.get(counter)
            && token.nonce() >> 64 <= now.as_nanos()
        {
            entries.remove(counter);
        }
    }

    /// Keeps one more counter, and drops those that are too many.
    fn keep(&mut self, partition: u32, counter: &CounterId) {
        self.kept.push_back((partition, counter.clone()));
        while self.kept.len() > self.most {
            let Some((partition, first)) = self.kept.pop_front() else { return };
            self.slot(partition).entries.remove(&first);
        }
    }
}

#[async_trait]
impl Cache for PartitionCache {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        let mut state = self.state.lock();
        let slot = state.slot(partition);
        let values = counters.iter().map(|counter| slot.get(counter)).collect();
        let (taken, stated) = slot.held.clone().map(|held| (held.taken, held.stated)).unzip();
        Ok(Got { taken, stated, values })
    }

    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        state.end_right(partition, counter, now);
        // The nonce says when the right ends, and tells it from others that end then.
        let nonce = (now + FILL).as_nanos() << 64 | u128::from(state.draw());
        let is_new = !state.slot(partition).entries.contains_key(counter);
        let token = state.slot(partition).begin_fill(counter, nonce);
        if token.is_some() && is_new {
            state.keep(partition, counter);
        }
        Ok(token)
    }

    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        let now = self.origin.elapsed();
        let mut state = self.state.lock();
        state.end_right(partition, counter, now);
        Ok(state.slot(partition).fill(counter, *token, *value))
    }

    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        let mut state = self.state.lock();
        let taken = Taken { of: of.clone(), number: TakeOverNumber(state.draw()) };
        Ok(state.slot(partition).take_over(taken, stated))
    }

    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told> {
        let stamp = take_over.stamp();
        let told = self.state.lock().slot(partition).tell(stamp, values, stated);
        if told != Told::Lost {
            take_over.answered(stamp);
        }
        Ok(told)
    }
}
