//! Chooses the partition for each event of a sum (a counter that adds amounts), by `tally_core::spread`, so that the
//! views of one busy post do not all go to one partition. All senders of a process share one state.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::spread::{Spread, SumPolicy};

/// The choices of one process, topic by topic; clones share them.
#[derive(Clone, Debug)]
pub struct Spreading {
    policy: SumPolicy,
    topics: Arc<Mutex<Map<String, Spread>>>,
}

impl Spreading {
    /// Creates the state. Until a topic's partitions are [`seen`](Self::seen), [`partition`](Self::partition) returns
    /// `None`.
    pub fn new(policy: SumPolicy) -> Self {
        Self { policy, topics: Arc::default() }
    }

    pub fn policy(&self) -> SumPolicy {
        self.policy
    }

    /// Notes that `topic` has so many partitions, with so many records waiting in each.
    pub fn seen(&self, topic: &str, lags: &[u64]) {
        let mut topics = self.topics.lock();
        let spread = topics.entry_ref(topic).or_insert_with(|| Spread::new(self.policy));
        spread.seen(lags);
    }

    /// Uses `width` partitions for the counter from the start. Returns how many it uses: see [`Spread::begin`].
    pub fn begin(&self, topic: &str, counter: &CounterId, width: u32) -> u32 {
        let mut topics = self.topics.lock();
        topics.entry_ref(topic).or_insert_with(|| Spread::new(self.policy)).begin(counter, width)
    }

    /// Returns the partition of the next event of `counter`; `None` leaves it to the key. `draw` is a random
    /// number.
    pub fn partition(&self, topic: &str, counter: &CounterId, now: Duration, draw: u64) -> Option<u32> {
        if self.policy == SumPolicy::Post {
            return None;
        }
        self.topics.lock().get_mut(topic)?.choose(counter, now, draw)
    }
}
