//! Draws the events that are produced during an attack, and keeps account of them: from this ledger follow the rows and
//! sums that the pipeline must end with. An event whose acknowledgement was lost may be in Kafka or not, and both
//! results are accepted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use tally_core::definitions::{Definitions, Direction};
use tally_core::event::{Said, encode};
use tally_core::ids::{CounterId, PostId, ReservedKey, RowKey, ShardCount, UserId};
use tally_core::time::UnixMillis;
use tally_service::Chance;

use crate::simulation::Draws;
use crate::simulation::events::{Crowd, TOPIC, entries};

/// The time of the first event; each later one happens a millisecond later.
const FIRST: u64 = 1_700_000_000_000;

/// Few posts and few users, so that most events change the result of earlier ones and a recount has few row keys to read.
pub(crate) const CROWD: Crowd = Crowd { posts: 5, users: 120, hot: 15, unlikes: 35 };

/// The default share of events that add to a sum, in percent.
pub(crate) const AMOUNTS: u64 = 50;

const SETS: [&str; 3] = ["likes", "retweets", "replies"];
const SUM: &str = "views";

/// The weight of each row, by its partition key and sort key.
pub(crate) type Weights = BTreeMap<(String, String), i64>;

/// A member of a set.
type Place = (CounterId, String);

/// The counters of every post: likes, retweets, replies and views.
pub(crate) fn definitions() -> Definitions {
    Definitions::new(&entries()[..3]).expect("they are well formed")
}

/// An event on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Unsent {
    /// The Kafka key. An amount has none and may go to any partition.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
    /// The amount that it adds to a sum. Such an event must not be repeated, while one of a set may be.
    amount: Option<(CounterId, i64)>,
}

impl Unsent {
    /// Whether the log may contain it twice.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.amount.is_none()
    }
}

/// All events: the last one of each member, the sum in each partition, and the end of each partition's log.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) crowd: Crowd,
    /// The share of events that add to a sum, in percent.
    amounts: u64,
    chance: Chance,
    definitions: Definitions,
    /// The number of events.
    pub(crate) said: u64,
    last: BTreeMap<Place, Option<UnixMillis>>,
    /// The acknowledged amounts of each sum, by partition.
    sums: BTreeMap<(CounterId, u32), i64>,
    /// Amounts without an acknowledgement. Each may or may not be in the log, and is not sent again.
    doubtful: BTreeMap<CounterId, Vec<i64>>,
    /// The end of each partition's log.
    pub(crate) ends: BTreeMap<u32, u64>,
}

impl Ledger {
    /// An empty ledger for events of the [definitions].
    pub(crate) fn new(crowd: Crowd, amounts: u64, chance: Chance) -> Self {
        Self {
            crowd,
            amounts,
            chance,
            definitions: definitions(),
            said: 0,
            last: BTreeMap::new(),
            sums: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            ends: BTreeMap::new(),
        }
    }

    /// Creates the next event. One of a set counts from now on, and one of a sum once it is acknowledged.
    pub(crate) fn next_event(&mut self) -> Unsent {
        let Self { crowd, amounts, chance, definitions, .. } = self;
        let (post, user, direction) = crowd.draw(chance);
        let at = UnixMillis(FIRST + self.said);
        self.said += 1;
        let is_sum = chance.happens(*amounts);
        let name = if is_sum { SUM } else { chance.pick(&SETS) };
        let definition = definitions.named(name).expect("it is defined");
        let counter = CounterId { post, name: definition.name.clone() };
        let n = u32::try_from(1 + chance.below(50)).expect("an amount is small");
        let direction = if is_sum { Direction::Add } else { direction };
        let said = if is_sum { Said::Amount(n) } else { Said::Member(&user) };
        let value = encode(definition, &counter.post, direction, said, None, at).expect("it has that action");
        if is_sum {
            return Unsent { key: None, value, amount: Some((counter, i64::from(n))) };
        }
        let key = Some(counter.post.as_bytes().to_vec());
        let since = (direction == Direction::Add).then_some(at);
        self.last.insert((counter, user.as_str().to_owned()), since);
        Unsent { key, value, amount: None }
    }

    /// Creates a like of a post outside of the crowd.
    pub(crate) fn like(&mut self, post: &PostId, user: &UserId) -> Unsent {
        let counter = CounterId::likes(post.clone());
        let at = UnixMillis(FIRST + self.said);
        self.said += 1;
        let definition = self.definitions.named("likes").expect("every deployment has likes");
        let value = encode(definition, post, Direction::Add, Said::Member(user), None, at).expect("it has that action");
        self.last.insert((counter, user.as_str().to_owned()), Some(at));
        Unsent { key: Some(post.as_bytes().to_vec()), value, amount: None }
    }

    /// The event was acknowledged at this position of the log.
    pub(crate) fn written(&mut self, unsent: &Unsent, partition: u32, offset: u64) {
        let end = self.ends.entry(partition).or_default();
        *end = (*end).max(offset + 1);
        if let Some((counter, n)) = &unsent.amount {
            *self.sums.entry((counter.clone(), partition)).or_default() += n;
        }
    }

    /// It is not known whether the log has the event.
    pub(crate) fn unacknowledged(&mut self, unsent: &Unsent) {
        if let Some((counter, n)) = &unsent.amount {
            self.doubtful.entry(counter.clone()).or_default().push(*n);
        }
    }

    /// When the last event put a member into a set, unless it took the member out.
    pub(crate) fn since(&self, counter: &CounterId, member: &str) -> Option<UnixMillis> {
        self.last.get(&(counter.clone(), member.to_owned())).copied().flatten()
    }

    /// The number of amounts that may or may not be in the log.
    pub(crate) fn doubtful(&self) -> usize {
        self.doubtful.values().map(Vec::len).sum()
    }

    /// The rows without amounts that may or may not be in the log.
    fn rows(&self, shards: ShardCount) -> Weights {
        let row = |(counter, member): &Place| (RowKey::of(counter, member, shards).to_string(), member.clone());
        let cells = self.sums.iter().map(|((counter, partition), n)| (cell(counter, *partition, shards), *n));
        let members = self.last.iter().filter(|(_, since)| since.is_some());
        members.map(|(place, _)| (row(place), 1)).chain(cells).collect()
    }

    /// Checks the rows: each member's is in its shard, and each cell has the acknowledged amounts of its partition. A sum may
    /// include some of its unacknowledged amounts.
    pub(crate) fn is_in(&self, found: &Weights, shards: ShardCount) -> anyhow::Result<()> {
        let mut expected = self.rows(shards);
        let mut spare: BTreeMap<CounterId, i64> = BTreeMap::new();
        for (row, weight) in found {
            let said = expected.remove(row).unwrap_or(0);
            let counter = row.0.parse::<RowKey>()?.counter;
            let doubted = self.doubtful.contains_key(&counter);
            ensure!(*weight == said || doubted, "{row:?} weighs {weight} instead of {said}");
            *spare.entry(counter).or_default() += weight - said;
        }
        ensure!(expected.is_empty(), "a row is missing: {:?}", expected.first_key_value());
        for (counter, n) in spare {
            let doubtful = self.doubtful.get(&counter).map_or(&[][..], Vec::as_slice);
            ensure!(
                totals(doubtful).contains(&n),
                "{counter} has {n} more than expected, which no subset of the unacknowledged {doubtful:?} explains"
            );
        }
        Ok(())
    }
}

/// The key of a partition's cell.
fn cell(counter: &CounterId, partition: u32, shards: ShardCount) -> (String, String) {
    let sort = ReservedKey::Cell { topic: TOPIC, partition }.to_string();
    (RowKey::of_cell(counter, partition, shards).to_string(), sort)
}

/// Every sum that a subset of `amounts` can have.
fn totals(amounts: &[i64]) -> BTreeSet<i64> {
    let with = |totals: BTreeSet<i64>, n| totals.iter().flat_map(|total| [*total, total + n]).collect();
    amounts.iter().fold([0].into(), with)
}

/// Every counter that can exist for these posts.
pub(crate) fn all_counters(crowd: Crowd, of: &Definitions) -> impl Iterator<Item = CounterId> + use<> {
    crowd.counters(of.iter().map(|definition| definition.name.clone()).collect())
}

/// The number of records before `ends` that are not finished.
pub(crate) fn behind(ends: &BTreeMap<u32, u64>, finished: &BTreeMap<u32, u64>) -> u64 {
    ends.iter().map(|(partition, end)| end.saturating_sub(finished.get(partition).copied().unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARDS: ShardCount = ShardCount::DEFAULT;

    #[test]
    fn rows_are_exactly_the_events_except_for_amounts_without_an_acknowledgement() {
        let mut ledger = Ledger::new(CROWD, AMOUNTS, Chance::seeded(1));
        let said: Vec<Unsent> = (0..600).map(|_| ledger.next_event()).collect();
        for (unsent, partition) in said.iter().zip((0..12).cycle()) {
            ledger.written(unsent, partition, 0);
        }
        let rows = ledger.rows(SHARDS);
        let name = |(pk, _): &(String, String)| pk.parse::<RowKey>().unwrap().counter.name.to_string();
        assert_eq!(
            rows.keys().map(name).collect::<BTreeSet<_>>(),
            [SUM, "likes", "retweets", "replies"].map(str::to_owned).into()
        );
        ledger.is_in(&rows, SHARDS).unwrap();
        for row in rows.keys() {
            let mut wrong = rows.clone();
            *wrong.get_mut(row).unwrap() += 1;
            assert!(ledger.is_in(&wrong, SHARDS).is_err(), "{row:?} is one too many");
            wrong.remove(row);
            assert!(ledger.is_in(&wrong, SHARDS).is_err(), "{row:?} is missing");
        }
        let doubtful = said.iter().find(|unsent| !unsent.may_be_repeated()).unwrap();
        ledger.unacknowledged(doubtful);
        let (counter, amount) = doubtful.amount.clone().unwrap();
        for (more, holds) in [(0, true), (amount, true), (amount + 1, false)] {
            let mut rows = rows.clone();
            *rows.entry(cell(&counter, 3, SHARDS)).or_default() += more;
            assert_eq!(ledger.is_in(&rows, SHARDS).is_ok(), holds, "{more} more");
        }
    }

    #[test]
    fn the_lag_is_the_number_of_unfinished_records() {
        let mut ledger = Ledger::new(CROWD, AMOUNTS, Chance::seeded(1));
        let unsent = ledger.next_event();
        for (partition, offset) in [(0, 0), (1, 4), (0, 1), (1, 3)] {
            ledger.written(&unsent, partition, offset);
        }
        assert_eq!(ledger.ends, [(0, 2), (1, 5)].into());
        let lag = |finished: &[(u32, u64)]| behind(&ledger.ends, &finished.iter().copied().collect());
        assert_eq!([lag(&[]), lag(&[(0, 2), (1, 4)]), lag(&[(0, 9), (1, 9)])], [7, 1, 0]);
    }
}
