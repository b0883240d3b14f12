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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::GapId;

    const PLAN: Plan = Plan { rows: 2, counters: 1, since: None };
    const GUARD: Duration = Duration::from_millis(10);
    const NOW: Now = Now { at: Duration::from_secs(1), wall: UnixMillis(1_000) };

    fn gap() -> Gap {
        Gap { id: GapId("a".to_owned()), kind: String::new(), detail: String::new(), opened: UnixMillis(5) }
    }

    fn open() -> Option<OpenAtStart> {
        Some(OpenAtStart::new(UnixMillis(9), &[gap()], Some(UnixMillis(7))))
    }

    fn done(indices: &[u32], unsettled: u64) -> AuditInput {
        let segment = |index: &u32| AuditSegment { index: *index, cursor: None, unsettled, done: true };
        AuditInput::Segments(indices.iter().map(segment).collect())
    }

    fn tell(audit: &mut Audit, input: AuditInput) -> Vec<AuditEffect> {
        let mut effects = Vec::new();
        audit.step(NOW, input, &mut effects);
        effects
    }

    fn begun(open: Option<OpenAtStart>) -> Audit {
        let mut audit = Audit::new(PLAN, open, GUARD);
        assert_eq!(tell(&mut audit, AuditInput::Begin), [AuditEffect::ReadSegments]);
        audit
    }

    #[test]
    fn counters_are_scanned_once_all_rows_are_and_the_stream_has_passed_them() {
        let mut audit = begun(None);
        assert_eq!(tell(&mut audit, done(&[], 0)), [AuditEffect::Work(vec![0, 1])]);
        let whole = Some(UnixMillis(900));
        assert_eq!(tell(&mut audit, AuditInput::Worked { any: true, whole }), [AuditEffect::ReadSegments]);
        let past = UnixMillis(910);
        assert_eq!(tell(&mut audit, done(&[0, 1], 0)), [AuditEffect::AwaitApplied(past)]);
        for early in [None, Some(past)] {
            assert_eq!(tell(&mut audit, AuditInput::Applied(early)), [AuditEffect::AwaitApplied(past)]);
        }
        assert_eq!(tell(&mut audit, AuditInput::Applied(Some(UnixMillis(911)))), [AuditEffect::ReadSegments]);
        assert_eq!(tell(&mut audit, done(&[0, 1], 3)), [AuditEffect::Work(vec![2])]);
        let worked = AuditInput::Worked { any: true, whole: None };
        assert_eq!(tell(&mut audit, worked), [AuditEffect::ReadSegments]);
        assert_eq!(tell(&mut audit, done(&[0, 1, 2], 3)), [AuditEffect::End(9)]);
    }

    #[test]
    fn segments_that_other_processes_work_on_are_waited_for_and_so_is_all_that_they_may_have_read() {
        let mut audit = begun(None);
        assert_eq!(tell(&mut audit, done(&[0], 0)), [AuditEffect::Work(vec![1])]);
        let until = NOW.at + OTHERS;
        let none = AuditInput::Worked { any: false, whole: None };
        assert_eq!(tell(&mut audit, none), [AuditEffect::WakeAt(until)]);
        assert_eq!(tell(&mut audit, AuditInput::Woke), [AuditEffect::WakeAt(until)], "too early");
        let mut effects = Vec::new();
        audit.step(Now { at: until, ..NOW }, AuditInput::Woke, &mut effects);
        assert_eq!(effects, [AuditEffect::ReadSegments]);
        assert_eq!(tell(&mut audit, done(&[0, 1], 0)), [AuditEffect::AwaitApplied(NOW.wall.plus(GUARD))]);
    }

    /// An audit whose segments are all done.
    fn through(open: Option<OpenAtStart>, unsettled: u64) -> (Audit, Vec<AuditEffect>) {
        let mut audit = begun(open);
        tell(&mut audit, done(&[0, 1, 2], unsettled));
        tell(&mut audit, AuditInput::Applied(Some(UnixMillis::MAX)));
        let effects = tell(&mut audit, done(&[0, 1, 2], unsettled));
        (audit, effects)
    }

    #[test]
    fn gaps_and_the_request_are_closed_if_nothing_is_left_unsettled() {
        let (mut audit, effects) = through(open(), 0);
        assert_eq!(effects, [AuditEffect::ReadGaps]);
        let other = Gap { opened: UnixMillis(6), ..gap() };
        let closed = tell(&mut audit, AuditInput::Gaps(vec![other, gap()]));
        let expected = [AuditEffect::CloseGap(gap()), AuditEffect::TakeOffQueue(UnixMillis(7)), AuditEffect::End(0)];
        assert_eq!(closed, expected);
        assert_eq!(through(open(), 1).1, [AuditEffect::End(3)]);
        assert_eq!(through(None, 0).1, [AuditEffect::End(0)], "a dry run, or a part of everything");
    }
}
