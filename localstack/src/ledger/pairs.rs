//! A set whose members are the load's users: which of them are in it, post by post, and from which region.

use std::sync::atomic::{AtomicU64, Ordering};

/// Pairs in a word, two bits each.
const IN_A_WORD: usize = 32;
/// The lower bit of each.
const LOW: u64 = 0x5555_5555_5555_5555;

/// Two bits for each post and user: 0 where the last acknowledged action has taken the user out, or else one more than the index
/// of the region that put them in. A pair without any action is not in the set, as in the tables.
#[derive(Debug)]
pub(crate) struct Pairs {
    words: Vec<AtomicU64>,
    per_post: usize,
}

impl Pairs {
    /// Empty.
    pub(super) fn new(posts: usize, users: u32) -> Self {
        let per_post = (users as usize).div_ceil(IN_A_WORD);
        Self { words: std::iter::repeat_with(AtomicU64::default).take(posts * per_post).collect(), per_post }
    }

    /// The user is in the set from this region, or not in it. Each pair has one writer at a time.
    pub(super) fn say(&self, post: usize, user: u32, region: Option<usize>) {
        let (word, shift) = self.place(post, user);
        word.fetch_and(!(3 << shift), Ordering::Relaxed);
        let bits = region.map_or(0, |region| region as u64 + 1);
        word.fetch_or(bits << shift, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, post: usize, user: u32) -> bool {
        self.region(post, user).is_some()
    }

    /// The index of the region that the user is in the set from.
    pub(crate) fn region(&self, post: usize, user: u32) -> Option<usize> {
        let (word, shift) = self.place(post, user);
        let bits = word.load(Ordering::Relaxed) >> shift & 3;
        usize::try_from(bits.checked_sub(1)?).ok()
    }

    pub(crate) fn count(&self, post: usize) -> u64 {
        Self::ones(&self.words[post * self.per_post..(post + 1) * self.per_post])
    }

    /// How many of them from one region.
    pub(crate) fn count_from(&self, post: usize, region: usize) -> u64 {
        let bits = region as u64 + 1;
        let words = &self.words[post * self.per_post..(post + 1) * self.per_post];
        let found = words.iter().map(|word| {
            // A pair that is the region's has 0 in both bits here.
            let other = word.load(Ordering::Relaxed) ^ (LOW * bits);
            u64::from((!(other | other >> 1) & LOW).count_ones())
        });
        found.sum()
    }

    pub(crate) fn total(&self) -> u64 {
        Self::ones(&self.words)
    }

    fn ones(words: &[AtomicU64]) -> u64 {
        let ones = |word: u64| u64::from(((word | word >> 1) & LOW).count_ones());
        words.iter().map(|word| ones(word.load(Ordering::Relaxed))).sum()
    }

    fn place(&self, post: usize, user: u32) -> (&AtomicU64, usize) {
        let user = user as usize;
        (&self.words[post * self.per_post + user / IN_A_WORD], user % IN_A_WORD * 2)
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
            let region = draw.random_bool(0.6).then(|| draw.random_range(0..3));
            pairs.say(post, user, region);
            fold.insert((post, user), region);
        }
        for post in 0..posts {
            let from = |user: &u32| fold.get(&(post, *user)).copied().flatten();
            assert!((0..users).all(|user| pairs.region(post, user) == from(&user)));
            assert!((0..users).all(|user| pairs.has(post, user) == from(&user).is_some()));
            assert_eq!(pairs.count(post), (0..users).filter_map(|user| from(&user)).count() as u64);
            for region in 0..3 {
                let of_region = (0..users).filter(|user| from(user) == Some(region)).count();
                assert_eq!(pairs.count_from(post, region), of_region as u64);
            }
        }
        assert_eq!(pairs.total(), fold.values().flatten().count() as u64);
    }

    #[test]
    fn an_action_said_twice_is_recorded_once() {
        let pairs = Pairs::new(1, 1);
        for (region, total) in [(None, 0), (Some(0), 1), (Some(0), 1), (Some(2), 1), (None, 0)] {
            pairs.say(0, 0, region);
            assert_eq!(pairs.total(), total);
        }
    }
}
