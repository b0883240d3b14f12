//! An audit by two processes while rows change, the change-streamer lags and a piece of the stream is lost: the machines
//! that ship, told what the tables answer.
//!
//! A row key is called proved only if its count was right at one moment since its scan began, and a gap closes only by an
//! audit that began after it and has proved or repaired every row key.

mod looks;
mod tests;

use std::sync::Arc;

use std::time::Duration;

use tally_core::audit::{
    Audit, AuditEffect, AuditInput, Doubt, FollowUp, FollowUpEffect, FollowUpInput, Horizon, OpenAtStart, Plan,
    ProofEffect, ProofInput, Prover, RowsRead, ScanEffect, ScanInput, Scanner, Touched, Trail,
};
use tally_core::counter::{Counter, ShardTally};
use tally_core::ids::{MemberKey, Ordinal, RowKey, Sequence, ShardCount};
use tally_core::lineage::{Checkpoint, Lineage};
use tally_core::ports::{AuditSegment, Gap, GapId, ScannedRow};
use tally_core::tally::{Image, RawRecord};
use tally_core::time::{Now, UnixMillis};
use tally_core::watermark::Watermarks;
use tally_core::weight::{Stated, Weight};
use tally_core::window::{Repaired, Roster};

use looks::LookedAt;

use crate::explore::{Model, bounds, breaks, holds};

/// A rule of the audit that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// The checkpoints are read before the rows.
    HorizonBeforeRows,
    /// A look compares the counter's version after its rows with the one before.
    VersionCompared,
    /// The trail begins before the rows are read.
    TrailBeforeRows,
    /// The trail is read up to where the counter stands.
    TrailRead,
    /// Of the trail only what the counter contains is put in the rows' place.
    TrailCut,
    /// Rows and trail are held against the counter read last.
    LastCounter,
    /// What the records say takes the place of the rows they touched: it is not added to them.
    InTheirPlace,
    /// Counters are read once every stream shard has passed the reading of the rows.
    RowsPassed,
    /// A gap closes only while it is the one that was open when the audit began.
    OpenAtStart,
    /// A gap stays open while a row key is unsettled.
    Settled,
}

const KEYS: usize = 2;
const SHARD: Ordinal = Ordinal(1);
const PLAN: Plan = Plan { rows: 2, counters: 0, since: None };

struct Audits {
    processes: usize,
    left: Budget,
    /// What the first counter may be wrong by at first.
    drifts: &'static [i64],
    removed: Option<Rule>,
    keys: [RowKey; KEYS],
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    writes: u8,
    trims: u8,
    /// Windows that leave a row key as it is.
    failures: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Whether the second user of each row key has a row; the first always has one.
    liked: [bool; KEYS],
    liked_at_first: [bool; KEYS],
    /// Changes of the second user's row: of which row key, and whether it is there then.
    stream: Vec<(usize, bool)>,
    /// Changes that are in the counters, or lost.
    applied: usize,
    /// Changes up to the checkpoint.
    checkpoint: usize,
    counters: [Counted; KEYS],
    gap: Option<UnixMillis>,
    /// What was open when the audit began.
    open: Option<OpenAtStart>,
    segments: Vec<AuditSegment>,
    processes: Vec<Process>,
    left: Budget,
    /// A row key was called proved whose count was wrong all the time.
    wrongly_proved: bool,
}

/// A counter: its rows, version and watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Counted {
    rows: i64,
    version: u64,
    mark: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    audit: Audit,
    /// What the audit has asked for, the next one last.
    asked: Vec<AuditEffect>,
    /// Segments to work on, the next one last.
    segments: Vec<u32>,
    doing: Doing,
    /// Whether each row key was right at one moment since its scan began.
    right: [bool; KEYS],
}

/// The part of a segment under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Nothing,
    Scan {
        scanner: Scanner,
        asked: ScanEffect,
        /// The rows that a mutant has read before the checkpoints.
        early: Option<Vec<String>>,
    },
    Prove {
        prover: Prover,
        asked: ProofEffect,
    },
    Follow {
        follow_up: FollowUp,
        asked: FollowUpEffect,
        look: LookedAt,
    },
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Write { key: usize, liked: bool },
    Apply { change: usize },
    Lose { change: usize },
    MoveCheckpoint { to: usize },
    Begin,
    Join,
    Audit { process: usize },
    Scan { process: usize },
    Prove { process: usize },
    Follow { process: usize },
    Repair { process: usize },
    LeaveUnrepaired { process: usize },
}

impl Audits {
    fn new(processes: usize, left: Budget) -> Self {
        let keys = ["p#0", "q#0"].map(|key| key.parse().expect("a row key"));
        Self { processes, left, drifts: &[-1, 0, 1], removed: None, keys }
    }

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn counter(&self, key: usize, counted: Counted) -> Counter {
        let Counted { rows, version, mark } = counted;
        let marks = (mark > 0).then(|| (SHARD, position(mark)));
        let tally = ShardTally { rows, ..ShardTally::default() };
        Counter {
            likes: rows,
            version,
            watermarks: Watermarks::new(marks.into_iter().collect(), None),
            shards: [(self.keys[key].shard, tally)].into(),
            ..Counter::default()
        }
    }

    /// The rows of a row key, by sort key.
    fn rows(state: &State, key: usize) -> Vec<String> {
        let second = state.liked[key].then(|| "1".to_owned());
        std::iter::once("0".to_owned()).chain(second).collect()
    }

    fn page(&self, key: usize, rows: &[String]) -> ScanInput {
        let pk = self.keys[key].to_string();
        let row = |sort: &String| ScannedRow { pk: pk.clone(), sort: sort.clone(), stated: Stated::Nothing };
        ScanInput::Page(rows.iter().map(row).collect(), None)
    }

    /// A process that takes part in the audit, whose run says what was open when it began.
    fn join(&self, state: &State) -> State {
        let mut joined = state.clone();
        let (mut audit, mut asked) = (Audit::new(PLAN, state.open.clone(), Duration::ZERO), Vec::new());
        audit.step(state.now(), AuditInput::Begin, &mut asked);
        let (segments, doing) = (Vec::new(), Doing::Nothing);
        joined.processes.push(Process { audit, asked, segments, doing, right: [false; KEYS] });
        joined
    }

    fn work(&self, state: &State, process: usize, next: &mut Vec<(Step, State)>) {
        let of = &state.processes[process];
        match &of.doing {
            Doing::Nothing => {
                next.extend(self.audit(state, process).map(|state| (Step::Audit { process }, state)));
            }
            Doing::Scan { scanner, asked, early } => {
                let scanned = self.scan(state, process, scanner.clone(), asked, early.clone());
                next.push((Step::Scan { process }, scanned));
            }
            Doing::Prove { prover, asked } => {
                let proved = self.prove(state, process, prover.clone(), asked);
                next.extend(proved.map(|state| (Step::Prove { process }, state)));
            }
            Doing::Follow { follow_up, asked, look } => {
                self.follow(state, process, follow_up, asked, *look, next);
            }
        }
    }

    /// Answers the audit's next question; `None` where there is no answer yet.
    fn audit(&self, state: &State, process: usize) -> Option<State> {
        let mut after = state.clone();
        let asked = after.processes[process].asked.pop()?;
        let input = match asked {
            AuditEffect::ReadSegments => {
                let mut known = state.segments.clone();
                if !self.obeys(Rule::Settled) {
                    known.iter_mut().for_each(|segment| segment.unsettled = 0);
                }
                AuditInput::Segments(known)
            }
            AuditEffect::Work(mut segments) => {
                segments.reverse();
                after.processes[process].segments = segments;
                self.next_segment(&mut after, process);
                return Some(after);
            }
            AuditEffect::AwaitApplied(past) => AuditInput::Applied(Some(self.as_of(state, past)?)),
            AuditEffect::ReadGaps => AuditInput::Gaps(self.standing(state)),
            AuditEffect::CloseGap(gap) => {
                let is_same = after.gap == Some(gap.opened) || !self.obeys(Rule::OpenAtStart);
                after.gap = after.gap.filter(|_| !is_same);
                return Some(after);
            }
            AuditEffect::End(_) => return Some(after),
            other => panic!("nothing in this world answers {other:?}"),
        };
        after.tell_audit(process, input);
        Some(after)
    }

    /// The open gap; one that was opened anew seems to a mutant to be the one it knows.
    fn standing(&self, state: &State) -> Vec<Gap> {
        let known = state.open.iter().flat_map(|open| &open.gaps).map(|gap| gap.opened).next();
        let opened = if self.obeys(Rule::OpenAtStart) { state.gap } else { state.gap.and(known) };
        opened.map(gap).into_iter().collect()
    }

    /// Up to when the stream is applied, once that is after `past`.
    fn as_of(&self, state: &State, past: UnixMillis) -> Option<UnixMillis> {
        let as_of = if self.obeys(Rule::RowsPassed) { state.as_of() } else { UnixMillis::MAX };
        Some(as_of).filter(|as_of| *as_of > past)
    }

    fn next_segment(&self, state: &mut State, process: usize) {
        let Some(key) = state.processes[process].segments.last().map(|segment| *segment as usize) else {
            return state.tell_audit(process, AuditInput::Worked { any: true, whole: None });
        };
        let shards = ShardCount::new(1).expect("a power of two");
        let (mut scanner, mut asked) = (Scanner::new(shards, None), Vec::new());
        scanner.step(state.now(), ScanInput::Begin, &mut asked);
        let asked = asked.pop().expect("a scan begins with a question");
        state.processes[process].right[key] = state.drift(key) == 0;
        state.processes[process].doing = Doing::Scan { scanner, asked, early: None };
    }

    fn scan(
        &self,
        state: &State,
        process: usize,
        mut scanner: Scanner,
        asked: &ScanEffect,
        mut early: Option<Vec<String>>,
    ) -> State {
        let (mut after, key, mut effects) = (state.clone(), state.processes[process].key(), Vec::new());
        let input = match asked {
            ScanEffect::ReadHorizon if early.is_none() && !self.obeys(Rule::HorizonBeforeRows) => {
                early = Some(Self::rows(state, key));
                after.processes[process].doing = Doing::Scan { scanner, asked: asked.clone(), early };
                return after;
            }
            ScanEffect::ReadHorizon => ScanInput::Horizon(Arc::new(Horizon::of(&state.lineage()))),
            ScanEffect::ReadPage(_) => self.page(key, &early.clone().unwrap_or_else(|| Self::rows(state, key))),
            other => panic!("nothing in this world answers {other:?}"),
        };
        scanner.step(state.now(), input, &mut effects);
        after.processes[process].doing = match effects.swap_remove(0) {
            ScanEffect::Compare(batch) => {
                let (mut prover, mut asked) = (Prover::new(batch, Duration::ZERO), Vec::new());
                prover.step(ProofInput::Begin, &mut asked);
                Doing::Prove { prover, asked: asked.swap_remove(0) }
            }
            asked => Doing::Scan { scanner, asked, early },
        };
        after
    }

    fn prove(&self, state: &State, process: usize, mut prover: Prover, asked: &ProofEffect) -> Option<State> {
        let (mut after, key, mut effects) = (state.clone(), state.processes[process].key(), Vec::new());
        let input = match asked {
            ProofEffect::AwaitApplied(past) => ProofInput::Applied(Some(self.as_of(state, *past)?)),
            ProofEffect::ReadCounters(_) => ProofInput::Counter(Ok(Some(self.counter(key, state.counters[key])))),
            ProofEffect::End { .. } => panic!("it is over"),
        };
        prover.step(input, &mut effects);
        match effects.swap_remove(0) {
            ProofEffect::End { proved, doubts } => {
                after.proved(process, proved);
                self.doubted(&mut after, process, doubts);
            }
            asked => after.processes[process].doing = Doing::Prove { prover, asked },
        }
        Some(after)
    }

    fn segment_done(&self, state: &mut State, process: usize, unsettled: u64) {
        let of = &mut state.processes[process];
        of.doing = Doing::Nothing;
        let index = of.segments.pop().expect("a segment is under way");
        if !state.segments.iter().any(|segment| segment.index == index) {
            state.segments.push(AuditSegment { index, cursor: None, unsettled, done: true });
            state.segments.sort_by_key(|segment| segment.index);
        }
        self.next_segment(state, process);
    }
}

/// The position of the last of so many changes; there was a record before the first.
fn position(changes: usize) -> Sequence {
    Sequence::from(changes as u64 + 1)
}

fn gap(opened: UnixMillis) -> Gap {
    Gap { id: GapId("trimmed".to_owned()), kind: String::new(), detail: String::new(), opened }
}

impl Process {
    /// The row key of the segment under way: each segment has one.
    fn key(&self) -> usize {
        *self.segments.last().expect("a segment is under way") as usize
    }
}

impl State {
    /// Time passes with the changes: two milliseconds each.
    fn now(&self) -> Now {
        Now { at: Duration::ZERO, wall: UnixMillis(2 * self.stream.len() as u64) }
    }

    /// Every change before the checkpoint is in the counters, or lost.
    fn as_of(&self) -> UnixMillis {
        UnixMillis(2 * self.checkpoint as u64 + 1)
    }

    fn lineage(&self) -> Lineage {
        self.lineage_at(self.checkpoint)
    }

    fn lineage_at(&self, checkpoint: usize) -> Lineage {
        let sequence = Some(position(checkpoint));
        let shard =
            Checkpoint { id: "s".into(), parent: None, ordinal: SHARD, sequence, closed: false, at: self.as_of() };
        Lineage::new([shard], [], None)
    }

    /// What a count is wrong by: as far as the stream is applied, whatever was lost of it.
    fn drift(&self, key: usize) -> i64 {
        let mut changes = self.stream[..self.applied].iter().filter(|(of, _)| *of == key);
        let liked = changes.next_back().map_or(self.liked_at_first[key], |(_, liked)| *liked);
        self.counters[key].rows - 1 - i64::from(liked)
    }

    fn tell_audit(&mut self, process: usize, input: AuditInput) {
        let (now, mut effects) = (self.now(), Vec::new());
        let of = &mut self.processes[process];
        of.audit.step(now, input, &mut effects);
        effects.reverse();
        of.asked = effects;
    }

    /// Takes note that a process calls the row key of its segment proved.
    fn proved(&mut self, process: usize, proved: u64) {
        let of = &self.processes[process];
        self.wrongly_proved |= proved > 0 && !of.right[of.key()];
    }

    /// Takes note of the row keys that are right now.
    fn watched(mut self) -> Self {
        for key in (0..KEYS).filter(|key| self.drift(*key) == 0).collect::<Vec<_>>() {
            self.processes.iter_mut().for_each(|process| process.right[key] = true);
        }
        self
    }

    /// The next change reaches its counter, or is lost, which is recorded before anything goes on.
    fn stream_on(&self, next: &mut Vec<(Step, State)>) {
        let change = self.applied;
        if let Some((key, liked)) = self.stream.get(change).copied() {
            let mut applied = self.clone();
            applied.applied += 1;
            let counter = &mut applied.counters[key];
            counter.rows += if liked { 1 } else { -1 };
            (counter.version, counter.mark) = (counter.version + 1, change + 1);
            next.push((Step::Apply { change }, applied));
            if self.left.trims > 0 {
                let mut lost = self.clone();
                lost.left.trims -= 1;
                lost.applied += 1;
                let later = self.gap.map_or(self.now().wall, |opened| self.now().wall.max(UnixMillis(opened.0 + 1)));
                lost.gap = Some(later);
                next.push((Step::Lose { change }, lost));
            }
        }
        if self.checkpoint < self.applied {
            let to = self.applied;
            next.push((Step::MoveCheckpoint { to }, Self { checkpoint: to, ..self.clone() }));
        }
    }
}
