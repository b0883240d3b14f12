//! One look at many row keys: their rows, a marker beside the rows of each, the log up to the markers, and the counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::{Consistency, PUTS};
use tally_core::Map;
use tally_core::audit::Cause;
use tally_core::changes::{Amend, Correction, Entry, Place};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey};
use tally_core::ports::Outcome;
use tally_core::recount::{Finding, Key};
use tally_core::time::UnixMillis;

use super::tails::Tails;
use super::{POLL, Recount};

/// Row keys whose rows are read at once: what is written beside them waits behind few reads.
const READS: usize = 16;
/// Batches of markers and of lines put at once.
pub(super) const WRITES: usize = 16;

/// What a look has come to.
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
    /// A weight cannot be read, which the counter says.
    Doubtful,
    /// It has something else.
    Differs {
        /// What this row key needs of a correction.
        correction: Correction,
        /// What the counter has, and what it should have: of the row key, or in all where only the total is wrong.
        before: i64,
        after: i64,
        cause: Cause,
    },
    /// The total is not the sum of its parts, which the correction of another row key sets right.
    Waits,
    /// The counter's item cannot be read.
    Unreadable(String),
    /// Nothing: why.
    Void(&'static str),
}

/// A look under way.
struct Look<'a> {
    of: &'a Recount,
    tails: Tails<'a>,
    keys: Map<RowKey, Key>,
    /// When all rows were read.
    read: UnixMillis,
}

/// Counters, and what was known before they were read.
struct Counters {
    counters: BTreeMap<CounterId, Outcome<Counter>>,
    /// Everything before these places of the partitions is in the counters.
    passed: BTreeMap<u32, Place>,
}

impl Recount {
    /// Looks at row keys. A dry run puts no markers: it waits until the log has all changes up to then, by this machine's
    /// clock.
    pub(super) async fn look(&self, keys: Vec<RowKey>) -> anyhow::Result<Looked> {
        let partitions: BTreeSet<u32> = keys.iter().map(|key| self.partition(key)).collect();
        let tails = Tails::begin(self, &partitions).await?;
        let mut look = Look { of: self, tails, keys: Map::default(), read: UnixMillis::default() };
        let deferred = look.read_rows(keys).await?;
        self.calls.wait(self.rules.guard).await?;
        if !self.rules.dry_run {
            look.mark().await?;
        }
        look.follow(Look::is_complete).await?;
        let counters = look.counters().await?;
        look.follow(|look| look.reaches(&counters)).await?;
        Ok(Looked { found: look.compare(&counters), deferred })
    }
}

impl Look<'_> {
    /// Reads the rows of the row keys, as far as there is room; those that there is none for.
    async fn read_rows(&mut self, keys: Vec<RowKey>) -> anyhow::Result<Vec<RowKey>> {
        let (held, this) = (AtomicUsize::new(0), &*self);
        let reads = stream::iter(keys).map(|key| this.rows(key, &held).boxed()).buffer_unordered(READS);
        let (mut read, mut deferred) = (Map::default(), Vec::new());
        for rows in reads.try_collect::<Vec<_>>().await? {
            match rows {
                Ok(key) => _ = read.insert(key.id().clone(), key),
                Err(key) => deferred.push(key),
            }
        }
        self.keys = read;
        self.read = self.of.calls.clock().now();
        Ok(deferred)
    }

    async fn rows(&self, key: RowKey, held: &AtomicUsize) -> anyhow::Result<Result<Key, RowKey>> {
        if held.load(Ordering::Relaxed) >= self.of.rules.rows {
            return Ok(Err(key));
        }
        let loss = self.tails.loss(self.of.partition(&key));
        let (mut read, mut after) = (Key::new(key.clone(), loss), None);
        loop {
            let page = self.of.calls.page("read rows", || self.of.ports.rows.weights(&key, after.as_ref())).await?;
            held.fetch_add(page.items.len(), Ordering::Relaxed);
            page.items.into_iter().for_each(|(member, weight)| read.row(member, weight));
            after = page.next;
            if after.is_none() {
                return Ok(Ok(read));
            }
        }
    }

    async fn mark(&mut self) -> anyhow::Result<()> {
        let of = self.of;
        let marker = |key: &mut Key| {
            let nonce = of.nonce();
            key.marked(nonce);
            (key.id().clone(), nonce)
        };
        let markers: Vec<_> = self.keys.values_mut().map(marker).collect();
        let batches: Vec<_> = markers.chunks(PUTS).map(<[_]>::to_vec).collect();
        let put = |some: Vec<_>| async move { of.mark(&some).await }.boxed();
        stream::iter(batches).map(put).buffer_unordered(WRITES).try_collect().await
    }

    /// Reads the tails on until something `is_there`, or patience ends.
    async fn follow(&mut self, is_there: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let clock = self.of.calls.clock();
        let deadline = clock.reading().at + self.of.rules.patience;
        loop {
            self.read_on().await?;
            if is_there(self) || clock.reading().at >= deadline {
                return Ok(());
            }
            self.of.calls.wait(POLL).await?;
        }
    }

    async fn read_on(&mut self) -> anyhow::Result<()> {
        let Self { tails, keys, .. } = self;
        let each = &mut |at: Place, entry: &Entry| {
            if let Some(key) = keys.get_mut(&entry.key) {
                key.entry(at, entry);
            }
        };
        tails.read_on(each).await
    }

    /// Whether everything that happened to the row keys before their rows were read is in the tails.
    fn is_complete(&self) -> bool {
        self.keys.values().all(|key| self.has_all_of(key) || self.is_void(key))
    }

    fn has_all_of(&self, key: &Key) -> bool {
        if !self.of.rules.dry_run {
            return key.is_complete();
        }
        let reached = self.tails.reached(self.of.partition(key.id()));
        reached.and_then(|reached| reached.as_of) >= Some(self.read.plus(self.of.rules.guard))
    }

    /// Whether a loss was announced meanwhile, so that nothing comes of the look.
    fn is_void(&self, key: &Key) -> bool {
        self.tails.reached(self.of.partition(key.id())).is_none_or(|reached| !reached.is_whole)
    }

    /// Reads how far the folds are, and the counters after that.
    async fn counters(&self) -> anyhow::Result<Counters> {
        let of = self.of;
        let passed = of.folds().await?;
        let ids: BTreeSet<&CounterId> = self.keys.keys().map(|key| &key.counter).collect();
        let ids: Vec<CounterId> = ids.into_iter().cloned().collect();
        of.calls.allowed().await?;
        let read = || of.ports.counters.read(&ids, Consistency::Strong);
        let read = of.calls.persist("read counters", read).await?;
        of.calls.read_items(ids.len());
        Ok(Counters { counters: read.counters, passed })
    }

    /// Whether the tails are at the places of the counters.
    fn reaches(&self, counters: &Counters) -> bool {
        self.keys.values().all(|key| self.is_void(key) || self.has_reached(key, counters))
    }

    fn has_reached(&self, key: &Key, Counters { counters, passed }: &Counters) -> bool {
        let partition = self.of.partition(key.id());
        let counter = counters.get(&key.id().counter).and_then(|counter| counter.as_ref().ok());
        let place = self.tails.reached(partition).map(|reached| reached.place);
        place >= counter.map(|counter| counter.version) && place >= passed.get(&partition).copied()
    }

    fn compare(self, counters: &Counters) -> Vec<(RowKey, Found)> {
        let mut found = self.found(counters);
        // Each correction sets the total right: one of it alone is needed only where there is no other.
        let is_total = |found: &Found| matches!(found, Found::Differs { cause: Cause::Total, .. });
        found.sort_by_key(|(_, found)| is_total(found));
        let mut corrected = BTreeSet::new();
        for (key, found) in &mut found {
            if matches!(found, Found::Differs { .. }) && !corrected.insert(key.counter.clone()) && is_total(found) {
                *found = Found::Waits;
            }
        }
        found
    }

    fn found(&self, counters: &Counters) -> Vec<(RowKey, Found)> {
        let found = |key: &Key| {
            let counter = counters.counters.get(&key.id().counter);
            let passed = counters.passed.get(&self.of.partition(key.id())).copied().unwrap_or_default();
            let found = if self.is_void(key) {
                Found::Void("a loss was announced, or a part of the log is gone")
            } else if !self.has_all_of(key) {
                Found::Void("the log does not come up to the rows")
            } else if !self.has_reached(key, counters) {
                Found::Void("the log does not come up to the counter")
            } else {
                match counter {
                    Some(Err(fault)) => Found::Unreadable(fault.to_string()),
                    Some(Ok(counter)) => compared(key, Some(counter), passed),
                    None => compared(key, None, passed),
                }
            };
            (key.id().clone(), found)
        };
        self.keys.values().map(found).collect()
    }
}

fn compared(key: &Key, counter: Option<&Counter>, passed: Place) -> Found {
    let (none, shard) = (Counter::default(), key.id().shard);
    let is_counted = counter.is_some_and(|counter| counter.parts.contains_key(&shard));
    let counter = counter.unwrap_or(&none);
    let counted = counter.part(shard);
    match key.compare_behind(counter, passed) {
        Finding::Equal if counter.doubt.contains(&shard) => Found::Doubtful,
        Finding::Equal => Found::Equal,
        Finding::Doubtful(correction) => {
            Found::Differs { correction, before: counted, after: counted, cause: Cause::Suspect }
        }
        Finding::Differs(correction) => {
            let add = gain(&correction);
            let cause = if counter.doubt.contains(&shard) {
                Cause::Suspect
            } else if add == 0 {
                Cause::Total
            } else if counted < 0 && key.id().counter.name.kind() == CounterKind::Set {
                Cause::Negative
            } else if !is_counted {
                Cause::MissingCounter
            } else if counted.saturating_add(add) == 0 {
                Cause::NoRows
            } else {
                Cause::Drift
            };
            let (before, after) = match cause {
                Cause::Total => {
                    (counter.likes, counter.parts.values().fold(0, |sum: i64, part| sum.saturating_add(*part)))
                }
                _ => (counted, counted.saturating_add(add)),
            };
            Found::Differs { correction, before, after, cause }
        }
    }
}

/// What the one shard of a row key's correction gains.
fn gain(correction: &Correction) -> i64 {
    let adds = correction.parts.values().map(|amend| if let Amend::Add(add) = amend { *add } else { 0 });
    adds.sum()
}
