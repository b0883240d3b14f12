//! The recounts table: runs, what is queued for one, the reports of windows, and the ledger.

use async_trait::async_trait;

use super::{Cursor, LedgerEntry, Outcome, Page, Worker};
use crate::ids::{PostId, RowKey};
use crate::recount::{Report, RunId};
use crate::time::UnixMillis;

/// A recount run as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The run.
    pub run: RunId,
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
    /// Puts a run's state. Safe to repeat: the latest summary stands.
    async fn put_run(&self, state: &RunState) -> Outcome<()>;

    /// A run's state.
    async fn run(&self, run: RunId) -> Outcome<Option<RunState>>;

    /// The latest runs, newest first.
    async fn runs(&self, limit: u32) -> Outcome<Vec<RunState>>;

    /// Queues a row key. Safe to repeat: a key is queued once, for the reason first given.
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()>;

    /// What is queued, read consistently.
    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<(RowKey, QueueReason)>>;

    /// Takes a key off the queue. Safe to repeat.
    async fn dequeue(&self, key: &RowKey) -> Outcome<()>;

    /// Queues an audit of everything, asked for at `now`. Safe to repeat: an audit asked for later stands.
    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()>;

    /// When the audit that is queued was last asked for.
    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>>;

    /// The queued audit was done by a run that began at `began`; one asked for since stays queued. Safe to repeat.
    async fn audit_done(&self, began: UnixMillis) -> Outcome<()>;

    /// Claims a piece of work for `worker` until its heartbeat is older than `stale`. A courtesy between runs: nothing
    /// that must be right relies on it. Safe to repeat.
    async fn claim(&self, what: &str, worker: &Worker, now: UnixMillis, stale: UnixMillis) -> Outcome<Claimed>;

    /// The claimed work is done, or given back. Safe to repeat.
    async fn settle(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()>;

    /// Puts how far a segment of an audit has come. Safe to repeat.
    async fn put_segment(&self, run: RunId, segment: &AuditSegment) -> Outcome<()>;

    /// The segments of an audit.
    async fn segments(&self, run: RunId) -> Outcome<Vec<AuditSegment>>;

    /// Writes a window's report, its head last. Safe to repeat, by any worker: a complete report of one run is the same
    /// whoever writes it.
    async fn put_report(&self, report: &Report, now: UnixMillis) -> Outcome<()>;

    /// A window's report, if it is complete.
    async fn report(&self, key: &RowKey, run: RunId) -> Outcome<Option<Report>>;

    /// The ledger of a post, newest first.
    async fn ledger(&self, post: &PostId, limit: u32) -> Outcome<Vec<LedgerEntry>>;
}
