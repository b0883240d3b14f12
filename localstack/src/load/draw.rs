//! What one lane of the load says next. One seed draws one load.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tally_core::definitions::Direction;

use crate::config::LoadConfig;
use crate::ledger::{Deed, Event, LIVE};
use crate::names::Reply;

/// Shares of the events that are retweets, replies and views; the rest, seven tenths, are likes and unlikes. On a real site
/// views are most of the events. Here each of them moves a cell that is there already, while likes make the rows that a run
/// is about.
const RETWEETS: f64 = 0.10;
const REPLIES: f64 = 0.06;
const VIEWS: f64 = 0.14;
/// The greatest amount of one view: a client that gathers views before it says them.
const MOST_VIEWS: u32 = 25;

/// The events of one lane: those of every `lanes`th user, and of the lane's own replies.
pub(super) struct Draw {
    config: LoadConfig,
    lane: u32,
    lanes: u32,
    /// The number of its next reply.
    next: u64,
    random: StdRng,
}

impl Draw {
    pub(super) fn new(config: LoadConfig, seed: u64, lane: u32, lanes: u32) -> Self {
        let random = StdRng::seed_from_u64(seed ^ u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { config, lane, lanes, next: 0, random }
    }

    /// The next event, where `live` are the lane's replies that stand: number and post.
    pub(super) fn event(&mut self, live: impl FnOnce() -> Vec<(u64, usize)>) -> Event {
        let LoadConfig { posts, hot_share, .. } = self.config;
        let post = if self.random.random_bool(hot_share) { 0 } else { self.random.random_range(0..posts) } as usize;
        let kind: f64 = self.random.random();
        if kind < VIEWS {
            return Event { post, deed: Deed::View { amount: self.random.random_range(1..=MOST_VIEWS) } };
        }
        let direction =
            if self.random.random_bool(self.config.unlike_ratio) { Direction::Remove } else { Direction::Add };
        if kind < VIEWS + REPLIES {
            return self.reply(post, direction, &live());
        }
        let user = self.user();
        let is_retweet = kind < VIEWS + REPLIES + RETWEETS;
        let deed = if is_retweet { Deed::Retweet { user, direction } } else { Deed::Like { user, direction } };
        Event { post, deed }
    }

    fn user(&mut self) -> u32 {
        let mine = (self.config.users - self.lane).div_ceil(self.lanes);
        self.lane + self.lanes * self.random.random_range(0..mine)
    }

    /// A new reply to `post`, or one of those that stand taken back: always one where as many stand as may.
    fn reply(&mut self, post: usize, direction: Direction, live: &[(u64, usize)]) -> Event {
        let lane = self.lane;
        let back = match direction {
            Direction::Remove => true,
            Direction::Add => live.len() >= LIVE,
        };
        if back && !live.is_empty() {
            let (nth, post) = live[self.random.random_range(0..live.len())];
            return Event { post, deed: Deed::Reply { reply: Reply { lane, nth }, direction: Direction::Remove } };
        }
        let nth = self.next;
        self.next += 1;
        Event { post, deed: Deed::Reply { reply: Reply { lane, nth }, direction: Direction::Add } }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::counters::Counted;
    use crate::ledger::Ledger;
    use crate::names::Names;

    const CONFIG: LoadConfig = LoadConfig { rate: 1, posts: 10, users: 7, unlike_ratio: 0.3, hot_share: 0.1 };

    fn events(seed: u64, lane: u32, count: usize) -> (Vec<Event>, Ledger) {
        let ledger = Ledger::new(Names::new(10, 7, 0, None));
        let mut draw = Draw::new(CONFIG, seed, lane, 3);
        let drawn = std::iter::repeat_with(|| {
            let event = draw.event(|| ledger.replies().live(lane));
            ledger.acknowledged(event);
            event
        });
        (drawn.take(count).collect(), ledger)
    }

    #[test]
    fn likes_are_most_of_the_events_and_every_counter_is_changed() {
        let (drawn, ledger) = events(1, 0, 10_000);
        let share = |counted| drawn.iter().filter(|event| event.deed.counted() == counted).count() / 100;
        assert!((68..=72).contains(&share(Counted::Likes)), "{}", share(Counted::Likes));
        assert!(Counted::ALL.into_iter().all(|counted| share(counted) >= 5));
        assert!(ledger.retweets().total() > 0 && ledger.replies().total() > 0 && ledger.views().total().known > 0);
    }

    #[test]
    fn one_seed_draws_one_load_and_another_another() {
        assert_eq!(events(1, 2, 500).0, events(1, 2, 500).0);
        assert_ne!(events(1, 2, 500).0, events(2, 2, 500).0);
    }

    #[test]
    fn a_reply_is_new_when_it_is_said_and_stands_when_it_is_taken_back() {
        let (drawn, ledger) = events(3, 1, 20_000);
        let (mut said, mut live) = (BTreeSet::new(), BTreeSet::new());
        for event in drawn {
            let Deed::Reply { reply, direction } = event.deed else { continue };
            match direction {
                Direction::Add => assert!(said.insert(reply) && live.insert((reply, event.post))),
                Direction::Remove => assert!(live.remove(&(reply, event.post))),
            }
            assert!(live.len() <= LIVE && reply.lane == 1);
        }
        assert_eq!(ledger.replies().all().collect::<BTreeSet<_>>(), live);
        assert!(said.len() > LIVE, "{}", said.len());
    }

    #[test]
    fn a_lane_has_its_own_users() {
        let (drawn, _) = events(4, 1, 1_000);
        let users: BTreeSet<u32> = drawn
            .iter()
            .filter_map(|event| match event.deed {
                Deed::Like { user, .. } | Deed::Retweet { user, .. } => Some(user),
                Deed::Reply { .. } | Deed::View { .. } => None,
            })
            .collect();
        assert_eq!(users, BTreeSet::from([1, 4]));
    }
}
