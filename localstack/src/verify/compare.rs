//! The comparison: the load's ledger, the rows, the counters and the API's answers.

use std::collections::{BTreeMap, BTreeSet};

use tally_core::counter::Counter;
use tally_core::ids::{CounterId, RowKey, Shard, ShardCount};
use tally_core::ports::ScannedRow;
use tally_core::weight::Weight;

use crate::ledger::Ledger;
use crate::names::Names;

/// Differences listed one by one; beyond them only their number is kept.
const LISTED: usize = 20;

/// The likes table as it was read.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    counters: BTreeMap<CounterId, CounterRows>,
    total: u64,
    astray: Differences,
}

/// The rows of one counter.
#[derive(Debug, Default)]
struct CounterRows {
    shards: BTreeMap<Shard, i64>,
    /// Those of the load's users.
    users: BTreeSet<u32>,
}

impl CounterRows {
    fn total(&self) -> i64 {
        self.shards.values().sum()
    }
}

impl Rows {
    pub(crate) fn take(&mut self, row: &ScannedRow, names: &Names, shards: ShardCount) {
        self.total += 1;
        let key: RowKey = match row.pk.parse() {
            Ok(key) => key,
            Err(error) => return self.astray.add(|| format!("row {:?}: {error}", row.pk)),
        };
        let home = shards.shard_of(&row.sort);
        if key.shard != home {
            self.astray.add(|| format!("row of {:?} in {:?}: belongs in shard {home}", row.sort, row.pk));
        }
        let counter = self.counters.entry(key.counter).or_default();
        *counter.shards.entry(key.shard).or_default() += row.weight().map_or(0, Weight::get);
        counter.users.extend(names.user_index(&row.sort));
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// What differs, and how often.
#[derive(Clone, Debug, Default)]
pub(crate) struct Differences {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) listed: Vec<String>,
}

impl Differences {
    pub(crate) fn add(&mut self, what: impl FnOnce() -> String) {
        self.count += 1;
        if self.listed.len() < LISTED {
            self.listed.push(what());
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.count += other.count;
        self.listed.extend(other.listed);
        self.listed.truncate(LISTED);
    }
}

/// Compares the rows of the load's users with the ledger, pair by pair.
pub(crate) fn rows_with_ledger(rows: &Rows, ledger: &Ledger) -> Differences {
    let (names, no_users) = (ledger.names(), BTreeSet::new());
    let mut differences = rows.astray.clone();
    for (index, post) in names.posts().iter().enumerate() {
        let liking = rows.counters.get(&CounterId::likes(post.clone())).map_or(&no_users, |counter| &counter.users);
        for user in 0..names.users() {
            let (said, row) = (ledger.likes(index, user), liking.contains(&user));
            if said != row {
                let (said, row) = if said { ("a like", "no row") } else { ("no like", "a row") };
                differences.add(|| format!("{} of {post}: {said} was said last, and there is {row}", names.user(user)));
            }
        }
    }
    differences
}

/// Compares every counter with the rows, those of other users included: each shard, and the total.
pub(crate) fn counters_with_rows(counters: &BTreeMap<CounterId, Counter>, rows: &Rows) -> Differences {
    let mut differences = Differences::default();
    let (no_rows, no_counter) = (CounterRows::default(), Counter::default());
    for id in rows.counters.keys().chain(counters.keys()).collect::<BTreeSet<_>>() {
        let (found, counter) = (rows.counters.get(id).unwrap_or(&no_rows), counters.get(id).unwrap_or(&no_counter));
        for shard in found.shards.keys().chain(counter.shards.keys()).collect::<BTreeSet<_>>() {
            let there = found.shards.get(shard).copied().unwrap_or(0);
            let counted = counter.shards.get(shard).map_or(0, |tally| tally.rows);
            if there != counted {
                differences.add(|| format!("{id}#{shard}: {there} rows, counted {counted}"));
            }
        }
        if counter.likes != found.total() {
            differences.add(|| format!("{id}: {} rows, a total of {}", found.total(), counter.likes));
        }
    }
    differences
}

/// Compares what the API answers with the rows.
pub(crate) fn served_with_rows(served: &BTreeMap<CounterId, u64>, rows: &Rows) -> Differences {
    let mut differences = Differences::default();
    for (id, shown) in served {
        let there = rows.counters.get(id).map_or(0, CounterRows::total);
        if i64::try_from(*shown) != Ok(there) {
            differences.add(|| format!("{id}: {there} rows, the API answers {shown}"));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use tally_core::counter::ShardTally;
    use tally_core::event::Action;
    use tally_core::weight::Stated;

    use super::*;

    struct World {
        ledger: Ledger,
        rows: Rows,
        counters: BTreeMap<CounterId, Counter>,
    }

    fn row(pk: String, user: &str) -> ScannedRow {
        ScannedRow { pk, sort: user.to_owned(), stated: Stated::Nothing }
    }

    fn likes(names: &Names, post: usize) -> CounterId {
        CounterId::likes(names.posts()[post].clone())
    }

    /// Every third of 30 users likes the first of two posts, and a stranger does.
    fn world() -> World {
        let (ledger, mut rows) = (Ledger::new(Names::new(2, 30, 1, None)), Rows::default());
        let names = ledger.names();
        let (shards, post) = (ShardCount::DEFAULT, names.posts()[0].clone());
        let mut counter = Counter::default();
        let users = (0..30).step_by(3).map(|user| names.user(user).to_string()).chain(["stranger".to_owned()]);
        for user in users {
            let shard = shards.shard_of(&user);
            rows.take(&row(format!("{post}#{shard}"), &user), names, shards);
            counter.shards.entry(shard).or_insert_with(ShardTally::default).rows += 1;
            counter.likes += 1;
        }
        (0..30).step_by(3).for_each(|user| ledger.acknowledged(0, user, Action::Like));
        World { rows, counters: BTreeMap::from([(CounterId::likes(post), counter)]), ledger }
    }

    #[test]
    fn what_agrees_has_no_differences_and_strangers_are_counted_too() {
        let World { ledger, rows, counters } = world();
        let names = ledger.names();
        assert_eq!(rows_with_ledger(&rows, &ledger).count, 0);
        assert_eq!(counters_with_rows(&counters, &rows).count, 0);
        let served = BTreeMap::from([(likes(names, 0), 11), (likes(names, 1), 0)]);
        assert_eq!((served_with_rows(&served, &rows).count, rows.total()), (0, 11));
    }

    #[test]
    fn a_lost_row_and_one_that_should_be_gone_are_found() {
        let World { ledger, rows, .. } = world();
        ledger.acknowledged(1, 5, Action::Like);
        ledger.acknowledged(0, 3, Action::Unlike);
        let found = rows_with_ledger(&rows, &ledger);
        let expected = [
            "user-4 of post-1: no like was said last, and there is a row",
            "user-6 of post-2: a like was said last, and there is no row",
        ];
        assert_eq!((found.count, found.listed), (2, expected.map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_count_off_by_one_is_found_in_its_shard_in_the_total_and_in_the_answer() {
        let World { ledger, rows, mut counters } = world();
        let names = ledger.names();
        let counter = counters.get_mut(&likes(names, 0)).unwrap();
        counter.likes += 1;
        assert_eq!(counters_with_rows(&counters, &rows).listed, ["post-1: 11 rows, a total of 12"]);
        let counter = counters.get_mut(&likes(names, 0)).unwrap();
        counter.shards.first_entry().unwrap().get_mut().rows += 1;
        assert_eq!(counters_with_rows(&counters, &rows).count, 2);
        assert_eq!(
            counters_with_rows(&BTreeMap::new(), &rows).count,
            1 + counters[&likes(names, 0)].shards.len() as u64
        );
        let served = BTreeMap::from([(likes(names, 0), 12)]);
        assert_eq!(served_with_rows(&served, &rows).listed, ["post-1: 11 rows, the API answers 12"]);
    }

    #[test]
    fn a_row_that_stands_where_it_should_not_is_a_difference_and_long_lists_are_cut() {
        let World { ledger, mut rows, .. } = world();
        let names = ledger.names();
        let shards = ShardCount::DEFAULT;
        let user = "stranger";
        let elsewhere = (shards.shard_of(user).index() + 1) % 16;
        rows.take(&row(format!("post-1#{elsewhere}"), user), names, shards);
        rows.take(&row("torn".to_owned(), user), names, shards);
        assert_eq!(rows_with_ledger(&rows, &ledger).count, 2);
        (0..30).for_each(|user| ledger.acknowledged(1, user, Action::Like));
        let found = rows_with_ledger(&rows, &ledger);
        assert_eq!((found.count, found.listed.len()), (32, LISTED));
    }
}
