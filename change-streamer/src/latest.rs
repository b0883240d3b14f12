//! The newest count of each counter that is to leave the process, until a publisher takes it. Putting one in never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tokio::sync::Notify;

/// The counts that wait. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct LatestCounts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Called with the number of counters that were dropped.
    on_dropped: fn(usize),
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<CounterId>,
    newest: Map<CounterId, Served>,
}

impl LatestCounts {
    /// Holds at most `limit` counters; `on_dropped` is called with the number of those that had to make room.
    pub(crate) fn new(limit: usize, on_dropped: fn(usize)) -> Self {
        Self(Arc::new(Shared { limit, on_dropped, waiting: Mutex::default(), filled: Notify::new() }))
    }

    /// Puts counts in, each in the place of an older one of its counter. Where there is no room, the ones that have waited
    /// longest are dropped.
    pub(crate) fn put(&self, counts: impl IntoIterator<Item = (CounterId, Served)>) {
        let mut dropped = 0;
        {
            let mut waiting = self.waiting();
            for (counter, count) in counts {
                dropped += usize::from(waiting.put(counter, count, self.0.limit));
            }
        }
        self.0.filled.notify_one();
        if dropped > 0 {
            (self.0.on_dropped)(dropped);
        }
    }

    /// Takes out the counts that have waited longest, at most `most`.
    pub(crate) fn take(&self, most: usize) -> Vec<(CounterId, Served)> {
        let mut waiting = self.waiting();
        let count = waiting.order.len().min(most);
        let counters: Vec<_> = waiting.order.drain(..count).collect();
        counters.into_iter().filter_map(|counter| waiting.newest.remove_entry(&counter)).collect()
    }

    /// Completes when something may have been put in since the last call.
    pub(crate) async fn filled(&self) {
        self.0.filled.notified().await;
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Whether a counter had to make room.
    fn put(&mut self, counter: CounterId, count: Served, limit: usize) -> bool {
        if let Some(known) = self.newest.get_mut(&counter) {
            if count.replaces(known) {
                *known = count;
            }
            return false;
        }
        self.newest.insert(counter.clone(), count);
        self.order.push_back(counter);
        let crowded = self.order.len() > limit;
        if crowded && let Some(oldest) = self.order.pop_front() {
            self.newest.remove(&oldest);
        }
        crowded
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn count(post: &str, version: u64) -> (CounterId, Served) {
        (CounterId::likes(post.parse().unwrap()), Served { version, ..Served::default() })
    }

    fn versions(taken: &[(CounterId, Served)]) -> Vec<(&str, u64)> {
        taken.iter().map(|(counter, count)| (counter.post.as_str(), count.version)).collect()
    }

    #[test]
    fn a_counter_waits_once_with_its_newest_count() {
        let latest = LatestCounts::new(9, |_| panic!("there was room"));
        latest.put([count("a", 1), count("b", 1), count("a", 3), count("a", 2)]);
        assert_eq!(versions(&latest.take(9)), [("a", 3), ("b", 1)]);
        assert!(latest.take(9).is_empty());
    }

    #[test]
    fn where_there_is_no_room_the_counter_that_has_waited_longest_is_dropped() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        let latest = LatestCounts::new(2, |dropped| _ = DROPPED.fetch_add(dropped, Ordering::Relaxed));
        latest.put([count("a", 1), count("b", 1), count("c", 1), count("b", 2)]);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
        assert_eq!(versions(&latest.take(1)), [("b", 2)]);
        assert_eq!(versions(&latest.take(9)), [("c", 1)]);
    }
}
