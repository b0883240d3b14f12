//! Writes a flush, the changes that a fold has gathered, to the counters: 25 updates a request, many requests at once.
//! Every update names the values that it replaces. A refused one comes back with the counter as it is; the fold then
//! applies the changes that this counter does not have yet, and writes again.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use anyhow::anyhow;
use futures_util::stream::{StreamExt, iter};
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::counters::{Counters, Crossed, Update, Written};
use tally_core::Map;
use tally_core::cached::Value;
use tally_core::fault::Fault;
use tally_core::fold::{After, Counter, Flush, Pending, Reached};
use tally_core::ids::CounterId;
use tally_core::milestone::{Milestone, Winner};
use tally_service::{Stop, Until};

use super::partition::PartitionFold;
use crate::metrics;

/// The kind of loss of a counter whose item cannot be read.
const DAMAGED: &str = "damaged";

/// How many counters one request reads.
const READ: usize = 100;

/// The part of a flush that is not written yet, and the values written so far, which the cache is told.
struct Work<'f> {
    left: BTreeMap<&'f CounterId, &'f [Pending]>,
    /// Counters whose update the store has found wrong.
    wrong: BTreeSet<CounterId>,
    written: Vec<(CounterId, Value)>,
}

impl PartitionFold {
    /// Writes everything of `flush` to the counters. Returns the values of those that have changed since the last
    /// flush. Safe to repeat, and while others do so.
    pub(super) async fn write(&mut self, flush: &Flush, stop: &Stop) -> anyhow::Result<Vec<(CounterId, Value)>> {
        let left: BTreeMap<_, _> = flush.counters.iter().map(|(id, pending)| (id, &pending[..])).collect();
        // Other Regions must not be told an older value than before, which an eventually consistent read could return.
        let mut consistency = if self.publisher.is_some() { Consistency::Strong } else { Consistency::Eventual };
        for (id, _) in left.iter().filter(|(_, pending)| pending.iter().any(Pending::is_correction)) {
            self.known.forget(id);
            consistency = Consistency::Strong;
        }
        let (mut work, mut tries) = (Work { left, wrong: BTreeSet::new(), written: Vec::new() }, 0);
        while !work.left.is_empty() {
            for damaged in self.read(work.left.keys().copied(), consistency, stop).await? {
                work.left.remove(&damaged);
            }
            let (updates, crossings) = self.updates(flush, &mut work);
            let mut done = self.send(&updates).await;
            for (update, reached) in crossings {
                let outcome = self.cross(&update, reached, flush).await;
                done.push((update, outcome));
            }
            let failed = self.learn(done, &mut work)?;
            if !work.wrong.is_empty() {
                consistency = Consistency::Strong;
            }
            if let Some(fault) = failed {
                self.patience.pause("write counters", fault, &mut tries, Until::LastCall(stop)).await?;
            }
        }
        Ok(work.written)
    }

    /// Returns the updates that are not written yet, and apart those that reach thresholds. What changes nothing is
    /// done.
    fn updates(&mut self, flush: &Flush, work: &mut Work<'_>) -> (Vec<Update>, Vec<(Update, Vec<Reached>)>) {
        let (mut updates, mut crossings) = (Vec::new(), Vec::new());
        let now = self.patience.clock().now();
        // In a table that was adopted, an absent counter may have had any value. Until the standing knows of that loss, a
        // reader could call the new one exact.
        let is_unsure = self.adopted.is_some_and(|since| flush.standing.as_of.is_none_or(|as_of| as_of <= since));
        let (Work { left, written, .. }, from) = (work, self.written.at);
        left.retain(|id, pending| {
            let before = self.known.get(id).cloned().flatten();
            let Some(After { mut counter, reached, overflows }) = flush.apply(before.as_ref(), pending, now) else {
                let value = before.as_ref().map(Value::from).unwrap_or_default();
                // With an earlier version nothing has changed since the cache was told, and others may have written a
                // later one that this fold does not know.
                if value.version > from {
                    written.push(((*id).clone(), value));
                }
                return false;
            };
            if overflows > 0 {
                metrics::REFUSED.counter(&["overflow"]).increment(overflows as u64);
                tracing::error!(counter = %id, overflows, "changes that would leave the range of 64 bits are left out");
            }
            if is_unsure && before.is_none() {
                counter.doubt_all();
            }
            let update = Update { counter: (*id).clone(), before, after: counter };
            if reached.is_empty() {
                updates.push(update);
            } else {
                crossings.push((update, reached));
            }
            true
        });
        (updates, crossings)
    }

    /// Sends updates, many requests at once.
    async fn send(&self, updates: &[Update]) -> Vec<(Update, Written)> {
        let counters = &self.folding.counters;
        let batches: Vec<Vec<Update>> = updates.chunks(Counters::UPDATES).map(<[Update]>::to_vec).collect();
        let mut written = iter(batches)
            .map(|batch| async move {
                let outcomes = counters.write(&batch).await;
                (batch, outcomes)
            })
            .buffer_unordered(self.folding.rules.concurrency);
        let mut done = Vec::with_capacity(updates.len());
        while let Some((batch, outcomes)) = written.next().await {
            match outcomes {
                Ok(outcomes) => done.extend(batch.into_iter().zip(outcomes)),
                Err(fault) => done.extend(batch.into_iter().map(|update| (update, Written::Failed(fault.clone())))),
            }
        }
        done
    }

    /// Takes note of the outcome of each update. Returns a fault if some have to be sent again after a pause.
    fn learn(&mut self, done: Vec<(Update, Written)>, work: &mut Work<'_>) -> anyhow::Result<Option<Fault>> {
        let (mut failed, mut stored) = (None, 0);
        for (Update { counter: id, after, .. }, outcome) in done {
            match outcome {
                Written::Stored => {
                    stored += 1;
                    work.left.remove(&id);
                    work.written.push((id.clone(), Value::from(&after)));
                    self.known.put(id, Some(after));
                }
                Written::Refused(counter) => {
                    metrics::REFUSED.counter(&["changed"]).increment(1);
                    match counter {
                        Some(counter) => self.known.put(id, Some(counter)),
                        None => self.known.forget(&id),
                    }
                }
                Written::Failed(fault @ Fault::Poison(_)) => {
                    // Perhaps the item cannot be read any more. The next read shows it.
                    if !work.wrong.insert(id.clone()) {
                        return Err(anyhow!(fault).context(format!("the store refuses the counter {id}")));
                    }
                    self.known.forget(&id);
                }
                Written::Failed(fault) => {
                    self.known.forget(&id);
                    failed = Some(fault);
                }
            }
        }
        metrics::UPDATES.counter(&[]).increment(stored);
        Ok(failed)
    }

    /// Reads the counters that are not remembered, and returns those whose items cannot be read. Each of these becomes
    /// a loss, which every partition is told of, until the item is mended or deleted and an audit has passed.
    async fn read(
        &mut self,
        ids: impl Iterator<Item = &CounterId>,
        consistency: Consistency,
        stop: &Stop,
    ) -> anyhow::Result<Vec<CounterId>> {
        let unknown: Vec<CounterId> = ids.filter(|id| self.known.get(id).is_none()).cloned().collect();
        let (counters, patience) = (&self.folding.counters, &self.patience);
        let chunks: Vec<Vec<CounterId>> = unknown.chunks(READ).map(<[CounterId]>::to_vec).collect();
        let mut reads = iter(chunks)
            .map(|ids| async move {
                let read = || async {
                    let read = counters.read(&ids, consistency).await?;
                    // In a table that was replaced or emptied, a counter that is absent may have had any value.
                    let another = || Fault::Transient("the counters are in another table, or were deleted".to_owned());
                    if read.reserved { Ok(read) } else { Err(another()) }
                };
                let read = patience.persist("read counters", Until::LastCall(stop), read).await;
                read.map(|read| (ids, read))
            })
            .buffer_unordered(self.folding.rules.concurrency);
        let (mut found, mut adopted) = (Vec::new(), self.adopted);
        while let Some(read) = reads.next().await {
            let (ids, mut read) = read?;
            adopted = adopted.max(read.since);
            found.extend(ids.iter().map(|id| (id.clone(), read.counters.remove(id))));
        }
        drop(reads);
        self.adopted = adopted;
        let mut damaged = Vec::new();
        for (id, counter) in found {
            match counter.transpose() {
                Ok(counter) => self.known.put(id, counter),
                Err(fault) => damaged.push((id, fault)),
            }
        }
        for (id, fault) in &damaged {
            tracing::error!(counter = %id, %fault, "an item cannot be read: what is counted of it is lost");
            self.damaged(&id.to_string(), stop).await?;
        }
        Ok(damaged.into_iter().map(|(id, _)| id).collect())
    }

    /// Stores a loss for a counter whose item cannot be read, unless one is open for it already.
    async fn damaged(&self, what: &str, stop: &Stop) -> anyhow::Result<()> {
        let (store, until, now) = (&self.folding.store, Until::LastCall(stop), self.patience.clock().now());
        let losses = self.patience.persist("read the losses", until, || store.losses()).await?;
        if !losses.open().any(|(_, loss)| loss.kind == DAMAGED && loss.what == what) {
            let open = || store.open_new_loss(now, DAMAGED, what);
            self.patience.persist("store a loss", until, open).await?;
            metrics::GAPS.counter(&[DAMAGED]).increment(1);
        }
        Ok(())
    }

    /// Writes a counter and, in one transaction with it, a record of each threshold that it has reached. A record that
    /// exists stays as it is; if all exist, the counter is written alone.
    async fn cross(&self, update: &Update, reached: Vec<Reached>, flush: &Flush) -> Written {
        let now = self.patience.clock().now();
        // A loss that was open at any moment of the flush may have been open at this entry.
        let before = &self.standing;
        let is_known = flush.standing.open.is_empty() && before.open.is_empty() && flush.standing.loss == before.loss;
        let mut left: Vec<Milestone> = reached
            .into_iter()
            .map(|Reached { threshold, by, at }| {
                let at = if at.0 == 0 { now } else { at };
                Milestone {
                    n: threshold,
                    by: if is_known { by } else { Winner::Unwitnessed },
                    at,
                    lag: u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX),
                    version: update.after.version.stored(),
                    exact: is_known && update.after.doubt.is_empty(),
                    skipped: 0,
                }
            })
            .collect();
        loop {
            if left.is_empty() {
                return match self.folding.counters.write(std::slice::from_ref(update)).await {
                    Ok(mut outcomes) => outcomes.pop().unwrap_or(Written::Refused(None)),
                    Err(fault) => Written::Failed(fault),
                };
            }
            match self.folding.counters.cross(update, &left).await {
                Ok(Crossed::Stored) => {
                    left.iter().for_each(|reached| metrics::MILESTONES.counter(&[reached.by.state()]).increment(1));
                    return Written::Stored;
                }
                Ok(Crossed::Refused(counter)) => return Written::Refused(counter),
                Ok(Crossed::Recorded(recorded)) => left.retain(|milestone| !recorded.contains(&milestone.n)),
                Err(fault) => return Written::Failed(fault),
            }
        }
    }
}

/// How many counters are remembered as recent; as many again may be remembered as older.
const KNOWN: usize = 50_000;

/// Counters that a fold has written or read lately, so that most updates need no read. When `recent` is full, it
/// becomes `older`. If a remembered counter is out of date, the table refuses the update.
#[derive(Debug, Default)]
pub(super) struct Known {
    recent: Map<CounterId, Option<Counter>>,
    older: Map<CounterId, Option<Counter>>,
}

impl Known {
    /// Returns the counter, if it is remembered; `Some(None)` says that the table had none.
    pub(super) fn get(&mut self, id: &CounterId) -> Option<&Option<Counter>> {
        if !self.older.is_empty() && !self.recent.contains_key(id) {
            let (id, counter) = self.older.remove_entry(id)?;
            self.put(id, counter);
        }
        self.recent.get(id)
    }

    pub(super) fn put(&mut self, id: CounterId, counter: Option<Counter>) {
        if self.recent.len() >= KNOWN {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(id, counter);
    }

    /// Forgets a counter, so that it is read again.
    pub(super) fn forget(&mut self, id: &CounterId) {
        self.recent.remove(id);
        self.older.remove(id);
    }
}
