//! The load's ledger of truth: what Kafka acknowledged last for each member of each set of each post, and what it
//! acknowledged in all for each sum. What the tables say is compared with it, and never fed into it.

mod amounts;
mod pairs;
mod standing;

use std::sync::atomic::{AtomicU64, Ordering};

use tally_core::definitions::Direction;

use crate::counters::Counted;
use crate::names::{Made, Names};

pub(crate) use amounts::{Amount, Amounts};
pub(crate) use pairs::Pairs;
pub(crate) use standing::{LIVE, Standing};

/// One event of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The index of a post, or of a hashtag where the deed is to one.
    pub(crate) subject: usize,
    /// The index of the region that it comes from.
    pub(crate) region: usize,
    pub(crate) deed: Deed,
}

/// What an event does to one counter of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Like { user: u32, direction: Direction },
    Retweet { user: u32, direction: Direction },
    Reply { reply: Made, direction: Direction },
    View { amount: u32 },
    Use { tagged: Made, direction: Direction },
}

impl Deed {
    /// The counter that it changes.
    pub(crate) fn counted(self) -> Counted {
        match self {
            Self::Like { .. } => Counted::Likes,
            Self::Retweet { .. } => Counted::Retweets,
            Self::Reply { .. } => Counted::Replies,
            Self::View { .. } => Counted::Views,
            Self::Use { .. } => Counted::Uses,
        }
    }
}

/// One writer for each user, and for what each lane makes, at a time: so what is said of a member is recorded in the order
/// in which it was acknowledged.
#[derive(Debug)]
pub(crate) struct Ledger {
    names: Names,
    likes: Pairs,
    retweets: Pairs,
    replies: Standing,
    views: Amounts,
    uses: Standing,
    events: AtomicU64,
}

impl Ledger {
    /// Without any event.
    pub(crate) fn new(names: Names) -> Self {
        let (posts, users) = (names.posts().len(), names.users());
        Self {
            likes: Pairs::new(posts, users),
            retweets: Pairs::new(posts, users),
            replies: Standing::new(names.lanes()),
            views: Amounts::new(posts),
            uses: Standing::new(names.lanes()),
            names,
            events: AtomicU64::new(0),
        }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records what Kafka has acknowledged.
    pub(crate) fn acknowledged(&self, event: Event) {
        let Event { subject, region, deed } = event;
        let stands = |direction| (direction == Direction::Add).then_some(region);
        match deed {
            Deed::Like { user, direction } => self.likes.say(subject, user, stands(direction)),
            Deed::Retweet { user, direction } => self.retweets.say(subject, user, stands(direction)),
            Deed::Reply { reply, direction } => self.replies.say(subject, reply, direction),
            Deed::View { amount } => self.views.acknowledged(subject, amount),
            Deed::Use { tagged, direction } => self.uses.say(subject, tagged, direction),
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

    /// What lanes have made of a counter: replies, or posts with hashtags.
    pub(crate) fn made(&self, counted: Counted) -> &Standing {
        match counted {
            Counted::Uses => &self.uses,
            Counted::Likes | Counted::Retweets | Counted::Replies | Counted::Views => &self.replies,
        }
    }

    pub(crate) fn views(&self) -> &Amounts {
        &self.views
    }

    /// Rows that members have by it.
    pub(crate) fn rows(&self) -> u64 {
        self.likes.total() + self.retweets.total() + self.replies.total() + self.uses.total()
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
        let made = Made { lane: 1, nth: 0 };
        for deed in [
            Deed::Like { user: 2, direction: add },
            Deed::Retweet { user: 1, direction: add },
            Deed::Reply { reply: made, direction: add },
            Deed::View { amount: 7 },
            Deed::Use { tagged: made, direction: add },
        ] {
            ledger.acknowledged(Event { subject: 1, region: 2, deed });
        }
        assert_eq!((ledger.likes().region(1, 2), ledger.likes().total()), (Some(2), 1));
        assert_eq!((ledger.retweets().has(1, 1), ledger.retweets().total()), (true, 1));
        assert_eq!(
            (ledger.made(Counted::Replies).live(1), ledger.made(Counted::Uses).live(1)),
            (vec![(0, 1)], vec![(0, 1)])
        );
        assert_eq!((ledger.views().of(1), ledger.views().of(0)), (Amount { known: 7, open: 0 }, Amount::default()));
        assert_eq!((ledger.rows(), ledger.events()), (4, 5));
    }
}
