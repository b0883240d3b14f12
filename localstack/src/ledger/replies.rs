//! A set whose members are new ones each time: the replies that each lane of the load has said and not taken back.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tally_core::definitions::Direction;

use crate::names::Reply;

/// Replies of one lane that stand, at most: what is beyond is taken back, so that a load can run for days.
pub(crate) const LIVE: usize = 32;

/// By lane, the replies that were acknowledged and not taken back: a reply's number, and its post. A reply that is not
/// here has no row.
#[derive(Debug)]
pub(crate) struct Replies(Vec<Mutex<BTreeMap<u64, usize>>>);

impl Replies {
    /// Without any.
    pub(super) fn new(lanes: u32) -> Self {
        Self((0..lanes).map(|_| Mutex::default()).collect())
    }

    pub(super) fn say(&self, post: usize, reply: Reply, direction: Direction) {
        let Some(lane) = self.0.get(reply.lane as usize) else { return };
        match direction {
            Direction::Add => lane.lock().insert(reply.nth, post),
            Direction::Remove => lane.lock().remove(&reply.nth),
        };
    }

    /// Those of a lane that stand, in the order in which they were said: number and post.
    pub(crate) fn live(&self, lane: u32) -> Vec<(u64, usize)> {
        let lane = self.0.get(lane as usize).map(Mutex::lock);
        lane.map(|live| live.iter().map(|(nth, post)| (*nth, *post)).collect()).unwrap_or_default()
    }

    /// Every one that stands, with its post.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Reply, usize)> {
        (0..)
            .zip(&self.0)
            .flat_map(|(lane, _)| self.live(lane).into_iter().map(move |(nth, post)| (Reply { lane, nth }, post)))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|lane| lane.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_stands_until_it_is_taken_back() {
        let replies = Replies::new(2);
        let of = |lane, nth| Reply { lane, nth };
        for (post, reply) in [(4, of(0, 0)), (5, of(1, 0)), (6, of(0, 1))] {
            replies.say(post, reply, Direction::Add);
            replies.say(post, reply, Direction::Add);
        }
        replies.say(4, of(0, 0), Direction::Remove);
        assert_eq!(replies.all().collect::<Vec<_>>(), [(of(0, 1), 6), (of(1, 0), 5)]);
        assert_eq!((replies.total(), replies.live(0)), (2, vec![(1, 6)]));
    }
}
