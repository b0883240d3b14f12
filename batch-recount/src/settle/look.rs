//! One look of a recount at many row keys, each the partition key of the rows of one shard of a counter: reads their
//! rows, puts a *marker* beside each (an item that shows in the log how far the stream is), follows the log until it
//! has the markers, and compares the rows with the counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::stream::TryStreamExt;
use tally_adapters::dynamodb::{Consistency, Cursor, PUTS};
use tally_core::Map;
use tally_core::audit::{Cause, Drift};
use tally_core::changes::{Amend, Correction, Entry, Place};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey};
use tally_core::ports::Outcome;
use tally_core::recount::Key;

use super::Recount;
use super::tails::Tails;
use crate::calls::at_once;

/// How many row keys' rows are read at once: few, so that the writes of markers need not wait behind many reads.
const READS: usize = 16;
/// How many batches of markers or of ledger lines are put at once.
pub(super) const WRITES: usize = 16;

/// What a look has found.
pub(super) struct Looked {
    pub(super) found: Vec<(RowKey, Found)>,
    /// Row keys that there was no room for.
    pub(super) deferred: Vec<RowKey>,
}

/// What a look has found of one row key.
#[derive(Debug)]
pub(super) enum Found {
    /// The counter has what the rows have.
    Equal,
    /// It does, but the weight of a row cannot be read, which the counter says.
    Doubtful,
    /// The counter has something else: the correction that this row key needs, and what differs.
    Differs(Correction, Drift),
    /// The total is not the sum of its parts. The correction of another row key sets that right.
    Waits,
    /// The counter's item cannot be read.
    Unreadable(String),
    /// The look proves nothing, for this reason.
    Void(&'static str),
}

/// The tails of the log, and the row keys with what is known of them.
type Keys<'a> = Tails<'a, Map<RowKey, Key>>;

impl Recount {
    /// Looks at row keys. A dry run puts no markers: it waits until the log has all changes up to a time by this
    /// machine's clock.
    pub(super) async fn look(&self, keys: Vec<RowKey>) -> anyhow::Result<Looked> {
        let partitions: BTreeSet<u32> = keys.iter().map(|key| self.partition(key)).collect();
        let take = |keys: &mut Map<RowKey, Key>, at, entry: &Entry| {
            if let Some(key) = keys.get_mut(&entry.key) {
                key.entry(at, entry);
            }
        };
        let mut tails = Tails::begin(self, &partitions, Map::default(), take).await?;
        let deferred = self.read_rows(keys, &mut tails).await?;
        let until = self.calls.now().plus(self.rules.guard);
        self.calls.wait(self.rules.guard).await?;
        if !self.rules.dry_run {
            self.mark_all(&mut tails.taken).await?;
        }
        // A loss that was announced meanwhile voids the look.
        let is_void = |tails: &Keys<'_>, key: &Key| !tails.reached(key.id()).is_whole;
        // Everything that happened to the row key before its rows were read is in the tail.
        let is_complete = |tails: &Keys<'_>, key: &Key| match self.rules.dry_run {
            true => tails.reached(key.id()).as_of >= Some(until),
            false => key.is_complete(),
        };
        tails.follow(|tails| tails.taken.values().all(|key| is_void(tails, key) || is_complete(tails, key))).await?;
        // Everything before these places is in the counters, which are read next.
        let passed = self.folds().await?;
        let counters = self.counters(tails.taken.keys()).await?;
        let passed = |key: &Key| passed.get(&self.partition(key.id())).copied().unwrap_or_default();
        let reaches = |tails: &Keys<'_>, key: &Key| {
            let counter = counters.get(&key.id().counter).and_then(|counter| counter.as_ref().ok());
            tails.reached(key.id()).place
                >= counter.map_or(Place::default(), |counter| counter.version).max(passed(key))
        };
        tails.follow(|tails| tails.taken.values().all(|key| is_void(tails, key) || reaches(tails, key))).await?;
        let found = tails.taken.values().map(|key| {
            let found = if is_void(&tails, key) {
                Found::Void("a loss was announced, or a part of the log is gone")
            } else if !is_complete(&tails, key) {
                Found::Void("the log does not come up to the rows")
            } else if !reaches(&tails, key) {
                Found::Void("the log does not come up to the counter")
            } else {
                compared(key, counters.get(&key.id().counter), passed(key))
            };
            (key.id().clone(), found)
        });
        Ok(Looked { found: once_for_each_total(found.collect()), deferred })
    }

    /// Reads rows while there is room for them. Returns the row keys that there was no room for.
    async fn read_rows(&self, keys: Vec<RowKey>, tails: &mut Keys<'_>) -> anyhow::Result<Vec<RowKey>> {
        let (held, losses) = (AtomicUsize::new(0), &*tails);
        let rows = |key: RowKey| {
            let (held, mut read) = (&held, Key::new(key.clone(), losses.loss(&key)));
            async move {
                if held.load(Ordering::Relaxed) >= self.rules.rows {
                    return anyhow::Ok(Err(key));
                }
                let (rows, key) = (&self.ports.rows, &key);
                let page = |after: Option<Cursor>| async move { rows.weights(key, after.as_ref()).await };
                let mut pages = self.calls.pages("read rows", page);
                while let Some(page) = pages.try_next().await? {
                    held.fetch_add(page.len(), Ordering::Relaxed);
                    page.into_iter().for_each(|(member, weight)| read.row(member, weight));
                }
                Ok(Ok(read))
            }
            .boxed()
        };
        let (mut read, mut deferred) = (Map::default(), Vec::new());
        for rows in at_once(READS, keys.into_iter().map(rows)).await? {
            match rows {
                Ok(key) => _ = read.insert(key.id().clone(), key),
                Err(key) => deferred.push(key),
            }
        }
        tails.taken = read;
        Ok(deferred)
    }

    async fn mark_all(&self, keys: &mut Map<RowKey, Key>) -> anyhow::Result<()> {
        let marker = |key: &mut Key| {
            let nonce = self.nonce();
            key.marked(nonce);
            (key.id().clone(), nonce)
        };
        let markers: Vec<_> = keys.values_mut().map(marker).collect();
        at_once(WRITES, markers.chunks(PUTS).map(|some| self.mark(some).boxed())).await.map(|_| ())
    }

    /// Returns the counters of row keys as they are now.
    pub(super) async fn counters(
        &self,
        keys: impl Iterator<Item = &RowKey>,
    ) -> anyhow::Result<BTreeMap<CounterId, Outcome<Counter>>> {
        let ids: BTreeSet<&CounterId> = keys.map(|key| &key.counter).collect();
        let ids: Vec<CounterId> = ids.into_iter().cloned().collect();
        self.calls.allowed().await?;
        let read = || self.ports.counters.read(&ids, Consistency::Strong);
        Ok(self.calls.read("read counters", ids.len(), read).await?.counters)
    }
}

/// Drops corrections of a total where its counter has another correction: each sets the total right.
fn once_for_each_total(mut found: Vec<(RowKey, Found)>) -> Vec<(RowKey, Found)> {
    let is_total = |found: &Found| matches!(found, Found::Differs(_, Drift { cause: Cause::Total, .. }));
    found.sort_by_key(|(_, found)| is_total(found));
    let mut corrected = BTreeSet::new();
    for (key, found) in &mut found {
        if matches!(found, Found::Differs(..)) && !corrected.insert(key.counter.clone()) && is_total(found) {
            *found = Found::Waits;
        }
    }
    found
}

fn compared(key: &Key, counter: Option<&Outcome<Counter>>, passed: Place) -> Found {
    let (none, shard) = (Counter::default(), key.id().shard);
    let counter = match counter {
        Some(Err(fault)) => return Found::Unreadable(fault.to_string()),
        Some(Ok(counter)) => counter,
        None => &none,
    };
    let (counted, is_doubted) = (counter.part(shard), counter.doubt.contains(&shard));
    let Some(correction) = key.compare(counter, passed) else {
        return if is_doubted { Found::Doubtful } else { Found::Equal };
    };
    let add = match correction.parts[&shard] {
        Amend::Add(add) => add,
        Amend::Doubt => 0,
    };
    let rows = counted.saturating_add(add);
    let cause = if is_doubted || correction.parts[&shard] == Amend::Doubt {
        Cause::Suspect
    } else if add == 0 {
        Cause::Total
    } else if counted < 0 && key.id().counter.name.kind() == CounterKind::Set {
        Cause::Negative
    } else if !counter.parts.contains_key(&shard) {
        Cause::MissingCounter
    } else if rows == 0 {
        Cause::NoRows
    } else {
        Cause::Drift
    };
    let (before, after) = match cause {
        Cause::Total => (counter.likes, counter.parts.values().fold(0, |sum: i64, part| sum.saturating_add(*part))),
        _ => (counted, rows),
    };
    Found::Differs(correction, Drift { key: key.id().to_string(), before, after, cause })
}
