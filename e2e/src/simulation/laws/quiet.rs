//! Counts against rows, and against what was said, when all is quiet.

use std::collections::BTreeMap;

use anyhow::ensure;
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, RowKey, ShardCount};

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
                (key, rows, counter.shards.get(&shard).map_or(0, |tally| tally.rows))
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
        ensure!(counter.is_sound_as(id.name.kind()), "the counter of {id} says that it may be wrong: {counter:?}");
    }
    Ok(())
}

/// Where nothing of the stream was lost, a count differs from its rows by what was done to it by hand and by what
/// recounts have added, and by nothing else.
pub(crate) fn held(quiet: &Quiet<'_>, changes: &BTreeMap<RowKey, i64>) -> anyhow::Result<()> {
    for (key, rows, counted) in quiet.keys() {
        let change = changes.get(&key).copied().unwrap_or(0);
        ensure!(
            counted == rows + change,
            "{key} has {rows} rows and was changed by {change}, and {counted} are counted: {:?}",
            quiet.counters[&key.counter]
        );
    }
    Ok(())
}

/// Every count is what was said, without a look at the rows.
pub(crate) fn said(quiet: &Quiet<'_>, totals: &BTreeMap<&CounterId, i64>) -> anyhow::Result<()> {
    for (id, counter) in quiet.counters {
        let total = totals.get(id).copied().unwrap_or(0);
        ensure!(counter.likes == total, "{id} is counted as {}, and what was said comes to {total}", counter.likes);
    }
    let uncounted = totals.iter().find(|(id, total)| **total != 0 && !quiet.counters.contains_key(*id));
    ensure!(uncounted.is_none(), "{uncounted:?} was said, and there is no such counter");
    Ok(())
}
