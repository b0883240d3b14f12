//! Counters' watermarks as last seen, for pruning; a bounded memory of the posts written lately.

use tally_core::Map;
use tally_core::ids::PostId;
use tally_core::watermark::Watermarks;

/// Two generations: what is not asked for while the younger one fills up is forgotten with the older one.
#[derive(Debug)]
pub(crate) struct Seen {
    limit: usize,
    young: Map<PostId, Watermarks>,
    old: Map<PostId, Watermarks>,
}

impl Seen {
    /// Remembers at most twice `limit` posts.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, young: Map::default(), old: Map::default() }
    }

    /// What was last seen of `post`.
    pub(crate) fn get(&self, post: &PostId) -> Option<&Watermarks> {
        self.young.get(post).or_else(|| self.old.get(post))
    }

    /// Takes note of what `post`'s counter carries now. One watermark alone is not worth it: when a second one joins it,
    /// the reply that says so is the one to remember.
    pub(crate) fn put(&mut self, post: &PostId, marks: &Watermarks) {
        self.old.remove(post);
        if marks.marks().len() < 2 {
            self.young.remove(post);
            return;
        }
        if self.young.len() >= self.limit {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(post.clone(), marks.clone());
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{Ordinal, Sequence};

    use super::*;

    fn marks(count: u64) -> Watermarks {
        Watermarks::new((1..=count).map(|n| (Ordinal(n), Sequence::from(n))).collect(), None)
    }

    fn post(n: u64) -> PostId {
        PostId::new(&format!("p{n}")).unwrap()
    }

    #[test]
    fn the_posts_written_last_are_remembered_and_no_more_than_twice_the_limit() {
        let mut seen = Seen::new(10);
        (0..100).for_each(|n| seen.put(&post(n), &marks(2)));
        assert!(seen.get(&post(99)).is_some() && seen.get(&post(90)).is_some());
        assert!(seen.get(&post(0)).is_none());
        assert!(seen.young.len() + seen.old.len() <= 20);
    }

    #[test]
    fn a_counter_pruned_to_one_watermark_takes_no_room() {
        let mut seen = Seen::new(10);
        seen.put(&post(1), &marks(3));
        seen.put(&post(1), &marks(1));
        assert!(seen.get(&post(1)).is_none());
    }
}
