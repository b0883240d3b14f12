//! Counts on their way out of the process: the newest of each post, in a queue that never holds its writers up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tally_core::Map;
use tally_core::ids::PostId;
use tally_core::served::Served;
use tokio::sync::Notify;

/// The queue. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Outlet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    /// Who is told how many posts had to make room.
    dropped: fn(usize),
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<PostId>,
    newest: Map<PostId, Served>,
}

impl Outlet {
    /// A queue of at most `limit` posts, that tells `dropped` how many had to make room.
    pub(crate) fn new(limit: usize, dropped: fn(usize)) -> Self {
        Self(Arc::new(Shared { limit, dropped, waiting: Mutex::default(), filled: Notify::new() }))
    }

    /// Puts counts in the queue, each in the place of an older one of its post; posts that wait longest make room.
    pub(crate) fn put(&self, counts: impl IntoIterator<Item = (PostId, Served)>) {
        let mut dropped = 0;
        {
            let mut waiting = self.waiting();
            for (post, count) in counts {
                dropped += usize::from(waiting.put(post, count, self.0.limit));
            }
        }
        self.0.filled.notify_one();
        if dropped > 0 {
            (self.0.dropped)(dropped);
        }
    }

    /// The counts that have waited longest, at most `most`; none where the queue is empty.
    pub(crate) fn take(&self, most: usize) -> Vec<(PostId, Served)> {
        let mut waiting = self.waiting();
        let count = waiting.order.len().min(most);
        let posts: Vec<_> = waiting.order.drain(..count).collect();
        posts.into_iter().filter_map(|post| waiting.newest.remove_entry(&post)).collect()
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
    fn put(&mut self, post: PostId, count: Served, limit: usize) -> bool {
        if let Some(known) = self.newest.get_mut(&post) {
            if count.is_newer_than(known) {
                *known = count;
            }
            return false;
        }
        self.newest.insert(post.clone(), count);
        self.order.push_back(post);
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

    fn count(post: &str, version: u64) -> (PostId, Served) {
        (PostId::new(post).unwrap(), Served { version, ..Served::default() })
    }

    fn versions(taken: &[(PostId, Served)]) -> Vec<(&str, u64)> {
        taken.iter().map(|(post, count)| (post.as_str(), count.version)).collect()
    }

    #[test]
    fn a_post_waits_once_with_its_newest_count() {
        let outlet = Outlet::new(9, |_| panic!("there was room"));
        outlet.put([count("a", 1), count("b", 1), count("a", 3), count("a", 2)]);
        assert_eq!(versions(&outlet.take(9)), [("a", 3), ("b", 1)]);
        assert!(outlet.take(9).is_empty());
    }

    #[test]
    fn a_full_queue_drops_who_waited_longest() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        let outlet = Outlet::new(2, |dropped| _ = DROPPED.fetch_add(dropped, Ordering::Relaxed));
        outlet.put([count("a", 1), count("b", 1), count("c", 1), count("b", 2)]);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
        assert_eq!(versions(&outlet.take(1)), [("b", 2)]);
        assert_eq!(versions(&outlet.take(9)), [("c", 1)]);
    }
}
