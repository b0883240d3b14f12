//! Who is next where only so many may be at work at once: the one for whom it matters most.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Some places. Clones are the same.
#[derive(Clone)]
pub(crate) struct Places(Arc<Mutex<State>>);

/// One of them; given on when it is dropped.
pub(crate) struct Place(Places);

struct State {
    free: usize,
    waiting: BinaryHeap<Waiting>,
    /// How many have waited so far.
    waited: u64,
}

struct Waiting {
    /// The greatest is next, and of equals the one that waits longest.
    rank: (u64, Reverse<u64>),
    tell: oneshot::Sender<Place>,
}

impl Places {
    /// So many places.
    pub(crate) fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free, waiting: BinaryHeap::new(), waited: 0 })))
    }

    /// Waits for a place; it matters so much.
    pub(crate) async fn take(&self, matters: u64) -> Place {
        let told = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Place(self.clone());
            }
            let (tell, told) = oneshot::channel();
            state.waited += 1;
            let rank = (matters, Reverse(state.waited));
            state.waiting.push(Waiting { rank, tell });
            told
        };
        told.await.expect("a place is given on before the places are gone")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state();
            let next = state.waiting.pop();
            state.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // Where that one waits no more, dropping the place gives it on.
            drop(next.tell.send(Self(self.0.clone())));
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_place_goes_to_the_one_that_matters_most_and_of_equals_to_the_first_that_still_waits() {
        let places = Places::new(1);
        let held = places.take(0).now_or_never().expect("one is free");
        let (mut little, mut much, mut later) =
            (Box::pin(places.take(1)), Box::pin(places.take(9)), Box::pin(places.take(9)));
        let mut gone = Box::pin(places.take(10));
        assert!(little.as_mut().now_or_never().is_none() && much.as_mut().now_or_never().is_none());
        assert!(later.as_mut().now_or_never().is_none() && gone.as_mut().now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(little.as_mut().now_or_never().is_none() && later.as_mut().now_or_never().is_none());
        drop(much.now_or_never().expect("the first of the most"));
        assert!(little.as_mut().now_or_never().is_none());
        drop(later.now_or_never().expect("the second"));
        drop(little.now_or_never().expect("the rest"));
        assert!(places.take(0).now_or_never().is_some());
    }
}
