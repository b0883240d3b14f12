//! The ledger of truth: who says what, and what must have become of all of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use tally_core::definitions::{Definitions, Direction, Entry};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, CounterName, PostId, ReservedKey, RowKey, ShardCount, UserId};
use tally_core::time::UnixMillis;
use tally_service::Chance;

use crate::attack::engines::TOPIC;
use crate::simulation::Draws;
use crate::simulation::events::Crowd;

/// When the first event is said to have happened; each later one a millisecond after.
const FIRST: u64 = 1_700_000_000_000;

/// Few posts and few users, so that most events change what earlier ones did, and a recount has few row keys to prove.
pub(crate) const CROWD: Crowd = Crowd { posts: 5, users: 120, hot: 15, unlikes: 35 };

/// The share of events that add to a sum, in percent, unless it is told another.
pub(crate) const AMOUNTS: u64 = 50;

const SETS: [&str; 3] = ["likes", "retweets", "replies"];
const SUM: &str = "views";

/// Rows by their key and their sort key, and what each weighs.
pub(crate) type Weights = BTreeMap<(String, String), i64>;

/// A member of a set.
pub(crate) type Place = (CounterId, String);

/// What every post has: likes, retweets, replies and views.
pub(crate) fn definitions() -> Definitions {
    let replies = Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", Some("unreply")) };
    let entries = [Entry::set("retweets", "retweet", Some("unretweet")), replies, Entry::sum(SUM, "view", None)];
    Definitions::new(&entries).expect("they are well formed")
}

/// An event on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    /// None of an amount: it may go to any partition.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
    /// What it adds to which sum; an event of a set may be said again, and one of these may not.
    amount: Option<(CounterId, i64)>,
}

impl Saying {
    /// Whether the log may have it twice.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.amount.is_none()
    }
}

/// Everything said: the last word of each member, what each partition has of each sum, and how far the log goes.
#[derive(Debug)]
pub(crate) struct Ledger {
    crowd: Crowd,
    /// The share of events that add to a sum, in percent.
    amounts: u64,
    chance: Chance,
    definitions: Definitions,
    said: u64,
    last: BTreeMap<Place, Option<UnixMillis>>,
    /// What was acknowledged of each sum, by partition.
    sums: BTreeMap<(CounterId, u32), i64>,
    /// Amounts that were not acknowledged: each may be in the log or not, and is not said again.
    doubtful: BTreeMap<CounterId, Vec<i64>>,
    ends: BTreeMap<u32, u64>,
}

impl Ledger {
    /// Nothing was said yet, of some of the [definitions].
    pub(crate) fn new(crowd: Crowd, amounts: u64, chance: Chance, definitions: Definitions) -> Self {
        Self {
            crowd,
            amounts,
            chance,
            definitions,
            said: 0,
            last: BTreeMap::new(),
            sums: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// The next event. One of a set is taken for said, one of a sum once it is acknowledged.
    pub(crate) fn say(&mut self) -> Saying {
        let Self { crowd, amounts, chance, definitions, .. } = self;
        let (post, user, direction) = crowd.draw(chance);
        let at = UnixMillis(FIRST + self.said);
        self.said += 1;
        let is_sum = definitions.named(SUM).is_some() && chance.happens(*amounts);
        let sets = SETS.iter().take_while(|name| definitions.named(name).is_some()).count();
        let name = if is_sum { SUM } else { SETS[chance.place(sets)] };
        let definition = definitions.named(name).expect("it is defined");
        let counter = CounterId { post, name: definition.name.clone() };
        let n = u32::try_from(1 + chance.below(50)).expect("an amount is small");
        let direction = if is_sum { Direction::Add } else { direction };
        let said = if is_sum { Said::Amount(n) } else { Said::Member(&user) };
        let value = encode(definition, &counter.post, direction, said, None, at).expect("it has that action");
        if is_sum {
            return Saying { key: None, value, amount: Some((counter, i64::from(n))) };
        }
        let key = Some(counter.post.as_bytes().to_vec());
        let since = (direction == Direction::Add).then_some(at);
        self.last.insert((counter, user.as_str().to_owned()), since);
        Saying { key, value, amount: None }
    }

    /// A like of a post that the crowd does not know.
    pub(crate) fn like(&mut self, post: &PostId, user: &UserId) -> Saying {
        let counter = CounterId::likes(post.clone());
        let at = UnixMillis(FIRST + self.said);
        self.said += 1;
        let definition = self.definitions.named("likes").expect("every deployment has likes");
        let value = encode(definition, post, Direction::Add, Said::Member(user), None, at).expect("it has that action");
        self.put(counter, user, at);
        Saying { key: Some(post.as_bytes().to_vec()), value, amount: None }
    }

    /// A member's row was put by hand.
    pub(crate) fn put(&mut self, counter: CounterId, user: &UserId, since: UnixMillis) {
        self.last.insert((counter, user.as_str().to_owned()), Some(since));
    }

    /// The log has a record of it at this place.
    pub(crate) fn written(&mut self, saying: &Saying, partition: u32, offset: u64) {
        let end = self.ends.entry(partition).or_default();
        *end = (*end).max(offset + 1);
        if let Some((counter, n)) = &saying.amount {
            *self.sums.entry((counter.clone(), partition)).or_default() += n;
        }
    }

    /// Whether the log has it is not known.
    pub(crate) fn unacknowledged(&mut self, saying: &Saying) {
        if let Some((counter, n)) = &saying.amount {
            self.doubtful.entry(counter.clone()).or_default().push(*n);
        }
    }

    /// How many events were said.
    pub(crate) fn said(&self) -> u64 {
        self.said
    }

    /// Where the log of each partition ends.
    pub(crate) fn ends(&self) -> &BTreeMap<u32, u64> {
        &self.ends
    }

    /// What must have become of it.
    pub(crate) fn truth(&self) -> Truth {
        let members = self.last.iter().filter_map(|(place, since)| Some((place.clone(), (*since)?))).collect();
        Truth { crowd: self.crowd, members, sums: self.sums.clone(), doubtful: self.doubtful.clone() }
    }
}

/// What was said, at the end: who is a member since when, and what each partition has added to each sum.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    crowd: Crowd,
    pub(crate) members: BTreeMap<Place, UnixMillis>,
    sums: BTreeMap<(CounterId, u32), i64>,
    doubtful: BTreeMap<CounterId, Vec<i64>>,
}

impl Truth {
    /// Whose events they are.
    pub(crate) fn crowd(&self) -> Crowd {
        self.crowd
    }

    /// How many amounts may be in the log or not.
    pub(crate) fn doubtful(&self) -> usize {
        self.doubtful.values().map(Vec::len).sum()
    }

    /// The rows are what was said: each member's stands in its own shard, and each cell has what its partition was
    /// acknowledged. What a sum has besides is some of the amounts of which that is not known.
    pub(crate) fn is_in(&self, found: &Weights, shards: ShardCount) -> anyhow::Result<()> {
        let row = |(counter, member): &Place| (RowKey::of(counter, member, shards).to_string(), member.clone());
        let mut expected: Weights = self.members.keys().map(|place| (row(place), 1)).collect();
        expected.extend(self.sums.iter().map(|((counter, partition), n)| (cell(counter, *partition, shards), *n)));
        let mut spare: BTreeMap<CounterId, i64> = BTreeMap::new();
        for (row, weight) in found {
            let said = expected.remove(row).unwrap_or(0);
            let counter = row.0.parse::<RowKey>()?.counter;
            let doubted = self.doubtful.contains_key(&counter);
            ensure!(*weight == said || doubted, "{row:?} weighs {weight}, and {said} was said");
            *spare.entry(counter).or_default() += weight - said;
        }
        ensure!(expected.is_empty(), "a row is missing: {:?}", expected.first_key_value());
        for (counter, n) in spare {
            let doubtful = self.doubtful.get(&counter).map_or(&[][..], Vec::as_slice);
            ensure!(
                totals(doubtful).contains(&n),
                "{counter} has {n} more than was said, and of {doubtful:?} it is not known"
            );
        }
        Ok(())
    }
}

/// Where the cell of a partition stands.
fn cell(counter: &CounterId, partition: u32, shards: ShardCount) -> (String, String) {
    let sort = ReservedKey::Cell { topic: TOPIC, partition }.to_string();
    (RowKey::of_cell(counter, partition, shards).to_string(), sort)
}

/// What any of `amounts` can come to together.
fn totals(amounts: &[i64]) -> BTreeSet<i64> {
    amounts
        .iter()
        .fold([0].into(), |totals: BTreeSet<i64>, n| totals.iter().flat_map(|total| [*total, total + n]).collect())
}

/// Every counter of these that there can be.
pub(crate) fn all_counters(crowd: Crowd, of: &Definitions) -> impl Iterator<Item = CounterId> + use<> {
    let names: Vec<CounterName> = of.iter().map(|definition| definition.name.clone()).collect();
    crowd
        .all_counters()
        .flat_map(move |likes| names.clone().into_iter().map(move |name| CounterId { post: likes.post.clone(), name }))
}

/// How many records before `ends` are not finished.
pub(crate) fn behind(ends: &BTreeMap<u32, u64>, finished: &BTreeMap<u32, u64>) -> u64 {
    ends.iter().map(|(partition, end)| end.saturating_sub(finished.get(partition).copied().unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: ShardCount = ShardCount::DEFAULT;

    fn ledger(seed: u64) -> Ledger {
        Ledger::new(Crowd { posts: 3, users: 5, hot: 20, unlikes: 40 }, AMOUNTS, Chance::seeded(seed), definitions())
    }

    /// The rows that a fold of the records as they were written leaves, read by the decoder that ships.
    fn folded(said: &[(Saying, u32)]) -> Weights {
        let (definitions, mut rows) = (definitions(), Weights::new());
        for (saying, partition) in said {
            let event = tally_core::event::decode_value(Some(&saying.value), UnixMillis(0), &definitions).unwrap();
            let counter = CounterId { post: event.subject().parse().unwrap(), name: event.counter.clone() };
            match &event.deed {
                tally_core::event::Deed::Amount(n) => {
                    *rows.entry(cell(&counter, *partition, SHARDS)).or_default() += n;
                }
                tally_core::event::Deed::Member { id, present } => {
                    let row = (RowKey::of(&counter, id, SHARDS).to_string(), id.clone().into_owned());
                    if *present {
                        rows.insert(row, 1)
                    } else {
                        rows.remove(&row)
                    };
                }
            }
        }
        rows
    }

    #[test]
    fn the_truth_is_the_fold_of_the_events_as_they_were_written_and_nothing_else() {
        let mut ledger = ledger(1);
        let said: Vec<_> = (0..600).map(|n| (ledger.say(), n % 12)).collect();
        for (saying, partition) in &said {
            ledger.written(saying, *partition, 0);
        }
        let rows = folded(&said);
        let names: BTreeSet<String> =
            rows.keys().map(|(pk, _)| pk.parse::<RowKey>().unwrap().counter.name.to_string()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["likes", "replies", "retweets", "views"]);
        let truth = ledger.truth();
        truth.is_in(&rows, SHARDS).unwrap();
        assert_eq!((ledger.said(), truth.doubtful()), (600, 0));
        for row in rows.keys() {
            let mut wrong = rows.clone();
            *wrong.get_mut(row).unwrap() += 1;
            assert!(truth.is_in(&wrong, SHARDS).is_err(), "{row:?} is one too many");
            wrong.remove(row);
            assert!(truth.is_in(&wrong, SHARDS).is_err(), "{row:?} is missing");
        }
    }

    #[test]
    fn an_amount_of_unknown_outcome_may_be_there_or_not_and_no_other_may() {
        let mut ledger = ledger(2);
        let amounts: Vec<Saying> = (0..40).map(|_| ledger.say()).filter(|saying| !saying.may_be_repeated()).collect();
        let mut empty = Ledger { last: BTreeMap::new(), ..ledger };
        let (known, doubtful) = amounts.split_first().unwrap();
        empty.written(known, 3, 0);
        let doubtful =
            doubtful.iter().find(|saying| saying.amount.as_ref().unwrap().0 == known.amount.as_ref().unwrap().0);
        let doubtful = doubtful.expect("one post has two of them");
        empty.unacknowledged(doubtful);
        let truth = empty.truth();
        let n = doubtful.amount.as_ref().unwrap().1;
        let both = folded(&[(known.clone(), 3), (doubtful.clone(), 5)]);
        truth.is_in(&folded(&[(known.clone(), 3)]), SHARDS).unwrap();
        truth.is_in(&both, SHARDS).unwrap();
        let more = both.iter().map(|(row, weight)| (row.clone(), weight + n)).collect();
        assert!(truth.is_in(&more, SHARDS).is_err());
        assert!(truth.is_in(&Weights::new(), SHARDS).is_err());
    }

    #[test]
    fn what_is_behind_is_what_is_not_finished() {
        let mut ledger = ledger(1);
        let saying = ledger.say();
        for (partition, offset) in [(0, 0), (1, 4), (0, 1), (1, 3)] {
            ledger.written(&saying, partition, offset);
        }
        assert_eq!(*ledger.ends(), BTreeMap::from([(0, 2), (1, 5)]));
        assert_eq!(behind(ledger.ends(), &BTreeMap::new()), 7);
        assert_eq!(behind(ledger.ends(), &BTreeMap::from([(0, 2), (1, 4)])), 1);
        assert_eq!(behind(ledger.ends(), &BTreeMap::from([(0, 9), (1, 9)])), 0);
    }
}
