//! What the models of one Kafka partition share: two consumers that differ in nothing but their place, and requests that
//! reach the table after their senders have given them up.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Puts consumers into one order: states that differ in which is which are one.
pub(super) fn in_one_order<C: Hash>(consumers: &mut [Arc<C>; 2]) {
    consumers.sort_by_cached_key(|consumer| FixedState::default().hash_one(consumer));
}

/// Puts `request` among those that no sender waits for, which have one order.
pub(super) fn give_up<R: Clone, K: Ord>(ghosts: &mut Vec<R>, request: &R, order: impl FnMut(&R) -> K) {
    ghosts.push(request.clone());
    ghosts.sort_unstable_by_key(order);
}

/// Each request that no sender waits for, and the others: it reaches the table, or it never does.
pub(super) fn each_ghost<R: Clone>(ghosts: &[R]) -> impl Iterator<Item = (&R, Vec<R>)> {
    ghosts.iter().enumerate().map(|(nth, ghost)| {
        let mut others = ghosts.to_vec();
        others.remove(nth);
        (ghost, others)
    })
}
