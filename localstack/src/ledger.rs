//! The load's own record of what must be stored in the end, kept from Kafka's acknowledgements: who likes or retweets a
//! post and which replies and tags there are, and how many views were added. The tables are compared with it and never
//! change it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tally_core::definitions::Direction;

use crate::counters::Counted;
use crate::names::{Member, Names};

/// One event of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) counted: Counted,
    /// The index of a post, or of a hashtag where the counter is one of hashtags.
    pub(crate) subject: usize,
    /// The index of the region that it comes from.
    pub(crate) region: usize,
    pub(crate) deed: Deed,
}

/// What an event does to the counter of its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Member { member: Member, direction: Direction },
    View { amount: u32 },
}

/// Each member has one writer at a time: so what is said of a member is recorded in the order in which it was acknowledged.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) names: Names,
    /// The members of each counter of each subject, and the index of the region that each came from last. One that is not
    /// here has no row. Each takes about 20 bytes.
    sets: Mutex<BTreeMap<(Counted, usize), BTreeMap<Member, u8>>>,
    pub(crate) views: Amounts,
    events: AtomicU64,
}

impl Ledger {
    /// Without any event.
    pub(crate) fn new(names: Names) -> Self {
        let views = Amounts(Mutex::new(vec![Amount::default(); names.posts.len()]));
        Self { sets: Mutex::default(), views, names, events: AtomicU64::new(0) }
    }

    /// Records what Kafka has acknowledged.
    pub(crate) fn acknowledged(&self, event: Event) {
        let Event { counted, subject, region, deed } = event;
        match deed {
            Deed::Member { member, direction } => {
                let mut sets = self.sets.lock();
                let members = sets.entry((counted, subject)).or_default();
                match direction {
                    Direction::Add => members.insert(member, u8::try_from(region).expect("there are few regions")),
                    Direction::Remove => members.remove(&member),
                };
            }
            Deed::View { amount } => self.views.acknowledged(subject, amount),
        }
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// The members of a counter, and the index of the region of each.
    pub(crate) fn members(&self, counted: Counted, subject: usize) -> BTreeMap<Member, u8> {
        self.sets.lock().get(&(counted, subject)).cloned().unwrap_or_default()
    }

    pub(crate) fn likes(&self, post: usize) -> usize {
        self.sets.lock().get(&(Counted::Likes, post)).map_or(0, BTreeMap::len)
    }

    /// Rows that members have by it.
    pub(crate) fn rows(&self) -> u64 {
        self.sets.lock().values().map(|members| members.len() as u64).sum()
    }

    /// Events that were acknowledged.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

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
pub(crate) struct Amounts(Mutex<Vec<Amount>>);

impl Amounts {
    fn acknowledged(&self, post: usize, amount: u32) {
        self.0.lock()[post].known += i64::from(amount);
    }

    /// May be in the log or not.
    pub(crate) fn unknown(&self, post: usize, amount: u32) {
        self.0.lock()[post].open += i64::from(amount);
    }

    /// What was unknown is acknowledged.
    pub(crate) fn settled(&self, post: usize, amount: u32) {
        let mut amounts = self.0.lock();
        amounts[post].known += i64::from(amount);
        amounts[post].open -= i64::from(amount);
    }

    pub(crate) fn of(&self, post: usize) -> Amount {
        self.0.lock()[post]
    }

    /// Over all posts.
    pub(crate) fn total(&self) -> Amount {
        let amounts = self.0.lock();
        amounts
            .iter()
            .fold(Amount::default(), |all, one| Amount { known: all.known + one.known, open: all.open + one.open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_changes_its_own_counter_alone() {
        let ledger = Ledger::new(Names::new(2, 3, 0, None));
        let say = |counted, member, direction, region| {
            let deed = Deed::Member { member, direction };
            ledger.acknowledged(Event { counted, subject: 1, region, deed });
        };
        let (user, made) = (Member::User(2), Member::Made { lane: 1, nth: 0 });
        for (counted, member) in [
            (Counted::Likes, user),
            (Counted::Likes, Member::User(1)),
            (Counted::Retweets, user),
            (Counted::Replies, made),
            (Counted::Uses, made),
        ] {
            say(counted, member, Direction::Add, 2);
        }
        say(Counted::Likes, user, Direction::Add, 0);
        say(Counted::Likes, Member::User(1), Direction::Remove, 2);
        ledger.acknowledged(Event { counted: Counted::Views, subject: 1, region: 2, deed: Deed::View { amount: 7 } });
        assert_eq!(ledger.members(Counted::Likes, 1), BTreeMap::from([(user, 0)]), "as it was said last");
        assert_eq!((ledger.likes(1), ledger.likes(0)), (1, 0));
        assert_eq!(ledger.members(Counted::Retweets, 1), BTreeMap::from([(user, 2)]));
        assert_eq!([Counted::Replies, Counted::Uses].map(|counted| ledger.members(counted, 1).len()), [1, 1]);
        assert_eq!((ledger.views.of(1), ledger.views.of(0)), (Amount { known: 7, open: 0 }, Amount::default()));
        assert_eq!((ledger.rows(), ledger.events()), (4, 8));
    }

    #[test]
    fn a_sum_is_what_was_acknowledged_and_at_most_what_is_open_beside() {
        let amounts = Ledger::new(Names::new(2, 1, 0, None)).views;
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
