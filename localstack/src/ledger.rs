//! The load's ledger of truth: for each post and user the last action that Kafka acknowledged. What the tables say is
//! compared with it, and never fed into it.

use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::event::Action;

use crate::names::Names;

/// A bit for each post and user: whether the last acknowledged action was a like. A pair without any action has no like,
/// as in the tables.
///
/// One writer for each user at a time, so that a pair's actions are recorded in the order in which they were
/// acknowledged.
#[derive(Debug)]
pub(crate) struct Ledger {
    names: Names,
    words: Vec<AtomicU64>,
    per_post: usize,
    events: AtomicU64,
}

impl Ledger {
    /// Without any like.
    pub(crate) fn new(names: Names) -> Self {
        let per_post = (names.users() as usize).div_ceil(64);
        let words = std::iter::repeat_with(AtomicU64::default).take(names.posts().len() * per_post).collect();
        Self { names, words, per_post, events: AtomicU64::new(0) }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records what Kafka has acknowledged.
    pub(crate) fn acknowledged(&self, post: usize, user: u32, action: Action) {
        let (word, bit) = self.place(post, user);
        match action {
            Action::Like => word.fetch_or(bit, Ordering::Relaxed),
            Action::Unlike => word.fetch_and(!bit, Ordering::Relaxed),
        };
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn likes(&self, post: usize, user: u32) -> bool {
        let (word, bit) = self.place(post, user);
        word.load(Ordering::Relaxed) & bit != 0
    }

    pub(crate) fn count(&self, post: usize) -> u64 {
        let words = &self.words[post * self.per_post..(post + 1) * self.per_post];
        words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    pub(crate) fn total(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    fn place(&self, post: usize, user: u32) -> (&AtomicU64, u64) {
        let user = user as usize;
        (&self.words[post * self.per_post + user / 64], 1 << (user % 64))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn it_equals_the_fold_of_what_was_acknowledged() {
        let (posts, users) = (3, 130);
        let (ledger, mut fold) = (Ledger::new(Names::new(3, users, 0, None)), BTreeMap::new());
        let mut draw = StdRng::seed_from_u64(5);
        for _ in 0..5_000 {
            let (post, user) = (draw.random_range(0..posts), draw.random_range(0..users));
            let action = if draw.random_bool(0.4) { Action::Unlike } else { Action::Like };
            ledger.acknowledged(post, user, action);
            fold.insert((post, user), action == Action::Like);
        }
        for post in 0..posts {
            let liking = |user: &u32| fold.get(&(post, *user)).copied().unwrap_or(false);
            assert!((0..users).all(|user| ledger.likes(post, user) == liking(&user)));
            assert_eq!(ledger.count(post), (0..users).filter(liking).count() as u64);
        }
        assert_eq!(ledger.total(), fold.values().filter(|likes| **likes).count() as u64);
        assert_eq!(ledger.events(), 5_000);
    }

    #[test]
    fn an_action_acknowledged_twice_is_recorded_once() {
        let ledger = Ledger::new(Names::new(1, 1, 0, None));
        for (action, total) in [(Action::Unlike, 0), (Action::Like, 1), (Action::Like, 1), (Action::Unlike, 0)] {
            ledger.acknowledged(0, 0, action);
            assert_eq!(ledger.total(), total);
        }
    }
}
