//! Counts against rows, and against what was said, when all is quiet.

use std::collections::BTreeMap;

use anyhow::ensure;
use tally_adapters::dynamodb::ScannedRow;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey, ShardCount};

/// Rows and counters when nothing is on its way.
pub(crate) struct Quiet<'a> {
    /// What the rows of each row key weigh.
    pub(crate) rows: &'a BTreeMap<RowKey, i64>,
    pub(crate) counters: &'a BTreeMap<CounterId, Counter>,
}

impl Quiet<'_> {
    /// Every row key with its rows and what is counted of it.
    fn keys(&self) -> impl Iterator<Item = (RowKey, i64, i64)> {
        self.counters.iter().flat_map(move |(id, counter)| {
            ShardCount::MAX.all().map(move |shard| {
                let key = RowKey { counter: id.clone(), shard };
                let rows = self.rows.get(&key).copied().unwrap_or(0);
                (key, rows, counter.part(shard))
            })
        })
    }
}

/// Every count is its rows, and nothing in it says otherwise.
pub(crate) fn exact(quiet: &Quiet<'_>) -> anyhow::Result<()> {
    for (key, rows, counted) in quiet.keys() {
        ensure!(
            counted == rows,
            "{key} has {rows} rows, and {counted} are counted: {:?}",
            quiet.counters[&key.counter]
        );
    }
    for (id, counter) in quiet.counters {
        let is_sound = counter.adds_up() && counter.doubt.is_empty();
        let is_possible = counter.likes >= 0 || id.name.kind() == CounterKind::Sum;
        ensure!(is_sound && is_possible, "the counter of {id} says that it may be wrong: {counter:?}");
    }
    Ok(())
}

/// Where nothing was lost, a count is its rows before any recount, too, unless it was changed by hand or says that it is in doubt.
pub(crate) fn held(quiet: &Quiet<'_>, is_edited: impl Fn(&RowKey) -> bool) -> anyhow::Result<()> {
    let is_doubted = |key: &RowKey| quiet.counters.get(&key.counter).is_some_and(|it| it.doubt.contains(&key.shard));
    for (key, rows, counted) in quiet.keys().filter(|(key, ..)| !is_edited(key) && !is_doubted(key)) {
        ensure!(
            counted == rows,
            "{key} has {rows} rows, nobody has changed it by hand, and {counted} are counted: {:?}",
            quiet.counters[&key.counter]
        );
    }
    Ok(())
}

/// Every count is what was said, without a look at the rows.
pub(crate) fn said(quiet: &Quiet<'_>, totals: &BTreeMap<CounterId, i64>) -> anyhow::Result<()> {
    for (id, counter) in quiet.counters {
        let total = totals.get(id).copied().unwrap_or(0);
        ensure!(counter.likes == total, "{id} is counted as {}, and what was said comes to {total}", counter.likes);
    }
    let uncounted = totals.iter().find(|(id, total)| **total != 0 && !quiet.counters.contains_key(id));
    ensure!(uncounted.is_none(), "{uncounted:?} was said, and there is no such counter");
    Ok(())
}

/// What the rows of each row key weigh.
pub(crate) fn weights(rows: &[ScannedRow]) -> BTreeMap<RowKey, i64> {
    let mut weighed = BTreeMap::new();
    for row in rows {
        if let (Ok(key), Some(weight)) = (row.pk.parse::<RowKey>(), row.weight()) {
            *weighed.entry(key).or_default() += weight.get();
        }
    }
    weighed
}
