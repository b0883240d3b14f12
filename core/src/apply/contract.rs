//! What a runner hands to the machine, and what it carries out for it.

use std::sync::Arc;
use std::time::Duration;

use crate::counter::{Counter, Update};
use crate::fault::Fault;
use crate::ids::{CounterId, RowKey, Sequence};
use crate::lineage::{Loss, Picture};
use crate::milestone::{Ladder, Milestone};
use crate::ports::{Applied, Outcome, QueueReason};
use crate::served::Served;
use crate::tally::{Cut, CutRules, Record};
use crate::time::UnixMillis;
use crate::window::{CaptureLimits, Report};

/// What bounds the work of one stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When a prefix ends.
    pub cut: CutRules,
    /// When a capture is given up.
    pub window: CaptureLimits,
    /// Counters of one prefix that are written side by side.
    pub concurrency: usize,
}

/// One request of one machine: its answer names it. No two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The last record of the latest prefix.
    pub(super) prefix: Option<Sequence>,
    /// Requests since that prefix was begun.
    pub(super) nth: u64,
}

/// What the runner tells the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Records from the reader that follow right on those before.
    Records(Vec<Record>),
    /// The reader has passed on what there is for now: a prefix that was gathered because the reader was behind is large enough.
    Drained,
    /// The reader has passed on everything written before this time.
    UpTo(UnixMillis),
    /// What the reader passes on next may not follow right on what was before.
    Break,
    /// The stream shard has ended, and the reader has passed on all of it.
    EndOfShard,
    /// The reader was stopped: what it has passed on is to be finished.
    ReaderStopped,
    /// A request was answered.
    Answered(RequestId, Answer),
    /// A newer picture of the stream. Begins nothing by itself.
    Picture(Arc<Picture>),
    /// The deployment's ladder, as it was just read. Begins nothing by itself.
    Ladder(Ladder),
    /// How many records may be gathered at once at most while the reader is behind or the store is slow. Begins nothing by itself.
    Share(usize),
    /// The time of [`Apply::wake_at`](super::Apply::wake_at) has come.
    Woke,
}

/// What the store answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Update`], with every fault.
    Updated(Outcome<Applied>),
    /// To [`Request::MarkSuspect`]: whether the store has taken the mark, or never will.
    Marked(bool),
    /// To [`Request::ReadCounter`]: the counter, `None` where there is none or the store will never show it.
    Read(Option<Counter>),
    /// To [`Request::PutReport`], with every fault.
    Reported(Outcome<()>),
    /// To [`Request::ReadLadder`].
    Ladder(Ladder),
    /// To every other request, once it has succeeded.
    Done,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this, side by side with other requests, and answer it.
    Ask(RequestId, Request),
    /// A counter's new count, for the cache and the feed.
    Publish(CounterId, Served),
    /// An update was refused.
    Refused(RefusedBy),
    /// A counter's total has reached this threshold, and the record of it stands.
    Reached(CounterId, Milestone),
    /// The store will never take the update of this counter: its shards are marked and queued for a recount.
    PutAside(CounterId, String),
    /// A recount window ended here.
    WindowClosed(WindowEnd),
    /// A prefix is applied and its checkpoint stored.
    Flushed(Flushed),
    /// Nothing more will be asked for.
    Ended(End),
}

/// What is asked of a store. Every one of them is safe to repeat; faults that pass are repeated by the runner, but for
/// those that the answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Apply one update to a counter. Repeating it is safe: the watermark it sets is the one its condition wants absent.
    Update {
        /// The counter.
        counter: CounterId,
        /// The update.
        update: Arc<Update>,
        /// Why it is sent once more.
        again: Option<Again>,
    },
    /// Mark the count of a row key as one that lacks records. What is marked stays as it is.
    MarkSuspect(RowKey),
    /// Record a loss durably, and hold behind it. The same loss is one gap.
    OpenGap(Loss),
    /// Read a counter.
    ReadCounter(CounterId),
    /// Read the deployment's ladder: a counter has more of it than is known here.
    ReadLadder,
    /// Queue a row key for a recount. A key is queued once.
    Queue(RowKey, QueueReason),
    /// Write the report of a window. Every complete report of one run is the same.
    PutReport {
        /// The report.
        report: Arc<Report>,
        /// Why it is sent once more.
        again: Option<Again>,
    },
    /// Move the checkpoint. Its position never moves back.
    MoveCheckpoint {
        /// Everything up to here is in the counters.
        to: Sequence,
        /// So is everything written before this time.
        at: UnixMillis,
    },
    /// Store that everything written before this time is in the counters. It never moves back.
    RefreshCheckpoint(UnixMillis),
}

/// What a request that is sent once more has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// The fault that its last try ended in.
    pub fault: Fault,
    /// How many tries have failed before that one.
    pub tries: u32,
}

/// What a refused update met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedBy {
    /// Some of its records are in the counter already.
    Applied,
    /// The stream shard is finished.
    Finished,
    /// The counter's floor is higher than the one it would set.
    Floor,
    /// Another stream shard has fed a shard that it touches.
    Feeder,
    /// More of the ladder is in force for the counter than its sender knew.
    Ladder,
    /// The total stood where a threshold might have been passed unrecorded.
    Total,
    /// A milestone that it would have recorded stands already.
    Standing,
    /// Nothing that the counter shows.
    Unexplained,
}

impl RefusedBy {
    /// The cause, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Finished => "finished",
            Self::Floor => "floor",
            Self::Feeder => "feeder",
            Self::Ladder => "ladder",
            Self::Total => "total",
            Self::Standing => "standing",
            Self::Unexplained => "unexplained",
        }
    }
}

/// What became of a recount window that ended here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowEnd {
    /// Its report is written.
    Reported,
    /// It was not captured from its opening marker on, so there is no report.
    Incomplete,
    /// Its report could not be written in time: its run begins anew.
    Failed(RowKey, Fault),
}

/// A prefix that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Why it ended.
    pub cut: Cut,
    /// Counters that had records in it.
    pub counters: usize,
    /// Its records.
    pub records: usize,
    /// Time from the cut until the checkpoint was stored.
    pub took: Duration,
}

/// How a machine ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// What the reader passed on is applied; the reader was stopped.
    Stopped,
    /// The stream shard has ended and all of it is applied: it may be closed. Everything written before this time was
    /// applied while it was open.
    ShardApplied(UnixMillis),
    /// Another worker has finished the stream shard.
    Finished,
    /// The store refuses every such request until an operator acts.
    Failed {
        /// What could not be done.
        what: &'static str,
        /// Why.
        fault: Fault,
    },
}
