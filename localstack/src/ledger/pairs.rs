//! A set whose members are the load's users: which of them are in it, post by post.

use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::definitions::Direction;

/// A bit for each post and user: whether the last acknowledged action put the user in. A pair without any action is not in
/// the set, as in the tables.
#[derive(Debug)]
pub(crate) struct Pairs {
    words: Vec<AtomicU64>,
    per_post: usize,
}

impl Pairs {
    /// Empty.
    pub(super) fn new(posts: usize, users: u32) -> Self {
        let per_post = (users as usize).div_ceil(64);
        Self { words: std::iter::repeat_with(AtomicU64::default).take(posts * per_post).collect(), per_post }
    }

    pub(super) fn say(&self, post: usize, user: u32, direction: Direction) {
        let (word, bit) = self.place(post, user);
        match direction {
            Direction::Add => word.fetch_or(bit, Ordering::Relaxed),
            Direction::Remove => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    pub(crate) fn has(&self, post: usize, user: u32) -> bool {
        let (word, bit) = self.place(post, user);
        word.load(Ordering::Relaxed) & bit != 0
    }

    pub(crate) fn count(&self, post: usize) -> u64 {
        Self::ones(&self.words[post * self.per_post..(post + 1) * self.per_post])
    }

    pub(crate) fn total(&self) -> u64 {
        Self::ones(&self.words)
    }

    fn ones(words: &[AtomicU64]) -> u64 {
        words.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
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
    fn it_equals_the_fold_of_what_was_said() {
        let (posts, users) = (3, 130);
        let (pairs, mut fold) = (Pairs::new(posts, users), BTreeMap::new());
        let mut draw = StdRng::seed_from_u64(5);
        for _ in 0..5_000 {
            let (post, user) = (draw.random_range(0..posts), draw.random_range(0..users));
            let direction = if draw.random_bool(0.4) { Direction::Remove } else { Direction::Add };
            pairs.say(post, user, direction);
            fold.insert((post, user), direction == Direction::Add);
        }
        for post in 0..posts {
            let liking = |user: &u32| fold.get(&(post, *user)).copied().unwrap_or(false);
            assert!((0..users).all(|user| pairs.has(post, user) == liking(&user)));
            assert_eq!(pairs.count(post), (0..users).filter(liking).count() as u64);
        }
        assert_eq!(pairs.total(), fold.values().filter(|likes| **likes).count() as u64);
    }

    #[test]
    fn an_action_said_twice_is_recorded_once() {
        let pairs = Pairs::new(1, 1);
        let (add, remove) = (Direction::Add, Direction::Remove);
        for (direction, total) in [(remove, 0), (add, 1), (add, 1), (remove, 0)] {
            pairs.say(0, 0, direction);
            assert_eq!(pairs.total(), total);
        }
    }
}
