//! The consumer's fence: how far the rows of one Kafka partition have come, moved in the same transaction as the rows.
//!
//! Whether a request happened is never guessed: after an unknown outcome the fence is read again. Every row change carries the
//! fence's condition, so a late copy of an abandoned request finds the fence moved and changes nothing.

use std::fmt;

use thiserror::Error;

mod fences;

pub use fences::{Fences, Torn, least_of_each};

use crate::ids::{CounterId, Lane, LaneCount};

/// A record's place in its Kafka partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub topic: Box<str>,
    pub index: u32,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// What tells a topic from a later one of the same name: its id, or its name where the broker knows no ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopicId(pub Box<str>);

impl TopicId {
    /// What a fence of a paused partition counts in: no id and no name of a topic has a slash.
    const PAUSED: &'static str = "paused/";

    /// The same while an operator has paused its partition: no advance that was made ready before fits it, and no log has it.
    #[must_use]
    pub fn paused(&self) -> Self {
        Self(format!("{}{self}", Self::PAUSED).into())
    }

    /// The topic of a paused partition; `None` where it is not paused.
    pub fn resumed(&self) -> Option<Self> {
        self.0.strip_prefix(Self::PAUSED).map(|topic| Self(topic.into()))
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The stored fence of one lane: the rows of the lane's members equal the fold of the lane's events before `offset`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Whose it is.
    pub lane: Lane,
    /// The lane's first event not yet in the rows.
    pub offset: Offset,
    /// Raised by each change of what the rows' keys depend on, and by each reset: a writer that knows an older value is
    /// refused.
    pub cfg: u64,
    /// The topic that the offset counts in.
    pub topic: TopicId,
    /// What else holds from this fence on. It changes only with `cfg`.
    pub terms: Terms,
}

/// What a partition is read by, in all its lanes. A fence that states none of it has the least of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How many lanes the partition has.
    pub lanes: LaneCount,
    /// How many of the deployment's definitions are in force; 0: likes alone.
    pub defs: u32,
    /// Raised when offsets begin anew: what a cell has from before is no sign that an event was counted.
    pub generation: u64,
    /// Up to here events were applied before the fence was moved back: below it each cell is read before it is added to.
    pub redo: Option<Offset>,
    /// What adds to a sum counts from here on: an operator who began anew has said so. 0: all does.
    pub sums_from: Offset,
}

/// How far a cell has come, as it is stored beside its amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reached {
    /// The first offset that is not in it.
    pub to: Offset,
    /// The generation that the offset is of.
    pub generation: u64,
}

impl Reached {
    /// The condition of a cell's write, whose first event is at `from`: without it a sum has no cure for an event that is
    /// added twice, and no recount would see it.
    pub fn admits(stored: Option<Self>, generation: u64, from: Offset) -> bool {
        let behind =
            |stored: Self| stored.generation < generation || (stored.generation == generation && stored.to <= from);
        stored.is_none_or(behind)
    }
}

impl Fence {
    /// The fence of a partition of one lane that states no terms.
    pub fn new(offset: Offset, cfg: u64, topic: TopicId) -> Self {
        Self { lane: Lane::FIRST, offset, cfg, topic, terms: Terms::default() }
    }

    /// Whether events at the fence may be in cells already.
    pub fn is_redoing(&self) -> bool {
        self.terms.redo.is_some_and(|redo| self.offset < redo)
    }
}

/// What the broker says of a partition's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    pub topic: TopicId,
    /// The first record still there.
    pub start: Offset,
    /// The offset that the next record will have.
    pub end: Offset,
}

/// What to do with a partition whose fence and log are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// There is no fence: create the [`first`] if there still is none, then read it.
    Create,
    /// Read from the least lane's offset.
    Resume(Fences),
    /// Leave the partition alone and raise the alarm. A fence is never reset but by an operator.
    Halt(Alarm),
}

/// Why a partition stands still until an operator has looked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum Alarm {
    /// An operator has paused the partition.
    #[error("an operator has paused it: `tally resume consumer` lets it go on")]
    Paused,
    /// The topic was deleted and created again: its offsets count other events now.
    #[error("the topic is {found}, but the fence counts in {expected}: was it re-created")]
    TopicReplaced { expected: TopicId, found: TopicId },
    /// Retention has deleted events that were never applied.
    #[error("the fence is at {fence}, but the log starts at {start}: {} events were deleted unread", .start.0.saturating_sub(.fence.0))]
    LogTruncated {
        fence: Offset,
        /// The first record still there.
        start: Offset,
    },
    /// The log has lost records that were applied.
    #[error("the fence is at {fence}, but the log ends at {end}: has the log lost its tail")]
    BeyondLog { fence: Offset, end: Offset },
    /// The fence was moved back without a word of it: events behind it are in a sum already.
    #[error(
        "the fence is at {fence}, but the cell of `{counter}` has events up to {to}: was the fence moved back by hand"
    )]
    CellAhead { fence: Offset, counter: CounterId, to: Offset },
}

impl Alarm {
    /// The alarm's name, as a metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::TopicReplaced { .. } => "topic_replaced",
            Self::LogTruncated { .. } => "log_truncated",
            Self::BeyondLog { .. } => "beyond_log",
            Self::CellAhead { .. } => "cell_ahead",
        }
    }
}

/// Decides where a partition is read from. `stored` has to be read before `log`: a log read first may be that of an
/// earlier topic.
pub fn load(stored: Option<Fences>, log: &Log) -> Load {
    let Some(fences) = stored else { return Load::Create };
    match unfit(fences.topic(), fences.least().offset, fences.furthest(), log) {
        Some(alarm) => Load::Halt(alarm),
        None => Load::Resume(fences),
    }
}

/// What is wrong with a partition whose lanes are between `least` and `furthest`, if `log` is what there is to read.
pub fn unfit(topic: &TopicId, least: Offset, furthest: Offset, log: &Log) -> Option<Alarm> {
    if topic.resumed().is_some() {
        Some(Alarm::Paused)
    } else if *topic != log.topic {
        Some(Alarm::TopicReplaced { expected: topic.clone(), found: log.topic.clone() })
    } else if least < log.start {
        Some(Alarm::LogTruncated { fence: least, start: log.start })
    } else if furthest > log.end {
        Some(Alarm::BeyondLog { fence: furthest, end: log.end })
    } else {
        None
    }
}

/// The first fence of partition `index` of a topic that had so many `partitions` when it was first read: at the log's start,
/// as what was deleted before that was never promised. A partition that was added since begins with its first record ever:
/// records deleted before it was seen are an alarm, as on any other partition.
pub fn first(log: &Log, index: u32, partitions: u32) -> Fence {
    let offset = if index < partitions { log.start } else { Offset(0) };
    Fence::new(offset, 0, log.topic.clone())
}

/// The move of a fence, part of every transaction that changes rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Advance {
    /// The fence as this process knows it: the condition.
    pub from: Fence,
    /// The offset after the last event of the batch.
    pub to: Offset,
}

impl Advance {
    /// The condition: the stored fence is the one known. It makes repeating the transaction safe, since a second copy
    /// finds the offset moved.
    pub fn admitted_by(&self, stored: Option<&Fence>) -> bool {
        stored == Some(&self.from)
    }

    /// The fence after the transaction.
    pub fn reached(&self) -> Fence {
        Fence { offset: self.to, ..self.from.clone() }
    }
}

/// Why one item of a cancelled transaction was refused, as the store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// This item was not refused.
    Nothing,
    /// Another write of the item was under way.
    Conflict,
    /// The store had no capacity.
    Throttled,
    /// The condition did not hold.
    Condition,
    /// The table does not take such an item.
    Invalid,
    /// The row key holds as much as a row key can.
    Full,
    /// Another reason.
    Other,
}

/// How a transaction ended, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It happened.
    Done,
    /// It was cancelled for these reasons.
    Cancelled(Vec<Refused>),
    /// The store does not take the request; its own words.
    Invalid(String),
    /// The store takes nothing until an operator acts.
    Fatal(String),
    /// It may have happened or not: a time-out, a lost connection, an error without an answer.
    Unknown(String),
}

/// What follows a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The batch is in the rows.
    Go,
    /// Wait, then send the same transaction again: it certainly did not happen.
    Again,
    /// Read the fence again and continue where it stands.
    Reload,
    /// The table does not take a row of the batch: find it.
    Bisect,
    /// Stand still.
    Halt,
}

impl Commit {
    /// Whether the condition of a row did not hold while the fence's did: only cells have one.
    pub fn refuses_a_cell(&self) -> bool {
        let Self::Cancelled(reasons) = self else { return false };
        reasons
            .split_first()
            .is_some_and(|(fence, rows)| *fence == Refused::Nothing && rows.contains(&Refused::Condition))
    }

    /// Decides what follows. A cancellation for conflict and throttling alone, and a request that the store calls invalid, say
    /// that nothing happened.
    pub fn next(&self) -> Next {
        match self {
            Self::Done => Next::Go,
            Self::Unknown(_) => Next::Reload,
            Self::Invalid(_) => Next::Bisect,
            Self::Fatal(_) => Next::Halt,
            Self::Cancelled(reasons) => after_cancellation(reasons),
        }
    }
}

fn after_cancellation(reasons: &[Refused]) -> Next {
    let given = || reasons.iter().filter(|reason| **reason != Refused::Nothing);
    if given().any(|reason| *reason == Refused::Condition || *reason == Refused::Other) || given().count() == 0 {
        // First of all: what a sender with a stale fence is told about rows says nothing.
        Next::Reload
    } else if given().any(|reason| *reason == Refused::Full) {
        Next::Halt
    } else if given().any(|reason| *reason == Refused::Invalid) {
        Next::Bisect
    } else {
        Next::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(topic: &str, start: u64, end: u64) -> Log {
        Log { topic: TopicId(topic.into()), start: Offset(start), end: Offset(end) }
    }

    fn fence(offset: u64) -> Fence {
        Fence::new(Offset(offset), 3, TopicId("t1".into()))
    }

    #[test]
    fn a_partition_without_a_fence_gets_one_at_the_start_of_its_log() {
        let log = log("t1", 5, 9);
        assert_eq!(load(None, &log), Load::Create);
        let created = Fence::new(Offset(5), 0, TopicId("t1".into()));
        assert_eq!(first(&log, 11, 12), created);
    }

    #[test]
    fn an_added_partition_begins_with_its_first_record_and_one_that_is_gone_is_an_alarm() {
        let added = first(&log("t1", 5, 9), 12, 12);
        assert_eq!(added.offset, Offset(0));
        let Load::Halt(alarm) = load(Some(added.clone().into()), &log("t1", 5, 9)) else { panic!() };
        assert_eq!(alarm.to_string(), "the fence is at 0, but the log starts at 5: 5 events were deleted unread");
        assert_eq!(load(Some(added.clone().into()), &log("t1", 0, 9)), Load::Resume(added.into()));
    }

    #[test]
    fn reading_goes_on_at_the_fence_and_nowhere_else() {
        for offset in [5, 7, 9] {
            assert_eq!(load(Some(fence(offset).into()), &log("t1", 5, 9)), Load::Resume(fence(offset).into()));
        }
    }

    #[test]
    fn a_log_the_fence_does_not_fit_halts_the_partition() {
        let alarm = |log: &Log, offset| match load(Some(fence(offset).into()), log) {
            Load::Halt(alarm) => alarm.name(),
            other => panic!("{other:?}"),
        };
        assert_eq!(alarm(&log("t2", 5, 9), 7), "topic_replaced");
        assert_eq!(alarm(&log("t1", 5, 9), 4), "log_truncated");
        assert_eq!(alarm(&log("t1", 5, 9), 10), "beyond_log");
    }

    #[test]
    fn a_paused_fence_admits_no_advance_halts_and_is_what_it_was_once_it_is_resumed() {
        let paused = Fence { topic: fence(7).topic.paused(), ..fence(7) };
        assert!(!Advance { from: fence(7), to: Offset(8) }.admitted_by(Some(&paused)));
        assert_eq!(load(Some(paused.clone().into()), &log("t1", 5, 9)), Load::Halt(Alarm::Paused));
        assert_eq!(load(Some(paused.clone().into()), &log("paused/t1", 5, 9)), Load::Halt(Alarm::Paused));
        assert_eq!(paused.topic.resumed(), Some(fence(7).topic));
        assert_eq!(fence(7).topic.resumed(), None);
    }

    #[test]
    fn an_advance_is_admitted_by_exactly_the_fence_it_knows() {
        let advance = Advance { from: fence(5), to: Offset(8) };
        assert!(advance.admitted_by(Some(&fence(5))));
        let moved = advance.reached();
        assert_eq!(moved, fence(8));
        let other_cfg = Fence { cfg: 4, ..fence(5) };
        let other_topic = Fence { topic: TopicId("t2".into()), ..fence(5) };
        let other_lane = Fence { lane: Lane::new(1).unwrap(), ..fence(5) };
        for stored in [None, Some(&moved), Some(&other_cfg), Some(&other_topic), Some(&other_lane)] {
            assert!(!advance.admitted_by(stored), "{stored:?}");
        }
    }

    #[test]
    fn only_a_cancellation_for_conflict_or_throttling_alone_is_sent_again() {
        use Refused::{Condition, Conflict, Full, Invalid, Nothing, Other, Throttled};
        let next = |reasons: &[Refused]| Commit::Cancelled(reasons.to_vec()).next();
        assert_eq!(next(&[Nothing, Conflict]), Next::Again);
        assert_eq!(next(&[Throttled, Nothing, Conflict]), Next::Again);
        assert_eq!(next(&[Condition, Nothing]), Next::Reload);
        assert_eq!(next(&[Condition, Conflict]), Next::Reload);
        assert_eq!(next(&[Other, Conflict]), Next::Reload);
        assert_eq!(next(&[Nothing, Nothing]), Next::Reload, "a cancellation that names no reason explains nothing");
        assert_eq!(next(&[]), Next::Reload);
        assert_eq!(next(&[Nothing, Invalid]), Next::Bisect);
        assert_eq!(next(&[Nothing, Full]), Next::Halt);
        assert_eq!(next(&[Condition, Full]), Next::Reload, "a sender with a stale fence learns nothing about rows");
    }

    #[test]
    fn an_unknown_outcome_never_means_that_nothing_happened() {
        assert_eq!(Commit::Unknown("timeout".into()).next(), Next::Reload);
    }
}
