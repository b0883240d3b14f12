//! The load's ledger of truth: what Kafka acknowledged last for each member of each set of each post, and what it
//! acknowledged in all for each sum. What the tables say is compared with it, and never fed into it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use tally_core::definitions::Direction;

use crate::counters::Counted;
use crate::names::{Made, Names};

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
    /// Likes and retweets count users.
    User {
        user: u32,
        direction: Direction,
    },
    /// Replies, and uses of a hashtag, count what lanes make.
    Made {
        made: Made,
        direction: Direction,
    },
    View {
        amount: u32,
    },
}

/// One writer for each user, and for what each lane makes, at a time: so what is said of a member is recorded in the order
/// in which it was acknowledged.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) names: Names,
    pub(crate) likes: Pairs,
    pub(crate) retweets: Pairs,
    replies: Standing,
    pub(crate) views: Amounts,
    uses: Standing,
    events: AtomicU64,
}

impl Ledger {
    /// Without any event.
    pub(crate) fn new(names: Names) -> Self {
        let (posts, users) = (names.posts.len(), names.users);
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

    /// Records what Kafka has acknowledged.
    pub(crate) fn acknowledged(&self, event: Event) {
        let Event { counted, subject, region, deed } = event;
        match deed {
            Deed::User { user, direction } => {
                self.users(counted).say(subject, user, (direction == Direction::Add).then_some(region));
            }
            Deed::Made { made, direction } => self.made(counted).say(subject, made, direction),
            Deed::View { amount } => self.views.acknowledged(subject, amount),
        }
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// The users of a counter: those who retweeted, or those who like.
    pub(crate) fn users(&self, counted: Counted) -> &Pairs {
        match counted {
            Counted::Likes => &self.likes,
            Counted::Retweets => &self.retweets,
            Counted::Replies | Counted::Views | Counted::Uses => unreachable!("{counted:?} are not of users"),
        }
    }

    /// What lanes have made of a counter: replies, or posts with hashtags.
    pub(crate) fn made(&self, counted: Counted) -> &Standing {
        match counted {
            Counted::Replies => &self.replies,
            Counted::Uses => &self.uses,
            Counted::Likes | Counted::Retweets | Counted::Views => unreachable!("lanes make no {counted:?}"),
        }
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

/// Pairs in a word, two bits each.
const IN_A_WORD: usize = 32;
/// The lower bit of each.
const LOW: u64 = 0x5555_5555_5555_5555;

/// Two bits for each post and user: 0 where the last acknowledged action has taken the user out, or else one more than the index
/// of the region that put them in. A pair without any action is not in the set, as in the tables.
#[derive(Debug)]
pub(crate) struct Pairs {
    words: Vec<AtomicU64>,
    per_post: usize,
}

impl Pairs {
    /// Empty.
    pub(super) fn new(posts: usize, users: u32) -> Self {
        let per_post = (users as usize).div_ceil(IN_A_WORD);
        Self { words: std::iter::repeat_with(AtomicU64::default).take(posts * per_post).collect(), per_post }
    }

    /// The user is in the set from this region, or not in it. Each pair has one writer at a time.
    pub(super) fn say(&self, post: usize, user: u32, region: Option<usize>) {
        let (word, shift) = self.place(post, user);
        word.fetch_and(!(3 << shift), Ordering::Relaxed);
        let bits = region.map_or(0, |region| region as u64 + 1);
        word.fetch_or(bits << shift, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, post: usize, user: u32) -> bool {
        self.region(post, user).is_some()
    }

    /// The index of the region that the user is in the set from.
    pub(crate) fn region(&self, post: usize, user: u32) -> Option<usize> {
        let (word, shift) = self.place(post, user);
        let bits = word.load(Ordering::Relaxed) >> shift & 3;
        usize::try_from(bits.checked_sub(1)?).ok()
    }

    pub(crate) fn count(&self, post: usize) -> u64 {
        Self::ones(&self.words[post * self.per_post..(post + 1) * self.per_post])
    }

    /// How many of them from one region.
    pub(crate) fn count_from(&self, post: usize, region: usize) -> u64 {
        let bits = region as u64 + 1;
        let words = &self.words[post * self.per_post..(post + 1) * self.per_post];
        let found = words.iter().map(|word| {
            // A pair that is the region's has 0 in both bits here.
            let other = word.load(Ordering::Relaxed) ^ (LOW * bits);
            u64::from((!(other | other >> 1) & LOW).count_ones())
        });
        found.sum()
    }

    pub(crate) fn total(&self) -> u64 {
        Self::ones(&self.words)
    }

    fn ones(words: &[AtomicU64]) -> u64 {
        let ones = |word: u64| u64::from(((word | word >> 1) & LOW).count_ones());
        words.iter().map(|word| ones(word.load(Ordering::Relaxed))).sum()
    }

    fn place(&self, post: usize, user: u32) -> (&AtomicU64, usize) {
        let user = user as usize;
        (&self.words[post * self.per_post + user / IN_A_WORD], user % IN_A_WORD * 2)
    }
}

/// Members of one lane that stand, at most: what is beyond is taken back, so that a load can run for days.
pub(crate) const LIVE: usize = 32;

/// By lane, the members that were acknowledged and not taken back: a member's number, and its post or hashtag. One that is not
/// here has no row.
#[derive(Debug)]
pub(crate) struct Standing(Vec<Mutex<BTreeMap<u64, usize>>>);

impl Standing {
    /// Without any.
    pub(super) fn new(lanes: u32) -> Self {
        Self((0..lanes).map(|_| Mutex::default()).collect())
    }

    pub(super) fn say(&self, subject: usize, made: Made, direction: Direction) {
        let Some(lane) = self.0.get(made.lane as usize) else { return };
        match direction {
            Direction::Add => lane.lock().insert(made.nth, subject),
            Direction::Remove => lane.lock().remove(&made.nth),
        };
    }

    /// Those of a lane that stand, in the order in which they were said: number and subject.
    pub(crate) fn live(&self, lane: u32) -> Vec<(u64, usize)> {
        let lane = self.0.get(lane as usize).map(Mutex::lock);
        lane.map(|live| live.iter().map(|(nth, subject)| (*nth, *subject)).collect()).unwrap_or_default()
    }

    /// Every one that stands, with its subject.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Made, usize)> {
        (0..)
            .zip(&self.0)
            .flat_map(|(lane, _)| self.live(lane).into_iter().map(move |(nth, subject)| (Made { lane, nth }, subject)))
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|lane| lane.lock().len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn an_event_changes_its_own_counter_alone() {
        let ledger = Ledger::new(Names::new(2, 3, 0, None));
        let add = Direction::Add;
        let made = Made { lane: 1, nth: 0 };
        for (counted, deed) in [
            (Counted::Likes, Deed::User { user: 2, direction: add }),
            (Counted::Retweets, Deed::User { user: 1, direction: add }),
            (Counted::Replies, Deed::Made { made, direction: add }),
            (Counted::Views, Deed::View { amount: 7 }),
            (Counted::Uses, Deed::Made { made, direction: add }),
        ] {
            ledger.acknowledged(Event { counted, subject: 1, region: 2, deed });
        }
        assert_eq!((ledger.likes.region(1, 2), ledger.likes.total()), (Some(2), 1));
        assert_eq!((ledger.retweets.has(1, 1), ledger.retweets.total()), (true, 1));
        assert_eq!(
            (ledger.made(Counted::Replies).live(1), ledger.made(Counted::Uses).live(1)),
            (vec![(0, 1)], vec![(0, 1)])
        );
        assert_eq!((ledger.views.of(1), ledger.views.of(0)), (Amount { known: 7, open: 0 }, Amount::default()));
        assert_eq!((ledger.rows(), ledger.events()), (4, 5));
    }

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

    #[test]
    fn it_equals_the_fold_of_what_was_said() {
        let (posts, users) = (3, 130);
        let (pairs, mut fold) = (Pairs::new(posts, users), BTreeMap::new());
        let mut draw = StdRng::seed_from_u64(5);
        for _ in 0..5_000 {
            let (post, user) = (draw.random_range(0..posts), draw.random_range(0..users));
            let region = draw.random_bool(0.6).then(|| draw.random_range(0..3));
            pairs.say(post, user, region);
            fold.insert((post, user), region);
        }
        for post in 0..posts {
            let from = |user: &u32| fold.get(&(post, *user)).copied().flatten();
            assert!((0..users).all(|user| pairs.region(post, user) == from(&user)));
            assert!((0..users).all(|user| pairs.has(post, user) == from(&user).is_some()));
            assert_eq!(pairs.count(post), (0..users).filter_map(|user| from(&user)).count() as u64);
            for region in 0..3 {
                let of_region = (0..users).filter(|user| from(user) == Some(region)).count();
                assert_eq!(pairs.count_from(post, region), of_region as u64);
            }
        }
        assert_eq!(pairs.total(), fold.values().flatten().count() as u64);
    }

    #[test]
    fn a_member_stands_until_it_is_taken_back() {
        let standing = Standing::new(2);
        let of = |lane, nth| Made { lane, nth };
        for (subject, made) in [(4, of(0, 0)), (5, of(1, 0)), (6, of(0, 1))] {
            standing.say(subject, made, Direction::Add);
            standing.say(subject, made, Direction::Add);
        }
        standing.say(4, of(0, 0), Direction::Remove);
        assert_eq!(standing.all().collect::<Vec<_>>(), [(of(0, 1), 6), (of(1, 0), 5)]);
        assert_eq!((standing.total(), standing.live(0)), (2, vec![(1, 6)]));
    }
}
