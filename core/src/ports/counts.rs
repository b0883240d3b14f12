//! The counts table: one item per counter, changed by conditional updates alone.

use async_trait::async_trait;

use super::{Cursor, Outcome, Page, Segment};
use crate::counter::{Counter, Update};
use crate::ids::{CounterId, RowKey, Shard};
use crate::time::UnixMillis;
use crate::window::{Verdict, WindowRun};

/// What became of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was taken; the counter afterwards.
    Taken(Counter),
    /// A condition did not hold; the counter that refused, `None` where there is none.
    Refused(Option<Counter>),
    /// Nothing was done: milestones of these thresholds stand already, and no record of one is ever replaced.
    Standing(Vec<i64>),
}

/// What became of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It stands, and so does its ledger entry.
    Stands,
    /// The counter no longer held its token, or the outcome is not known: begin a new run.
    Void,
    /// Another write was at the same items: certainly not carried out, so the same verdict may be sent once more.
    NotDone,
}

/// What became of mending a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mended {
    /// The total is the sum again.
    Mended,
    /// The counter has changed since it was read.
    Changed,
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
    /// Which window.
    pub run: WindowRun,
    /// Which process.
    pub by: String,
    /// The rows counted before.
    pub before: i64,
    /// The rows counted after.
    pub after: i64,
    /// Why: asked for, drift, negative, suspect, total.
    pub why: String,
}

/// The counts table.
#[async_trait]
pub trait Counts: Send + Sync {
    /// Applies `update` to the counter `id`, creating it, and with it puts the milestones that it reaches, all or nothing,
    /// each where there is none. Safe to repeat: the watermark it sets is the one its condition wants not to be there. A
    /// conflict with another write is a transient fault.
    async fn apply(&self, id: &CounterId, update: &Update) -> Outcome<Applied>;

    /// One counter, read consistently.
    async fn counter(&self, id: &CounterId) -> Outcome<Option<Counter>>;

    /// Several counters, read consistently, in the order asked. One that cannot be read fails alone.
    async fn counters(&self, ids: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>>;

    /// Corrects a count and writes the ledger entry, both or neither, if the counter holds the verdict's token. Never
    /// repeated by an adapter: after an unknown outcome a new run says what is so.
    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged>;

    /// Sets the total of the counter `id` to `sum` and writes the ledger entry, if the counter still has `version`. Safe to
    /// repeat: it moves the version.
    async fn mend_total(&self, id: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended>;

    /// Marks the count of a row key as one that may be wrong, creating it, so that no answer calls it exact until a
    /// verdict in the suspect form whose rows were read behind this mark: each mark counts as a switch. Safe to repeat: a
    /// copy voids a verdict or costs another recount, and no count.
    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()>;

    /// One page of all counters, read consistently. One that cannot be read fails alone.
    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>>;
}
