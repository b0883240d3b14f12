//! An audit as one process takes part in it, as a machine without I/O: the rows, then the counters, then what may close.
//!
//! Counters without rows can only be told once all rows were seen, by whichever process; and a gap that was open when the
//! audit began closes once every segment is done and no row key is left unsettled.

use std::time::Duration;

use super::{OpenAtStart, Plan};
use crate::ports::{AuditSegment, Gap};
use crate::time::{Now, UnixMillis};

/// Between two looks at segments that other processes work on.
const OTHERS: Duration = Duration::from_secs(2);

/// What an audit asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuditEffect {
    /// Read the segments of the audit.
    ReadSegments,
    /// Work on these segments, each unless another process does.
    Work(Vec<u32>),
    /// Say when the monotonic clock has come this far.
    WakeAt(Duration),
    /// Say up to when every open stream shard is applied, once that may be after this time.
    AwaitApplied(UnixMillis),
    /// Read the gaps that stand open.
    ReadGaps,
    /// Close this gap, if it is still the one opened then.
    CloseGap(Gap),
    /// Take the request off the queue, if it is still the one made then.
    TakeOffQueue(UnixMillis),
    /// It is over; so many row keys are neither proved nor repaired.
    End(u64),
}

/// What an audit is told.
#[derive(Clone, Debug)]
pub enum AuditInput {
    /// Begin.
    Begin,
    /// The segments that are known.
    Segments(Vec<AuditSegment>),
    /// What came of the segments to work on.
    Worked {
        /// Whether this process could work on any of them.
        any: bool,
        /// When the last page of rows was read, where all of them were read here.
        whole: Option<UnixMillis>,
    },
    /// The time asked for has come.
    Woke,
    /// Up to when every open stream shard is applied.
    Applied(Option<UnixMillis>),
    /// The gaps that stand open.
    Gaps(Vec<Gap>),
}

/// One process's part in an audit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Audit {
    plan: Plan,
    /// What it may close; nothing for a dry run, and for one that does not look at everything.
    open: Option<OpenAtStart>,
    /// How far two records of a row key may be out of order.
    guard: Duration,
    stage: Stage,
    /// Which table is scanned.
    pass: Pass,
    /// When the last page of rows was read, where all of them were read here.
    whole: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pass {
    Rows,
    Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New,
    Segments,
    Working,
    Others { until: Duration },
    Applied { past: UnixMillis },
    Gaps { unsettled: u64 },
    Over,
}

impl Audit {
    /// A part in the audit of `plan`, which may close what was `open` when the audit began.
    pub fn new(plan: Plan, open: Option<OpenAtStart>, guard: Duration) -> Self {
        Self { plan, open, guard, stage: Stage::New, pass: Pass::Rows, whole: None }
    }

    /// Takes an input, and adds what follows to `effects`. `now.wall` is by the clock that is furthest ahead, ours or a
    /// change-streamer's.
    pub fn step(&mut self, now: Now, input: AuditInput, effects: &mut Vec<AuditEffect>) {
        match (self.stage, input) {
            (Stage::New, AuditInput::Begin) => self.read_segments(effects),
            (Stage::Segments, AuditInput::Segments(known)) => self.segments(now, &known, effects),
            (Stage::Working, AuditInput::Worked { any, whole }) => {
                self.whole = self.whole.or(whole);
                if any {
                    return self.read_segments(effects);
                }
                let until = now.at + OTHERS;
                self.stage = Stage::Others { until };
                effects.push(AuditEffect::WakeAt(until));
            }
            (Stage::Others { until }, AuditInput::Woke) if now.at < until => effects.push(AuditEffect::WakeAt(until)),
            (Stage::Others { .. }, AuditInput::Woke) => self.read_segments(effects),
            (Stage::Applied { past }, AuditInput::Applied(as_of)) => {
                if as_of.is_some_and(|as_of| as_of > past) {
                    self.pass = Pass::Counters;
                    return self.read_segments(effects);
                }
                effects.push(AuditEffect::AwaitApplied(past));
            }
            (Stage::Gaps { unsettled }, AuditInput::Gaps(standing)) => self.close(&standing, unsettled, effects),
            // Not waited for.
            _ => {}
        }
    }

    fn read_segments(&mut self, effects: &mut Vec<AuditEffect>) {
        self.stage = Stage::Segments;
        effects.push(AuditEffect::ReadSegments);
    }

    fn segments(&mut self, now: Now, known: &[AuditSegment], effects: &mut Vec<AuditEffect>) {
        let of_pass = match self.pass {
            Pass::Rows => self.plan.row_segments(),
            Pass::Counters => self.plan.counter_segments(),
        };
        let is_done = |index: &u32| known.iter().any(|segment| segment.index == *index && segment.done);
        let left: Vec<u32> = of_pass.filter(|index| !is_done(index)).collect();
        if !left.is_empty() {
            self.stage = Stage::Working;
            return effects.push(AuditEffect::Work(left));
        }
        match self.pass {
            // What was taken away before its place was scanned is gone from the counters by then, too.
            Pass::Rows => {
                let past = self.whole.unwrap_or(now.wall).plus(self.guard);
                self.stage = Stage::Applied { past };
                effects.push(AuditEffect::AwaitApplied(past));
            }
            Pass::Counters => {
                let unsettled = known.iter().map(|segment| segment.unsettled).sum();
                self.settled(unsettled, effects);
            }
        }
    }

    fn settled(&mut self, unsettled: u64, effects: &mut Vec<AuditEffect>) {
        if unsettled == 0 && self.open.is_some() {
            self.stage = Stage::Gaps { unsettled };
            return effects.push(AuditEffect::ReadGaps);
        }
        self.stage = Stage::Over;
        effects.push(AuditEffect::End(unsettled));
    }

    fn close(&mut self, standing: &[Gap], unsettled: u64, effects: &mut Vec<AuditEffect>) {
        if let Some(open) = &self.open {
            effects.extend(open.closable(standing, unsettled).cloned().map(AuditEffect::CloseGap));
            effects.extend(open.asked.map(AuditEffect::TakeOffQueue));
        }
        self.stage = Stage::Over;
        effects.push(AuditEffect::End(unsettled));
    }
}
