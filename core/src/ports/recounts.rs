//! The recounts table, by what it is used for: runs, the queue, the segments of audits, the ledgers, and the milestones.

use async_trait::async_trait;

use super::{Cursor, Outcome, Page};
use crate::audit::{AuditRun, RunRecord};
use crate::ids::{CounterId, RowKey, Shard};
use crate::milestone::Milestone;
use crate::time::UnixMillis;

/// Runs of the recount.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Puts a run's record. Safe to repeat: the latest summary stands, and a run that has ended stays as it ended.
    async fn put_run(&self, record: &RunRecord) -> Outcome<()>;

    /// A run's record.
    async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>>;

    /// The latest runs, newest first: the ids of runs begin with their time.
    async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>>;
}

/// Why a row key waits for a recount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueReason {
    /// Rows and counter differ.
    Drift,
    /// The counter is below zero.
    Negative,
    /// The weight of a row could not be read.
    Doubt,
    /// A person asked for it.
    Asked,
}

/// A row key that waits for a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The row key.
    pub key: RowKey,
    /// Why it was queued first.
    pub reason: QueueReason,
    /// How often it was asked for: a recount of fewer requests leaves it queued.
    pub asked: u64,
}

/// What waits for a recount: row keys, and an audit of everything.
#[async_trait]
pub trait RecountQueue: Send + Sync {
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
}

/// How far one segment of an audit has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditSegment {
    /// The segment, from 0.
    pub index: u32,
    /// Where the scan goes on.
    pub cursor: Option<Cursor>,
    /// Row keys that are neither proved nor repaired yet.
    pub unsettled: u64,
    /// Whether all of it was scanned.
    pub done: bool,
}

/// The segments of audits.
#[async_trait]
pub trait AuditSegments: Send + Sync {
    /// Puts how far a segment of an audit has come. Safe to repeat, by any process: one that is done stays as it is.
    async fn put_segment(&self, run: AuditRun, segment: &AuditSegment, now: UnixMillis) -> Outcome<()>;

    /// The segments of an audit.
    async fn segments(&self, run: AuditRun) -> Outcome<Vec<AuditSegment>>;
}

/// Why and by whom a count was corrected: one line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The counter corrected.
    pub counter: CounterId,
    /// The shard corrected; `None` where the total was mended.
    pub shard: Option<Shard>,
    /// When.
    pub at: UnixMillis,
    /// Which run of the recount.
    pub run: AuditRun,
    /// Which process.
    pub by: String,
    /// What was counted before.
    pub before: i64,
    /// What the rows came to.
    pub after: i64,
    /// Why: the cause's label.
    pub why: String,
}

/// The ledger of corrections.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The lines of a counter, newest first.
    async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>>;
}

/// A change that an operator made by hand, or began to: a line of the operators' ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it began.
    pub at: UnixMillis,
    /// Tells it from others that began then.
    pub token: u64,
    /// Who made it.
    pub by: String,
    /// Why.
    pub why: String,
    /// Which command.
    pub command: String,
    /// What it was about to change, as it was shown to the operator.
    pub plan: String,
    /// What it came to; `None` while it is under way, and for ever where its process died.
    pub ended: Option<String>,
}

/// The ledger of what operators change. A line stands before anything is changed, and says afterwards how it ended.
#[async_trait]
pub trait Operations: Send + Sync {
    /// Puts a line, in the place of the one that began it. Safe to repeat: it is the same line.
    async fn put_operation(&self, operation: &Operation) -> Outcome<()>;

    /// The latest lines, newest first.
    async fn operations(&self, limit: u32) -> Outcome<Vec<Operation>>;
}

/// A milestone as it stands, and the digest that was written with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The milestone.
    pub milestone: Milestone,
    /// What [`Milestone::digest`] said when it was written.
    pub digest: String,
}

/// The milestones of counters, written with the counters themselves and never changed.
#[async_trait]
pub trait Milestones: Send + Sync {
    /// Those of a counter, the greatest first, read consistently.
    async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>>;

    /// The one of threshold `n`, read consistently. One that cannot be read is poison.
    async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>>;
}

/// The whole table, for those who hand it on: every part can be had of it by itself.
pub trait Recounts: Runs + RecountQueue + AuditSegments + Ledger + Milestones {}

impl<T: Runs + RecountQueue + AuditSegments + Ledger + Milestones> Recounts for T {}
