//! The load's ledger of truth: what Kafka acknowledged last for each member of each set of each post, and what it
//! acknowledged in all for each sum. What the tables say is compared with it, and never fed into it.

mod amounts;
mod pairs;
mod replies;

use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::definitions::Direction;

use crate::counters::Counted;
use crate::names::{Names, Reply};

pub(crate) use amounts::{Amount, Amounts};
pub(crate) use pairs::Pairs;
pub(crate) use replies::{LIVE, Replies};

/// One event of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) post: usize,
    pub(crate) deed: Deed,
}

/// What an event does to one counter of its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Like { user: u32, direction: Direction },
    Retweet { user: u32, direction: Direction },
    Reply { reply: Reply, direction: Direction },
    View { amount: u32 },
}

impl Deed {
    /// The counter that it changes.
    pub(crate) fn counted(self) -> Counted {
        match self {
            Self::Like { .. } => Counted::Likes,
            Self::Retweet { .. } => Counted::Retweets,
            Self::Reply { .. } => Counted::Replies,
            Self::View { .. } => Counted::Views,
        }
    }
}

/// One writer for each user, and for each lane's replies, at a time: so what is said of a member is recorded in the order
/// in which it was acknowledged.
#[derive(Debug)]
pub(crate) struct Ledger {
    names: Names,
    likes: Pairs,
    retweets: Pairs,
    replies: Replies,
    views: Amounts,
    events: AtomicU64,
}

impl Ledger {
    /// Without any event.
    pub(crate) fn new(names: Names) -> Self {
        let (posts, users) = (names.posts().len(), names.users());
        Self {
            likes: Pairs::new(posts, users),
            retweets: Pairs::new(posts, users),
            replies: Replies::new(names.lanes()),
            views: Amounts::new(posts),
            names,
            events: AtomicU64::new(0),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records what Kafka has acknowledged.
    pub(crate) fn acknowledged(&self, event: Event) {
        let Event { post, deed } = event;
        match deed {
            Deed::Like { user, direction } => self.likes.say(post, user, direction),
            Deed::Retweet { user, direction } => self.retweets.say(post, user, direction),
            Deed::Reply { reply, direction } => self.replies.say(post, reply, direction),
            Deed::View { amount } => self.views.acknowledged(post, amount),
        }
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a view that may be in the log or not.
    pub(crate) fn unknown_view(&self, post: usize, amount: u32) {
        self.views.unknown(post, amount);
    }

    pub(crate) fn likes(&self) -> &Pairs {
        &self.likes
    }

    pub(crate) fn retweets(&self) -> &Pairs {
        &self.retweets
    }

    pub(crate) fn replies(&self) -> &Replies {
        &self.replies
    }

    pub(crate) fn views(&self) -> &Amounts {
        &self.views
    }

    /// Rows that members have by it.
    pub(crate) fn rows(&self) -> u64 {
        self.likes.total() + self.retweets.total() + self.replies.total()
    }

    /// Events that were acknowledged.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_changes_its_own_counter_alone() {
        let ledger = Ledger::new(Names::new(2, 3, 0, None));
        let add = Direction::Add;
        let reply = Reply { lane: 1, nth: 0 };
        for deed in [
            Deed::Like { user: 2, direction: add },
            Deed::Retweet { user: 1, direction: add },
            Deed::Reply { reply, direction: add },
            Deed::View { amount: 7 },
        ] {
            ledger.acknowledged(Event { post: 1, deed });
        }
        assert_eq!((ledger.likes().has(1, 2), ledger.likes().total()), (true, 1));
        assert_eq!((ledger.retweets().has(1, 1), ledger.retweets().total()), (true, 1));
        assert_eq!(ledger.replies().live(1), [(0, 1)]);
        assert_eq!((ledger.views().of(1), ledger.views().of(0)), (Amount { known: 7, open: 0 }, Amount::default()));
        assert_eq!((ledger.rows(), ledger.events()), (3, 4));
    }
}
