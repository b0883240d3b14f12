//! A sum: what was added to it in all, post by post.

use std::sync::atomic::{AtomicI64, Ordering};

/// What was added to one sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// What was acknowledged.
    pub(crate) known: i64,
    /// What was written and never acknowledged: each event of it is in the log once, or not at all.
    pub(crate) open: i64,
}

impl Amount {
    /// Whether the sum can be `found`: exactly what was acknowledged, where nothing is open.
    pub(crate) fn admits(self, found: i64) -> bool {
        (self.known..=self.known + self.open).contains(&found)
    }
}

/// What was added, by post.
#[derive(Debug)]
pub(crate) struct Amounts(Vec<[AtomicI64; 2]>);

impl Amounts {
    /// Nothing.
    pub(super) fn new(posts: usize) -> Self {
        Self(std::iter::repeat_with(Default::default).take(posts).collect())
    }

    pub(super) fn acknowledged(&self, post: usize, amount: u32) {
        self.0[post][0].fetch_add(amount.into(), Ordering::Relaxed);
    }

    /// May be in the log or not.
    pub(crate) fn unknown(&self, post: usize, amount: u32) {
        self.0[post][1].fetch_add(amount.into(), Ordering::Relaxed);
    }

    /// What was unknown is acknowledged.
    pub(crate) fn settled(&self, post: usize, amount: u32) {
        self.acknowledged(post, amount);
        self.0[post][1].fetch_sub(amount.into(), Ordering::Relaxed);
    }

    pub(crate) fn of(&self, post: usize) -> Amount {
        let [known, open] = &self.0[post];
        Amount { known: known.load(Ordering::Relaxed), open: open.load(Ordering::Relaxed) }
    }

    /// Over all posts.
    pub(crate) fn total(&self) -> Amount {
        (0..self.0.len())
            .map(|post| self.of(post))
            .fold(Amount::default(), |all, one| Amount { known: all.known + one.known, open: all.open + one.open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_what_was_acknowledged_and_at_most_what_is_open_beside() {
        let amounts = Amounts::new(2);
        amounts.acknowledged(0, 25);
        amounts.acknowledged(0, 1);
        amounts.acknowledged(1, 4);
        let admitted = |amount: Amount| (20..40).filter(|found| amount.admits(*found)).collect::<Vec<_>>();
        assert_eq!(admitted(amounts.of(0)), [26]);
        amounts.unknown(0, 2);
        assert_eq!(admitted(amounts.of(0)), [26, 27, 28]);
        assert_eq!(amounts.total(), Amount { known: 30, open: 2 });
        amounts.settled(0, 2);
        assert_eq!(admitted(amounts.of(0)), [28]);
    }
}
