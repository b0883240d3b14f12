//! The recounts table: runs, what is queued for one, the reports of windows, and the ledger.

use async_trait::async_trait;

use super::{Cursor, LedgerEntry, Outcome, Page, Worker};
use crate::ids::{CounterId, RowKey};
use crate::recount::{AuditRun, Report, WindowRun};
use crate::time::UnixMillis;

/// A recount run as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The run.
    pub run: AuditRun,
    /// When it began.
    pub began: UnixMillis,
    /// When it ended.
    pub ended: Option<UnixMillis>,
    /// What it was asked to do, as its command line says it.
    pub scope: String,
    /// Its summary so far, a JSON document.
    pub summary: String,
}

/// Why a row key waits for a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueReason {
    /// Rows and counter differ.
    Drift,
    /// The counter is below zero.
    Negative,
    /// Two open stream shards fed it.
    Suspect,
    /// Somebody asked.
    Asked,
}

/// A row key that waits for a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The row key.
    pub key: RowKey,
    /// Why it was queued first.
    pub reason: QueueReason,
    /// How often it was asked for: whoever recounted it for fewer requests leaves it queued.
    pub asked: u64,
}

/// Whether a piece of work could be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is ours until the heartbeat is missed.
    Claimed,
    /// Another worker has it.
    Taken,
    /// It is done.
    Done,
}

/// How far one segment of an audit has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSegment {
    /// Its index.
    pub index: u32,
    /// Where the scan goes on.
    pub cursor: Option<Cursor>,
    /// Row keys that are neither proved nor repaired yet.
    pub unsettled: u64,
    /// Whether all of it was scanned.
    pub done: bool,
}

/// What recounts remember.
#[async_trait]
pub trait Recounts: Send + Sync {
    /// Puts a run's state. Safe to repeat: the latest summary stands, and one that has ended stays as it ended.
    async fn put_run(&self, state: &RunState) -> Outcome<()>;

    /// A run's state.
    async fn run(&self, run: AuditRun) -> Outcome<Option<RunState>>;

    /// The latest runs, newest first: the ids of runs begin with their time.
    async fn runs(&self, limit: u32) -> Outcome<Vec<RunState>>;

    /// Puts what `worker` has found for `run` so far, a JSON document. Safe to repeat: what it says last stands.
    async fn put_share(&self, run: AuditRun, worker: &Worker, share: &str, now: UnixMillis) -> Outcome<()>;

    /// What every worker of `run` has found.
    async fn shares(&self, run: AuditRun) -> Outcome<Vec<String>>;

    /// Queues a row key. Safe to repeat: a key is queued once, for the reason first given.
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()>;

    /// What is queued, read consistently.
    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>>;

    /// Takes a key off the queue, unless it was asked for again since. Safe to repeat.
    async fn dequeue(&self, queued: &Queued) -> Outcome<()>;

    /// Queues an audit of everything, asked for at `now`. Safe to repeat: an audit asked for later stands. The time
    /// moves with every call, whatever the caller's clock says: it tells one request from the next.
    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()>;

    /// When the audit that is queued was last asked for.
    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>>;

    /// The audit that was queued as `asked` is done; one asked for since stays queued. Safe to repeat.
    async fn audit_done(&self, asked: UnixMillis) -> Outcome<()>;

    /// Claims a piece of work for `worker` until its heartbeat is older than `stale`. A courtesy between runs: nothing
    /// that must be right relies on it. Safe to repeat.
    async fn claim(&self, what: &str, worker: &Worker, now: UnixMillis, stale: UnixMillis) -> Outcome<Claimed>;

    /// The claimed work is done, or given back. Safe to repeat.
    async fn settle(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()>;

    /// Puts how far a segment of an audit has come. Safe to repeat, by anybody: one that is done stays as it is.
    async fn put_segment(&self, run: AuditRun, segment: &AuditSegment, now: UnixMillis) -> Outcome<()>;

    /// The segments of an audit.
    async fn segments(&self, run: AuditRun) -> Outcome<Vec<AuditSegment>>;

    /// Writes a window's report, its head last. Safe to repeat, by any worker: a complete report of one run is the same
    /// whoever writes it.
    async fn put_report(&self, report: &Report, now: UnixMillis) -> Outcome<()>;

    /// A window's report, if it is complete.
    async fn report(&self, key: &RowKey, run: WindowRun) -> Outcome<Option<Report>>;

    /// The ledger of a counter, newest first.
    async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>>;
}
