//! Counters that still carry watermarks of finished stream shards, as last seen: for the next update to prune them. A
//! bounded memory; what is not in it is pruned blindly.

use tally_core::Map;
use tally_core::ids::{Ordinal, PostId};
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

    /// What was last seen of `post`, if there is something to prune.
    pub(crate) fn get(&self, post: &PostId) -> Option<Watermarks> {
        self.young.get(post).or_else(|| self.old.get(post)).cloned()
    }

    /// Takes note of what `post`'s counter carries now, every stream shard up to `closed_through` being closed.
    pub(crate) fn put(&mut self, post: &PostId, marks: &Watermarks, closed_through: Option<Ordinal>) {
        self.old.remove(post);
        let is_prunable = marks.marks().first_key_value().is_some_and(|(least, _)| Some(*least) <= closed_through);
        if !is_prunable {
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
    use tally_core::ids::Sequence;

    use super::*;

    const THROUGH: Option<Ordinal> = Some(Ordinal(2));

    fn marks(from: u64, to: u64) -> Watermarks {
        Watermarks::new((from..=to).map(|n| (Ordinal(n), Sequence::from(n))).collect(), None)
    }

    fn post(n: u64) -> PostId {
        PostId::new(&format!("p{n}")).unwrap()
    }

    #[test]
    fn the_posts_written_last_are_remembered_and_no_more_than_twice_the_limit() {
        let mut seen = Seen::new(10);
        (0..100).for_each(|n| seen.put(&post(n), &marks(1, 3), THROUGH));
        assert!(seen.get(&post(99)).is_some() && seen.get(&post(90)).is_some());
        assert!(seen.get(&post(0)).is_none());
        assert!(seen.young.len() + seen.old.len() <= 20);
    }

    #[test]
    fn a_counter_without_anything_to_prune_takes_no_room() {
        let mut seen = Seen::new(10);
        seen.put(&post(1), &marks(2, 9), THROUGH);
        assert!(seen.get(&post(1)).is_some());
        seen.put(&post(1), &marks(3, 9), THROUGH);
        assert!(seen.get(&post(1)).is_none());
        seen.put(&post(2), &marks(1, 9), None);
        assert!(seen.get(&post(2)).is_none());
    }
}
