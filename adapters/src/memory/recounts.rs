//! The twin of the recounts table.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tally_core::audit::{AuditRun, RunRecord, Summary};
use tally_core::ids::{CounterId, RowKey, Shard};
use tally_core::milestone::Milestone;
use tally_core::ports::{
    AuditSegment, AuditSegments, Claimed, Claims, Cursor, Ledger, LedgerEntry, Milestones, Operation, Operations,
    Outcome, Page, QueueReason, Queued, Recorded, RecountQueue, Reports, Runs, Worker,
};
use tally_core::time::UnixMillis;
use tally_core::window::{Report, WindowRun};

use super::{Memory, PAGE, page};

/// The twin of the recounts table.
#[derive(Clone, Debug)]
pub struct Recounts {
    memory: Memory,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    runs: BTreeMap<AuditRun, RunRecord>,
    /// By row key as text, the order in which the queue is read.
    queue: BTreeMap<String, Queued>,
    audit: Option<UnixMillis>,
    claims: BTreeMap<String, Claim>,
    segments: BTreeMap<(AuditRun, u32), AuditSegment>,
    shares: BTreeMap<(AuditRun, Worker), Summary>,
    reports: BTreeMap<WindowRun, Report>,
    ledger: BTreeMap<(CounterId, UnixMillis, WindowRun, Option<Shard>), LedgerEntry>,
    operations: BTreeMap<(UnixMillis, u64), Operation>,
    milestones: BTreeMap<(CounterId, i64), Recorded>,
}

#[derive(Debug)]
struct Claim {
    owner: Worker,
    at: UnixMillis,
    done: bool,
}

impl Table {
    pub(super) fn write_line(&mut self, entry: &LedgerEntry) {
        self.ledger.insert((entry.counter.clone(), entry.at, entry.run, entry.shard), entry.clone());
    }

    /// Those of `reached` that stand already.
    pub(super) fn standing(&self, counter: &CounterId, reached: &[Milestone]) -> Vec<i64> {
        let thresholds = reached.iter().map(|milestone| milestone.n);
        thresholds.filter(|n| self.milestones.contains_key(&(counter.clone(), *n))).collect()
    }

    pub(super) fn record(&mut self, counter: &CounterId, milestone: &Milestone) {
        let recorded = Recorded { milestone: milestone.clone(), digest: milestone.digest(counter) };
        self.milestones.insert((counter.clone(), milestone.n), recorded);
    }

    pub(super) fn ask_for_audit(&mut self, now: UnixMillis) {
        self.audit = Some(self.audit.map_or(now, |asked| now.max(UnixMillis(asked.0 + 1))));
    }
}

impl Recounts {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }
}

#[async_trait]
impl Runs for Recounts {
    async fn put_run(&self, record: &RunRecord) -> Outcome<()> {
        let mut memory = self.memory.state();
        if memory.recounts.runs.get(&record.run).is_none_or(|standing| standing.ended.is_none()) {
            memory.recounts.runs.insert(record.run, record.clone());
        }
        Ok(())
    }

    async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>> {
        Ok(self.memory.state().recounts.runs.get(&run).cloned())
    }

    async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>> {
        Ok(self.memory.state().recounts.runs.values().rev().take(limit as usize).cloned().collect())
    }

    async fn put_share(&self, run: AuditRun, worker: &Worker, share: &Summary, _: UnixMillis) -> Outcome<()> {
        self.memory.state().recounts.shares.insert((run, worker.clone()), share.clone());
        Ok(())
    }

    async fn shares(&self, run: AuditRun) -> Outcome<Vec<Summary>> {
        let state = self.memory.state();
        let of_run = state.recounts.shares.iter().filter(|((of, _), _)| *of == run);
        Ok(of_run.map(|(_, share)| share.clone()).collect())
    }
}

#[async_trait]
impl RecountQueue for Recounts {
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, _: UnixMillis) -> Outcome<()> {
        let mut state = self.memory.state();
        let first = || Queued { key: key.clone(), reason, asked: 0 };
        state.recounts.queue.entry(key.to_string()).or_insert_with(first).asked += 1;
        Ok(())
    }

    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>> {
        let state = self.memory.state();
        let behind = |key: &String| after.is_none_or(|after| *key > after.0);
        let queued = state.recounts.queue.iter().filter(|(key, _)| behind(key));
        Ok(page(queued.map(|(key, queued)| (queued.clone(), key.clone())), PAGE))
    }

    async fn dequeue(&self, queued: &Queued) -> Outcome<()> {
        let mut state = self.memory.state();
        let key = queued.key.to_string();
        if state.recounts.queue.get(&key).is_some_and(|standing| standing.asked == queued.asked) {
            state.recounts.queue.remove(&key);
        }
        Ok(())
    }

    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        self.memory.state().recounts.ask_for_audit(now);
        Ok(())
    }

    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        Ok(self.memory.state().recounts.audit)
    }

    async fn audit_done(&self, asked: UnixMillis) -> Outcome<()> {
        self.memory.state().recounts.audit.take_if(|standing| *standing == asked);
        Ok(())
    }
}

#[async_trait]
impl Claims for Recounts {
    async fn claim(&self, what: &str, worker: &Worker, now: UnixMillis, stale: UnixMillis) -> Outcome<Claimed> {
        let mut state = self.memory.state();
        match state.recounts.claims.get(what) {
            Some(claim) if claim.done => return Ok(Claimed::Done),
            Some(claim) if claim.owner != *worker && claim.at >= stale => return Ok(Claimed::Taken),
            _ => {}
        }
        let claim = Claim { owner: worker.clone(), at: now, done: false };
        state.recounts.claims.insert(what.to_owned(), claim);
        Ok(Claimed::Claimed)
    }

    async fn settle(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()> {
        let mut state = self.memory.state();
        let Some(claim) = state.recounts.claims.get_mut(what).filter(|claim| claim.owner == *worker) else {
            return Ok(());
        };
        claim.done |= done;
        if !claim.done {
            state.recounts.claims.remove(what);
        }
        Ok(())
    }
}

#[async_trait]
impl AuditSegments for Recounts {
    async fn put_segment(&self, run: AuditRun, segment: &AuditSegment, _: UnixMillis) -> Outcome<()> {
        let mut state = self.memory.state();
        let key = (run, segment.index);
        if !state.recounts.segments.get(&key).is_some_and(|standing| standing.done) {
            state.recounts.segments.insert(key, segment.clone());
        }
        Ok(())
    }

    async fn segments(&self, run: AuditRun) -> Outcome<Vec<AuditSegment>> {
        let state = self.memory.state();
        Ok(state.recounts.segments.range((run, 0)..=(run, u32::MAX)).map(|(_, segment)| segment.clone()).collect())
    }
}

#[async_trait]
impl Reports for Recounts {
    async fn put_report(&self, report: &Report, _: UnixMillis) -> Outcome<()> {
        self.memory.state().recounts.reports.insert(report.run, report.clone());
        Ok(())
    }

    async fn report(&self, key: &RowKey, run: WindowRun) -> Outcome<Option<Report>> {
        Ok(self.memory.state().recounts.reports.get(&run).filter(|report| report.key == *key).cloned())
    }
}

#[async_trait]
impl Ledger for Recounts {
    async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        let state = self.memory.state();
        let of_counter = state.recounts.ledger.iter().rev().filter(|((of, ..), _)| of == counter);
        Ok(of_counter.take(limit as usize).map(|(_, entry)| entry.clone()).collect())
    }
}

#[async_trait]
impl Operations for Recounts {
    async fn put_operation(&self, operation: &Operation) -> Outcome<()> {
        let place = (operation.at, operation.token);
        self.memory.state().recounts.operations.insert(place, operation.clone());
        Ok(())
    }

    async fn operations(&self, limit: u32) -> Outcome<Vec<Operation>> {
        Ok(self.memory.state().recounts.operations.values().rev().take(limit as usize).cloned().collect())
    }
}

#[async_trait]
impl Milestones for Recounts {
    async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>> {
        let state = self.memory.state();
        let of_counter = state.recounts.milestones.iter().rev().filter(|((of, _), _)| of == counter);
        Ok(of_counter.take(limit as usize).map(|(_, recorded)| recorded.clone()).collect())
    }

    async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>> {
        Ok(self.memory.state().recounts.milestones.get(&(counter.clone(), n)).cloned())
    }
}
