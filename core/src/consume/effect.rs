//! What the machine of a partition is told, and what it asks for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Letter;
use crate::batch::{Change, SealedBatch, Trigger};
use crate::definitions::Definitions;
use crate::fence::{Advance, Alarm, Commit, Fence, Fences, Log, Offset, Reached, Terms};
use crate::homes::{CounterMap, Sought};
use crate::ids::{CounterId, Lane, ShardCount};
use crate::ports::Outcome;
use crate::ports::log::Records;
use crate::time::UnixMillis;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// The partition was assigned: the first input.
    Assigned,
    /// The stored fences of all lanes, if there are any.
    Fence(Outcome<Option<Fences>>),
    /// What the broker says of the log.
    Log(Outcome<Log>),
    /// How many partitions the topic had when the deployment first read it.
    FirstSeen(Outcome<u32>),
    /// A fence was created or replaced, or another writer came first: it is read again either way.
    FenceStored(Outcome<()>),
    /// The deployment's definitions.
    Definitions(Outcome<Definitions>),
    /// How far the cells that were asked for by a lane have come, in their order; `None` where there is none.
    Cells(Lane, Outcome<Vec<Option<Reached>>>),
    /// How often changes of maps were announced.
    Announced(Outcome<u64>),
    /// The maps that a lane asked for; `None` of a counter that has none.
    Maps(Lane, Outcome<Vec<(CounterId, Option<CounterMap>)>>),
    /// Under which home each member's row stands that a lane asked for, in their order; `None`: under none of those.
    Located(Lane, Outcome<Vec<Option<ShardCount>>>),
    /// How many partitions the topic has.
    Partitions(Outcome<u32>),
    /// Records are read from where it was asked.
    Started(Outcome<()>),
    /// The next records. A fault means that the position cannot be read.
    Records(Outcome<Arc<Records>>),
    /// How a lane's transaction ended.
    Committed(Lane, Commit),
    /// The dead-letter topic has acknowledged this letter.
    LetterStored(Arc<Letter>),
    /// The dead-letter topic did not take this letter.
    LetterRefused(Arc<Letter>),
    /// The wait is over that was asked for: by a lane, or by the partition.
    Waited(Option<Lane>),
    /// The time of [`wake_at`](super::Consume::wake_at) has come.
    Woke,
    /// The log was looked at while it was read.
    Looked(Look),
    /// Changes of maps were announced so often, as this process has seen meanwhile.
    Moved(u64),
    /// The partition has to be given back.
    Leave(Leave),
}

/// A look at the log beside the running reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The least lane's fence as it was known before the broker was asked.
    pub fence: Fence,
    /// The offset of the lane that was furthest ahead then.
    pub furthest: Offset,
    /// What the broker said.
    pub log: Log,
    /// How many partitions the topic has.
    pub partitions: u32,
}

/// Why a partition is given back, and so how much may still be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leave {
    /// The process stops: what is gathered is written.
    Stopping,
    /// The group wants the partition back: what is gathered is written, within five seconds.
    Revoked,
    /// The partition is lost, or the process has no more time: what is under way is dropped.
    AtOnce,
}

/// What is to be done. The requests say which input answers them; an answer may fail to come only after
/// [`Left`](Self::Left).
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read the stored fences of all lanes, consistently and as of one moment. Answered by [`Input::Fence`].
    ReadFence,
    /// Ask the broker about the log. Answered by [`Input::Log`].
    ReadLog,
    /// Recall how many partitions the topic had when the deployment first read it: so many, if that is not known. Answered by
    /// [`Input::FirstSeen`]. Safe to repeat: what is there already stays.
    RecallPartitions(u32),
    /// Store this fence if there is none. Answered by [`Input::FenceStored`]. Safe to repeat: a fence that is there stays.
    CreateFence(Fence),
    /// Replace the fences `seen` by `by`, with their `cfg` one higher, all in one transaction. Answered by
    /// [`Input::FenceStored`]. Safe to repeat: the condition holds once.
    ReplaceFences {
        /// The fences that have to stand.
        seen: Fences,
        /// The fences to put in their place.
        by: Fences,
        /// Why.
        why: Replacing,
    },
    /// Read the deployment's definitions, consistently. Answered by [`Input::Definitions`].
    ReadDefinitions,
    /// Read how far these counters' cells of this partition have come, consistently. Answered by [`Input::Cells`].
    ReadCells {
        /// The lane that asks.
        lane: Lane,
        /// The counters.
        counters: Vec<CounterId>,
    },
    /// Read how often changes of maps were announced, consistently. Answered by [`Input::Announced`].
    ReadAnnounced,
    /// Read the maps of these counters, consistently. Answered by [`Input::Maps`].
    ReadMaps {
        /// The lane that asks.
        lane: Lane,
        /// The counters.
        counters: Vec<CounterId>,
    },
    /// Look consistently under which home each of these members has its row. What the store leaves unanswered is asked again: it
    /// is not a row that is not there. Answered by [`Input::Located`].
    Locate {
        /// The lane that asks.
        lane: Lane,
        /// Whose rows.
        sought: Vec<Sought>,
    },
    /// Ask how many partitions the topic has. Answered by [`Input::Partitions`].
    CountPartitions,
    /// Read from this offset on, and drop what was read from elsewhere. Answered by [`Input::Started`].
    StartAt(Offset),
    /// Send this transaction. Answered by [`Input::Committed`]. Safe to repeat, also by a late copy: it carries the
    /// fence's condition.
    Commit(Transaction),
    /// Write this dead letter, after the wait of a try that follows `tries` failed ones. Answered by
    /// [`Input::LetterStored`] or [`Input::LetterRefused`]. Repeating it is harmless: where it came from identifies it.
    StoreLetter {
        /// The letter.
        letter: Arc<Letter>,
        /// How often it was refused.
        tries: u32,
    },
    /// Wait for the part that is drawn of [`Backoff::STORE`](crate::backoff::Backoff::STORE)'s `attempt`. Answered by
    /// [`Input::Waited`].
    BackOff {
        /// The lane that waits; `None`: the partition does.
        lane: Option<Lane>,
        /// Which repeat follows, from 0.
        attempt: u32,
    },
    /// Wait exactly so long. Answered by [`Input::Waited`].
    Rest(Duration),
    /// Have the rows of this set put over `to` shards from now on, if they are put over `from` still. Not answered: what comes of
    /// it is announced. Safe to repeat, and to leave undone.
    Spread {
        /// The set.
        counter: CounterId,
        /// Over how many shards they are put, as far as is known.
        from: ShardCount,
        /// Over how many they shall be.
        to: ShardCount,
    },
    /// Tell Kafka that everything before this offset is done: tools show lag by it, and nothing relies on it.
    TellKafka(Offset),
    /// A fact for metrics and logs.
    Note(Note),
    /// The partition is let go: no answer is waited for any more.
    Left {
        /// How far the rows have come, where that is known.
        fence: Option<Offset>,
        /// Whether records were read that are not written: the next owner reads them again.
        unsent: bool,
    },
}

/// Why a fence is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacing {
    /// The broker tells topic ids now, and the fence has the topic's name in its place.
    TopicNamed,
    /// There are more definitions than it states.
    Definitions,
    /// The partition is to have more lanes or fewer.
    Lanes,
}

/// One transaction: the fence's move, and the rows that go with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transaction {
    /// The fence's move, and its condition.
    pub advance: Advance,
    /// What the rows become.
    pub batch: Arc<SealedBatch>,
    /// Under which home each row of the batch is, by its number; `None` and those past the end: under the deployment's shards.
    pub homes: Vec<Option<ShardCount>>,
    /// How far the cells have come that may have events of the batch already, in the order of the batch's cells; empty where
    /// none has.
    pub reached: Vec<Option<Reached>>,
}

impl Transaction {
    /// The lane that sends it.
    pub fn lane(&self) -> Lane {
        self.advance.from.lane
    }

    /// What it changes, beside the fence.
    pub fn changes(&self) -> Vec<Change<'_>> {
        let Terms { generation, sums_from, .. } = self.advance.from.terms;
        let cells: Vec<_> = self.batch.cells().zip(&self.reached).collect();
        self.batch.changes_behind(&self.homes, |counter| {
            let reached = cells.iter().find(|(cell, _)| *cell == counter).and_then(|(_, reached)| **reached);
            let reached = reached.filter(|reached| reached.generation == generation);
            reached.map_or(sums_from, |reached| reached.to.max(sums_from))
        })
    }
}

/// Events that lie in another partition than their key scheme says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Misrouted {
    pub events: u64,
    /// The last of them.
    pub last: Offset,
    /// How many partitions the topic has.
    pub partitions: u32,
}

/// A fact for metrics and logs.
#[derive(Clone, Debug)]
pub enum Note {
    /// The fence is being read, for this reason. Dead letters that are not acknowledged are dropped.
    Loading(Cause),
    /// These fences were read.
    Loaded(Fences),
    /// Records are read from the least of these fences on.
    Reading(Fences),
    /// A call failed and is sent again after a wait.
    Retrying {
        /// The call.
        call: &'static str,
        /// The class of its fault.
        class: &'static str,
        /// How often it has failed.
        tries: u32,
        /// What was answered.
        why: String,
    },
    /// Records were taken into the batch.
    Taken {
        /// Those before the fence, left out.
        stale: u64,
        /// Those in another partition than their key scheme says, if there are any.
        misrouted: Option<Misrouted>,
        /// Those that state something as their region that is none.
        bad_regions: u64,
        /// When the oldest of them was recorded.
        oldest: Option<UnixMillis>,
    },
    /// A batch is about to be written.
    Sealed {
        /// The lane whose batch it is.
        lane: Lane,
        /// What made it due.
        trigger: Trigger,
        /// Its first offset.
        from: Offset,
        /// The offset behind it.
        to: Offset,
    },
    /// So many events are in the rows.
    Applied(usize),
    /// A batch was halved to find the row that the table does not take.
    Bisected,
    /// A whole batch is written.
    Flushed {
        /// The lane whose batch it was.
        lane: Lane,
        /// What made it due.
        trigger: Trigger,
        /// How many events it had.
        events: usize,
        /// How many rows they were.
        rows: usize,
        /// How long it took from being due.
        took: Duration,
    },
    /// The fence of a lane has moved.
    Advanced {
        /// Where the least lane's stands.
        fence: Fence,
        /// The offset of the lane that is furthest ahead.
        furthest: Offset,
        /// When the next record was recorded, if it was read already.
        waiting: Option<UnixMillis>,
    },
    /// The fence has to be read again.
    Doubted {
        /// The kind of reason.
        cause: Cause,
        /// The reason.
        why: String,
    },
    /// The partition stands still.
    Halted {
        /// Why.
        halt: Halt,
        /// Whether it stood still for the same reason before, and has written nothing since.
        again: bool,
    },
}

/// What made it necessary to read the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The partition was assigned.
    Assigned,
    /// A transaction's outcome is not known.
    Unknown,
    /// The fence was not the one known.
    Condition,
    /// A transaction was cancelled without a reason that says what happened.
    Unclear,
    /// The log cannot be read at the position, or may be another log.
    Position,
    /// The partition stood still for a while.
    Recheck,
    /// More definitions were taken.
    Definitions,
    /// The partition has more lanes or fewer.
    Lanes,
    /// A cell may be ahead of the fence.
    Cell,
}

impl Cause {
    /// The cause, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Unknown => "unknown",
            Self::Condition => "condition",
            Self::Unclear => "unclear",
            Self::Position => "position",
            Self::Recheck => "recheck",
            Self::Definitions => "definitions",
            Self::Lanes => "lanes",
            Self::Cell => "cell",
        }
    }
}

/// Why a partition stands still.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Halt {
    /// Fence and log do not fit.
    Alarm(Alarm),
    /// A dependency refuses, and will until an operator acts; its own words.
    Refused(String),
}

impl Halt {
    /// The alarm's name, as a metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alarm(alarm) => alarm.name(),
            Self::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alarm(alarm) => alarm.fmt(f),
            Self::Refused(text) => f.write_str(text),
        }
    }
}
