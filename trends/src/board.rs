//! The greatest of many sums that change, without sorting them: those at or before a position are kept, all of them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use tally_core::ids::PostId;

/// How much of a board is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardRules {
    /// More than so many are too many,
    pub most: usize,
    /// and so many stay then, or are looked for where too few are left.
    pub keep: usize,
    /// Fewer than so many are too few, unless there are no more.
    pub least: usize,
    /// How many a list has; at most [`least`](Self::least).
    pub list: usize,
    /// The least sum that is listed, at least 1.
    pub min_count: i64,
}

impl Default for BoardRules {
    fn default() -> Self {
        Self { most: 1_024, keep: 512, least: 256, list: 128, min_count: 1 }
    }
}

/// A subject and its sum, in the order of a list: the greater sum first, then by the bytes of the id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranked {
    count: Reverse<i64>,
    /// The subject.
    pub subject: PostId,
}

impl Ranked {
    /// `subject` with its sum.
    pub fn new(subject: PostId, count: i64) -> Self {
        Self { count: Reverse(count), subject }
    }

    /// The sum.
    pub fn count(&self) -> i64 {
        self.count.0
    }
}

/// The greatest sums of one counter, region and window.
#[derive(Clone, Debug)]
pub struct Board {
    rules: BoardRules,
    /// Every subject at or before `theta` whose sum is worth listing.
    kept: BTreeSet<Ranked>,
    /// `None`: none is left out. A position and not a sum, so that many equal sums force no scan.
    theta: Option<Ranked>,
}

impl Board {
    /// An empty board.
    pub fn new(rules: BoardRules) -> Self {
        Self { rules, kept: BTreeSet::new(), theta: None }
    }

    /// The sum of `subject` was `before` and is `after`.
    pub fn update(&mut self, subject: &PostId, before: i64, after: i64) {
        if before >= self.rules.min_count {
            self.kept.remove(&Ranked::new(subject.clone(), before));
        }
        let now = Ranked::new(subject.clone(), after);
        if after >= self.rules.min_count && self.theta.as_ref().is_none_or(|theta| now <= *theta) {
            self.kept.insert(now);
        }
        if self.kept.len() > self.rules.most {
            self.cut();
        }
    }

    /// Leaves the first ones.
    fn cut(&mut self) {
        let last = self.kept.iter().nth(self.rules.keep.saturating_sub(1)).cloned();
        self.kept.retain(|ranked| Some(ranked) <= last.as_ref());
        self.theta = last;
    }

    /// Whether too few are left to be sure of a list: all sums have to be looked at.
    pub fn needs_refill(&self) -> bool {
        self.theta.is_some() && self.kept.len() < self.rules.least
    }

    /// Takes the greatest of all sums.
    pub fn refill<'a>(&mut self, all: impl Iterator<Item = (&'a PostId, i64)>) {
        (self.kept, self.theta) = (BTreeSet::new(), None);
        for (subject, count) in all {
            self.update(subject, 0, count);
        }
    }

    /// The first ones, and whether these are all there are.
    pub fn list(&self) -> (Vec<Ranked>, bool) {
        debug_assert!(!self.needs_refill(), "a list is made of enough");
        let all = self.theta.is_none() && self.kept.len() <= self.rules.list;
        (self.kept.iter().take(self.rules.list).cloned().collect(), all)
    }
}
