//! The likes table as it was read: the rows of each counter, and those that stand where they should not.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::dynamodb::ScannedRow;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey, Shard, ShardCount};

use super::differences::Differences;
use crate::names::{Made, Names};

#[derive(Debug, Default)]
pub(super) struct Rows {
    counters: BTreeMap<CounterId, CounterRows>,
    /// Rows that are not where they belong, or of another kind than their counter.
    pub(super) astray: Differences,
}

/// The rows of one counter.
#[derive(Debug, Default)]
pub(super) struct CounterRows {
    /// How many there are.
    pub(super) rows: u64,
    /// What those of each shard weigh.
    pub(super) shards: BTreeMap<Shard, i64>,
    /// The load's users among the members.
    pub(super) users: BTreeSet<u32>,
    /// What the load's lanes have made among them: replies, or posts with a hashtag.
    pub(super) made: BTreeSet<Made>,
}

static NONE: CounterRows =
    CounterRows { rows: 0, shards: BTreeMap::new(), users: BTreeSet::new(), made: BTreeSet::new() };

impl CounterRows {
    /// What all of them weigh.
    pub(super) fn total(&self) -> i64 {
        self.shards.values().sum()
    }
}

impl Rows {
    /// Takes a row in. A tombstone is a member that was taken back: there is nothing to compare.
    pub(super) fn take(&mut self, row: &ScannedRow, names: &Names, shards: ShardCount) {
        let ScannedRow { pk, sort, .. } = row;
        if row.gone.is_some() {
            return;
        }
        let key: RowKey = match pk.parse() {
            Ok(key) => key,
            Err(error) => return self.astray.add(|| format!("row {pk:?}: {error}")),
        };
        let (kind, home) = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { partition, .. }) => (CounterKind::Sum, shards.shard_of_cell(partition)),
            Some(_) => return,
            None => (CounterKind::Set, shards.shard_of(sort)),
        };
        if key.shard != home {
            self.astray.add(|| format!("row of {sort:?} in {pk:?}: belongs in shard {home}"));
        }
        if key.counter.name.kind() != kind {
            self.astray.add(|| format!("row of {sort:?} in {pk:?}: sums have cells alone, and sets have none"));
        }
        let Some(weight) = row.weight() else {
            return self.astray.add(|| format!("row of {sort:?} in {pk:?}: weighs nothing that can be read"));
        };
        let counter = self.counters.entry(key.counter).or_default();
        counter.rows += 1;
        *counter.shards.entry(key.shard).or_default() += weight.get();
        counter.users.extend(names.user_index(sort));
        counter.made.extend(names.made_of(sort));
    }

    /// The rows of one counter.
    pub(super) fn of(&self, id: &CounterId) -> &CounterRows {
        self.counters.get(id).unwrap_or(&NONE)
    }

    /// Every counter that has rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CounterId, &CounterRows)> {
        self.counters.iter()
    }
}

#[cfg(test)]
mod tests {
    use tally_core::weight::{Stated, Weight};

    use super::*;

    fn taken(pk: &str, sort: &str, stated: Stated) -> Rows {
        let (names, mut rows) = (Names::new(1, 1, 0, None), Rows::default());
        let row = ScannedRow { pk: pk.to_owned(), sort: sort.to_owned(), stated, gone: None };
        rows.take(&row, &names, ShardCount::DEFAULT);
        rows
    }

    #[test]
    fn a_row_that_stands_where_it_should_not_is_astray() {
        let shards = ShardCount::DEFAULT;
        let (home, five) = (shards.shard_of("u"), Stated::Amount(Weight::new(5).unwrap()));
        let elsewhere = (home.index() + 1) % shards.get();
        let cell = "\u{1}cell/likes/3";
        for (pk, sort, stated, astray) in [
            (format!("p#{home}"), "u", Stated::Nothing, 0),
            (format!("p#retweets.{home}"), "u", Stated::Nothing, 0),
            ("p#+views.3".to_owned(), cell, five, 0),
            ("torn".to_owned(), "u", Stated::Nothing, 1),
            (format!("p#{elsewhere}"), "u", Stated::Nothing, 1),
            ("p#+views.4".to_owned(), cell, five, 1),
            (format!("p#+views.{home}"), "u", Stated::Nothing, 1),
            ("p#retweets.3".to_owned(), cell, five, 1),
            ("p#+views.3".to_owned(), cell, Stated::Unreadable, 1),
        ] {
            let rows = taken(&pk, sort, stated);
            assert_eq!(rows.astray.count, astray, "{pk} {sort:?}: {:?}", rows.astray);
        }
    }

    #[test]
    fn a_tombstone_is_no_row() {
        let (names, mut rows) = (Names::new(1, 1, 0, None), Rows::default());
        let (pk, sort) = (format!("p#{}", ShardCount::DEFAULT.shard_of("u")), "u".to_owned());
        let tombstone = ScannedRow { pk, sort, stated: Stated::Amount(Weight::ABSENT), gone: Some(7) };
        rows.take(&tombstone, &names, ShardCount::DEFAULT);
        assert_eq!((rows.iter().count(), rows.astray.count), (0, 0));
    }

    #[test]
    fn a_cell_weighs_its_amount() {
        let rows = taken("p#+views.3", "\u{1}cell/likes/3", Stated::Amount(Weight::new(-5).unwrap()));
        let totals: Vec<_> = rows.iter().map(|(_, found)| (found.rows, found.total())).collect();
        assert_eq!(totals, [(1, -5)]);
    }
}
