//! Checks the counters in the simulation. At rest, counts equal their rows and the events. Every write of a counter has
//! processed each item in an interval of its partition of `changes` exactly once, a correction makes its shards right,
//! and the first to reach a threshold is recorded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use tally_adapters::dynamodb::ScannedRow;
use tally_core::changes::Amend;
use tally_core::fold::{Applied, Change, Counter};
use tally_core::ids::{CounterId, CounterKind, RowKey, Shard, ShardCount};
use tally_core::milestone::{Milestone, Winner};

use crate::simulation::journal::{Journal, LoggedItem};
use crate::simulation::registers::Write;

/// Rows and counters when nothing is under way.
pub(crate) struct Quiet<'a> {
    /// The total weight of each row key.
    pub(crate) rows: &'a BTreeMap<RowKey, i64>,
    pub(crate) counters: &'a BTreeMap<CounterId, Counter>,
}

impl Quiet<'_> {
    /// Every row key with its weight and its count.
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

/// Every count must equal its rows, and no counter may say that it is in doubt.
pub(crate) fn exact(quiet: &Quiet<'_>) -> anyhow::Result<()> {
    held(quiet, |_| false)?;
    for (id, counter) in quiet.counters {
        let is_sound = counter.adds_up() && counter.doubt.is_empty();
        let is_possible = counter.likes >= 0 || id.name.kind() == CounterKind::Sum;
        ensure!(is_sound && is_possible, "the counter of {id} says that it may be wrong: {counter:?}");
    }
    Ok(())
}

/// If nothing was lost, a count equals its rows even before a recount, unless it was edited by hand or says that it is in
/// doubt.
pub(crate) fn held(quiet: &Quiet<'_>, is_edited: impl Fn(&RowKey) -> bool) -> anyhow::Result<()> {
    let is_doubted = |key: &RowKey| quiet.counters.get(&key.counter).is_some_and(|it| it.doubt.contains(&key.shard));
    for (key, rows, counted) in quiet.keys().filter(|(key, ..)| !is_edited(key) && !is_doubted(key)) {
        ensure!(
            counted == rows,
            "{key} has {rows} rows, but {counted} are counted: {:?}",
            quiet.counters[&key.counter]
        );
    }
    Ok(())
}

/// Every count must equal the events, independently of the rows.
pub(crate) fn said(quiet: &Quiet<'_>, totals: &BTreeMap<CounterId, i64>) -> anyhow::Result<()> {
    for (id, counter) in quiet.counters {
        let total = totals.get(id).copied().unwrap_or(0);
        ensure!(counter.likes == total, "{id} is counted as {}, but its events add up to {total}", counter.likes);
    }
    let uncounted = totals.iter().find(|(id, total)| **total != 0 && !quiet.counters.contains_key(id));
    ensure!(uncounted.is_none(), "{uncounted:?} has events but no counter");
    Ok(())
}

/// The total weight of each row key.
pub(crate) fn weights(rows: &[ScannedRow]) -> BTreeMap<RowKey, i64> {
    let mut weighed = BTreeMap::new();
    for row in rows {
        if let (Ok(key), Some(weight)) = (row.pk.parse::<RowKey>(), row.weight()) {
            *weighed.entry(key).or_default() += weight.get();
        }
    }
    weighed
}

/// The judged writes, and those that wait until the log is read that far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    waiting: Vec<Write>,
    /// The edits of each row key by hand, in order.
    by_hand: BTreeMap<RowKey, Vec<i64>>,
    /// The first to reach each threshold of each counter.
    firsts: BTreeMap<CounterId, BTreeMap<i64, Winner>>,
    /// Counters whose writes cannot all be judged, since part of their log is lost.
    unknown: BTreeSet<CounterId>,
    /// The number of judged corrections.
    pub(crate) corrections: u64,
}

impl Steps {
    /// Judges the writes since the last call. If part of the stream was lost, corrections are not compared with the log.
    pub(crate) fn follow(&mut self, writes: Vec<Write>, journal: &Journal, lossy: bool) -> anyhow::Result<()> {
        self.waiting.extend(writes);
        for write in std::mem::take(&mut self.waiting) {
            let Write { counter, before, after } = &write;
            let before = before.clone().unwrap_or_default();
            ensure!(
                after.version >= before.version && after.corrections >= before.corrections,
                "the counter of {counter} went from {before:?} to {after:?}"
            );
            if after.version == before.version {
                self.edited(counter, &before, after);
                continue;
            }
            if journal.is_torn(counter) {
                self.unknown.insert(counter.clone());
                continue;
            }
            match journal.between(counter, before.version, after.version) {
                Some(items) => self.step(counter, before, after, &items, lossy)?,
                None => self.waiting.push(write),
            }
        }
        Ok(())
    }

    /// A write that does not advance the version is an edit by hand.
    fn edited(&mut self, counter: &CounterId, before: &Counter, after: &Counter) {
        for (shard, part) in &after.parts {
            let amount = part - before.part(*shard);
            if amount != 0 {
                let key = RowKey { counter: counter.clone(), shard: *shard };
                self.by_hand.entry(key).or_default().push(amount);
            }
        }
    }

    fn step(
        &mut self,
        counter: &CounterId,
        before: Counter,
        after: &Counter,
        items: &[LoggedItem],
        lossy: bool,
    ) -> anyhow::Result<()> {
        let from = before.version;
        let mut right = before;
        for item in items {
            let total = right.likes;
            let applied = right.apply(item.at, item.change(), item.loss);
            if matches!(applied, Ok(Applied::Changed)) {
                self.crossed(counter, item, total, right.likes);
                if let Some(truth) = item.right() {
                    self.corrections += 1;
                    if !lossy {
                        self.corrected(counter, &right, item, truth)?;
                    }
                }
            }
        }
        right.reach(after.version);
        right.updated_at = after.updated_at;
        ensure!(
            right == *after,
            "the counter of {counter} was written as {after:?}, but the log from {from} on makes it {right:?}"
        );
        Ok(())
    }

    /// A correction sets its shards to the sum of the entries before it. It does not include edits by hand after it was
    /// calculated.
    fn corrected(
        &self,
        counter: &CounterId,
        corrected: &Counter,
        item: &LoggedItem,
        truth: &BTreeMap<Shard, i64>,
    ) -> anyhow::Result<()> {
        let Change::Correction(correction) = item.change() else { return Ok(()) };
        for (shard, _) in correction.parts.iter().filter(|(_, amend)| matches!(amend, Amend::Add(_))) {
            let key = RowKey { counter: counter.clone(), shard: *shard };
            let (part, right) = (corrected.part(*shard), truth.get(shard).copied().unwrap_or_default());
            let later = self.by_hand.get(&key).map_or(&[][..], Vec::as_slice);
            let is_later = (0..later.len()).any(|nth| later[nth..].iter().sum::<i64>() == part - right);
            ensure!(
                part == right || is_later,
                "a correction at {} has set {key} to {part}, but its changes add up to {right}",
                item.at
            );
        }
        Ok(())
    }

    fn crossed(&mut self, counter: &CounterId, item: &LoggedItem, before: i64, after: i64) {
        if item.ladder.is_empty() || after <= before {
            return;
        }
        for threshold in item.ladder.crossed(Some(before), after).thresholds {
            let firsts = self.firsts.entry(counter.clone()).or_default();
            firsts.entry(threshold).or_insert_with(|| match item.change() {
                Change::Entry(entry) => Winner::of(entry, threshold - before),
                Change::Correction(_) => Winner::Unwitnessed,
            });
        }
    }

    /// Compares the recorded milestones of a counter with those that follow from the log, and returns their number. If part of
    /// the stream was lost, a record need not name the right winner.
    pub(crate) fn milestones(&self, counter: &CounterId, recorded: &[Milestone], lossy: bool) -> anyhow::Result<u64> {
        let none = BTreeMap::new();
        let firsts = self.firsts.get(counter).unwrap_or(&none);
        if self.unknown.contains(counter) {
            return Ok(0);
        }
        let told: BTreeMap<i64, &Winner> = recorded.iter().map(|milestone| (milestone.n, &milestone.by)).collect();
        ensure!(told.len() == recorded.len(), "a threshold of {counter} is recorded twice: {recorded:?}");
        for (threshold, first) in firsts {
            let by = told.get(threshold).with_context(|| format!("{counter} reached {threshold} unrecorded"))?;
            let lawful = *by == first || lossy && **by == Winner::Unwitnessed;
            ensure!(lawful, "{counter} reached {threshold} by {first:?}, but {by:?} is recorded");
        }
        let spare = told.keys().find(|threshold| !firsts.contains_key(threshold));
        ensure!(spare.is_none(), "{counter} has a record of {spare:?}, which was not reached: {recorded:?}");
        Ok(told.len() as u64)
    }

    /// Whether every write so far was judged.
    pub(crate) fn is_through(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a row key was edited by hand.
    pub(crate) fn is_edited(&self, key: &RowKey) -> bool {
        self.by_hand.contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use tally_adapters::memory::log::Broker;
    use tally_core::changes::Place;
    use tally_core::ids::PostId;

    use super::*;

    fn id() -> CounterId {
        CounterId::likes(PostId::new("p").expect("an id"))
    }

    fn counter(version: u64, likes: i64) -> Counter {
        let (version, parts) = (Place::from_stored(version), [(Shard::FIRST, likes)].into());
        Counter { likes, version, parts, ..Counter::default() }
    }

    #[test]
    fn every_count_equals_its_rows_and_a_doubted_one_is_not_exact() {
        let mut counters = BTreeMap::from([(id(), counter(3, 5))]);
        let holds = |rows, counters: &BTreeMap<CounterId, Counter>| {
            let quiet = Quiet { rows: &[(RowKey::first(&id()), rows)].into(), counters };
            [exact(&quiet), held(&quiet, |_| false)].map(|law| law.is_ok())
        };
        assert_eq!([5, 4, 6].map(|rows| holds(rows, &counters)), [[true; 2], [false; 2], [false; 2]]);
        counters.get_mut(&id()).expect("it is there").doubt.insert(Shard::FIRST);
        assert_eq!([5, 4].map(|rows| holds(rows, &counters)), [[false, true]; 2]);
    }

    #[test]
    fn a_counter_may_only_change_by_log_entries_and_edits_by_hand() {
        let journal = Journal::of(&Broker::new(), 1);
        let follow = |before, after| {
            let write = Write { counter: id(), before: Some(before), after };
            Steps::default().follow(vec![write], &journal, false).is_ok()
        };
        assert!(follow(counter(3, 5), counter(3, 9)));
        assert!(!follow(counter(3, 5), counter(2, 5)));
        let step = |after| Steps::default().step(&id(), counter(3, 5), &after, &[], false).is_ok();
        assert!(step(counter(9, 5)) && !step(counter(9, 6)));
    }
}
