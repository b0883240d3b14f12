//! The twin of the counts table: the very functions whose meaning the real one evaluates.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tally_core::counter::{Counter, Overflow, Update};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::milestone::Guard;
use tally_core::ports::{Applied, Counts as CountsPort, Cursor, Judged, LedgerEntry, Mended, Outcome, Page, Segment};
use tally_core::time::UnixMillis;
use tally_core::window::Verdict;

use super::{Memory, PAGE, page, part_of};

/// The twin of the counts table.
#[derive(Clone, Debug)]
pub struct Counts {
    memory: Memory,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    counters: BTreeMap<CounterId, Counter>,
}

impl Counts {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// Puts a counter as it is, whatever the rows say: for injected drift.
    pub fn plant(&self, id: &CounterId, counter: Counter) {
        self.memory.state().counts.counters.insert(id.clone(), counter);
    }
}

fn damaged(id: &CounterId) -> impl Fn(Overflow) -> Fault {
    move |overflow| Fault::Poison(format!("counter {id}: {overflow}"))
}

#[async_trait]
impl CountsPort for Counts {
    async fn apply(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        let mut state = self.memory.state();
        let found = state.counts.counters.get(id);
        let before = found.cloned().unwrap_or_default();
        if before.refusal(update).is_some() {
            return Ok(Applied::Refused(found.cloned()));
        }
        let reached = update.guard.as_ref().map_or(&[][..], Guard::reached);
        let standing = state.recounts.standing(id, reached);
        if !standing.is_empty() {
            return Ok(Applied::Standing(standing));
        }
        let after = before.updated(update).map_err(damaged(id))?;
        reached.iter().for_each(|milestone| state.recounts.record(id, milestone));
        state.counts.counters.insert(id.clone(), after.clone());
        Ok(Applied::Taken(after))
    }

    async fn counter(&self, id: &CounterId) -> Outcome<Option<Counter>> {
        Ok(self.memory.state().counts.counters.get(id).cloned())
    }

    async fn counters(&self, ids: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        let state = self.memory.state();
        Ok(ids.iter().map(|id| Ok(state.counts.counters.get(id).cloned())).collect())
    }

    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        let id = &verdict.key.counter;
        let mut state = self.memory.state();
        let Some(counter) = state.counts.counters.get(id).filter(|counter| verdict.admitted_by(counter)) else {
            return Ok(Judged::Void);
        };
        let judged = verdict.apply(counter.clone()).map_err(damaged(id))?;
        state.counts.counters.insert(id.clone(), judged);
        state.recounts.write_line(entry);
        Ok(Judged::Stands)
    }

    async fn mend_total(&self, id: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        let mut state = self.memory.state();
        let Some(counter) = state.counts.counters.get_mut(id).filter(|counter| counter.version == version) else {
            return Ok(Mended::Changed);
        };
        counter.likes = sum;
        counter.version += 1;
        state.recounts.write_line(entry);
        Ok(Mended::Mended)
    }

    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()> {
        let mut state = self.memory.state();
        let counter = state.counts.counters.entry(key.counter.clone()).or_default();
        let tally = counter.shards.entry(key.shard).or_default();
        tally.suspect = true;
        tally.switches += 1;
        counter.version += 1;
        counter.updated_at = now;
        Ok(())
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        let state = self.memory.state();
        let counters = state.counts.counters.iter();
        let counters = counters.filter(|(id, _)| after.is_none_or(|after| *id.stored() > *after.0));
        let counters = counters.filter(|(id, _)| part_of(&id.stored(), segment.of) == segment.index);
        Ok(page(counters.map(|(id, counter)| ((id.clone(), Ok(counter.clone())), id.stored().into_owned())), PAGE))
    }
}
