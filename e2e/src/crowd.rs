//! Who says events about what.

use tally_core::definitions::Direction;
use tally_core::ids::{CounterId, PostId, UserId};
use tally_service::Chance;

use crate::simulation::chance::Draws;

/// Users and the posts they like and unlike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// Posts.
    pub(crate) posts: u64,
    /// Users.
    pub(crate) users: u64,
    /// The share of events about the first post, in percent.
    pub(crate) hot: u64,
    /// The share of unlikes, in percent.
    pub(crate) unlikes: u64,
}

impl Crowd {
    /// Who says what about which post.
    pub(crate) fn draw(&self, chance: &Chance) -> (PostId, UserId, Direction) {
        let post = self.post(chance);
        let user = user(chance.below(self.users));
        let direction = if chance.happens(self.unlikes) { Direction::Remove } else { Direction::Add };
        (post, user, direction)
    }

    /// What something is said about.
    pub(crate) fn post(&self, chance: &Chance) -> PostId {
        post(if chance.happens(self.hot) { 0 } else { chance.below(self.posts) })
    }

    /// Every post there can be.
    pub(crate) fn posts(&self) -> impl Iterator<Item = PostId> + use<> {
        (0..self.posts).map(post)
    }

    /// The likes of every post there can be.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = CounterId> + use<> {
        self.posts().map(CounterId::likes)
    }
}

fn post(nth: u64) -> PostId {
    PostId::new(&format!("p-{nth}")).expect("a letter and digits are an id")
}

/// One of the users.
pub(crate) fn user(nth: u64) -> UserId {
    UserId::new(&format!("u-{nth}")).expect("a letter and digits are an id")
}
