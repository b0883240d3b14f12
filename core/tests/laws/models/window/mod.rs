//! The recount of one row key while its two rows change: streamers that each read the whole stream at their own speed,
//! recounters that know nothing of each other, late copies of marker puts and verdicts, trims and crashes.
//!
//! From a verdict on until the next trim, the count is what the rows weigh at the stream's position, or it is suspect.

mod recounter;
mod streamer;
mod tests;
mod weights;

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use tally_core::counter::{ShardTally, Update, contains};
use tally_core::ids::Ordinal;
use tally_core::weight::Stated;
use tally_core::window::{Attempt, Effect, Form, Marker, WindowRun};

use streamer::{Happening, Worker};

use super::applying::Machines;
use super::item::Item;
use super::row_key::{Entry, Kind, Row, Rows, Touched, TwoRows, folded, sequence};
use crate::explore::Model;
use crate::intern::{Interned, of_update};

/// A rule of the window that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// A marker is put only over the one its writer has read.
    MarkerChain,
    /// A trim drops every capture.
    TrimDropsCaptures,
    /// A crash drops every capture.
    ResumeDropsCaptures,
    /// A verdict takes its run's token.
    Token,
    /// So does a verdict with nothing to correct.
    TokenForNothing,
    /// A newer window's token takes an older one's place.
    NewerTokenReplaces,
    /// A report is written only by who saw the opening marker.
    OpeningSeen,
    /// A closing marker is written by itself.
    Boundary,
    /// Records already applied are captured too.
    CaptureApplied,
    /// The rows are read only once the opening marker has settled.
    WaitAfterLow,
    /// The closing marker is put only once what was read has settled.
    WaitBeforeHigh,
    /// A report says what a touched row weighs, and not whether it is there.
    WeightReported,
    /// A touched row weighs what the stream has last, and not what was read and the window's changes of it.
    LastWeight,
    /// A window that captured a row of unreadable weight has no report.
    UnreadableEndsCapture,
    /// A row of unreadable weight makes its counter suspect.
    DoubtMarksSuspect,
    /// It counts as a switch of the feeder, so that a verdict whose rows were read before is void.
    DoubtCountsAsSwitch,
}

/// In what order the stream gives the changes of two items of one row key.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// As they happened.
    Kept,
    /// As they please, until a wait has let them settle.
    SettlesWithin,
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Budget {
    writes: u8,
    runs: u8,
    worker_crashes: u8,
    recounter_crashes: u8,
    /// Late copies, and lost answers.
    ghosts: u8,
    trims: u8,
}

struct Recounts {
    workers: usize,
    recounters: usize,
    budget: Budget,
    order: Order,
    /// What the counter may be wrong by at first, and what the rows may weigh.
    drifts: &'static [i64],
    rows: &'static [[i64; 2]],
    /// Whether the count is suspect at first.
    suspect: bool,
    /// Whether an attempt begins only while every weight is readable: any number of others would come to nothing.
    patient: bool,
    removed: &'static [Rule],
    world: TwoRows,
    machines: Machines<Happening>,
    counters: Interned<Item>,
    updates: Interned<Update>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    rows: Rows,
    rows_at_first: Rows,
    drift_at_first: i64,
    stream: Vec<Entry>,
    /// Entries before this one keep their place.
    settled: usize,
    /// Entries before this one are gone.
    trimmed: usize,
    counter: Item,
    marker: Option<Marker>,
    workers: Vec<Worker>,
    recounters: Vec<Recounter>,
    reports: Vec<Touched>,
    ghost: Option<Ghost>,
    /// Tokens replaced by newer ones; only a mutant still honours them.
    replaced: Vec<WindowRun>,
    left: Budget,
    runs: u8,
    /// A verdict stands, and nothing was trimmed since.
    proved: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Put {
    marker: Marker,
    required: Option<Marker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ghost {
    Put(Put),
    Verdict { run: WindowRun, correction: i64, form: Form },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Recounter {
    Idle,
    /// An attempt, and what it waits for.
    Trying {
        attempt: Box<Attempt>,
        asked: Box<Effect>,
        /// The rows as they were read; only a mutant asks for them.
        read: Rows,
    },
    Done,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Write { row: usize, after: Row },
    Trim { entry: usize },
    Flush { worker: usize, entries: usize },
    LoseAnswer { worker: usize },
    SendAgain { worker: usize },
    PutReport { worker: usize },
    PassTrimmed { worker: usize },
    CrashAndResume { worker: usize, at: usize },
    Begin { recounter: usize, run: u8 },
    PutMarker { recounter: usize, marker: Marker },
    PutMarkerWithLateCopy { recounter: usize, marker: Marker },
    PutMarkerLater { recounter: usize, marker: Marker },
    MarkerRefused { recounter: usize },
    ReadMarker { recounter: usize },
    Settle { recounter: usize },
    Read { recounter: usize, row: usize },
    TakeReport { recounter: usize },
    GiveUp { recounter: usize },
    Judge { recounter: usize, correction: i64 },
    JudgeWithLostAnswer { recounter: usize },
    JudgeLater { recounter: usize },
    Void { recounter: usize },
    CrashRecounter { recounter: usize },
    GhostLands,
    GhostDies,
}

const SHARD: Ordinal = Ordinal(1);

impl Recounts {
    fn new(workers: usize, recounters: usize, budget: Budget) -> Self {
        Self {
            workers,
            recounters,
            budget,
            order: Order::Kept,
            drifts: &[1],
            rows: &[[1, 0]],
            suspect: false,
            patient: false,
            removed: &[],
            world: TwoRows::new(Kind::Members),
            machines: Machines::new(),
            counters: Interned::new(|item| FixedState::default().hash_one(item)),
            updates: Interned::new(of_update),
        }
    }

    fn over(self, kind: Kind) -> Self {
        Self { world: TwoRows::new(kind), ..self }
    }

    fn without(self, rules: &'static [Rule]) -> Self {
        Self { removed: rules, ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        !self.removed.contains(&rule)
    }

    /// The state with `entry` in the stream: behind everything, or before entries that have not settled.
    fn streamed(&self, mut state: State, entry: Entry) -> Vec<State> {
        let read = state.workers.iter().map(|worker| worker.position).max().unwrap_or(0);
        let fixed = state.settled.max(state.applied()).max(read);
        state.stream.push(entry);
        let mut orders = vec![state];
        while let (Order::SettlesWithin, Some(last)) = (self.order, orders.last()) {
            let at = last.stream.len() - orders.len();
            if at <= fixed || item(last.stream[at - 1]) == item(entry) {
                break;
            }
            let mut earlier = last.clone();
            earlier.stream.swap(at - 1, at);
            orders.push(earlier);
        }
        orders
    }

    fn write(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for row in 0..2 {
            let before = state.rows[row];
            if state.left.writes == 0 && before != Some(Stated::Unreadable) {
                continue;
            }
            for after in self.world.written(row, before) {
                let mut written = state.clone();
                // What is unreadable is set right in the end.
                written.left.writes -= u8::from(before != Some(Stated::Unreadable));
                written.rows[row] = after;
                for state in self.streamed(written, Entry::Row { row, before, after }) {
                    next.push((Step::Write { row, after }, state));
                }
            }
        }
    }

    /// The oldest record that is in no counter is lost.
    fn trim(state: &State, next: &mut Vec<(Step, State)>) {
        let entry = state.applied();
        if entry < state.stream.len() && state.trimmed <= entry {
            let mut trimmed = state.clone();
            trimmed.left.trims -= 1;
            trimmed.trimmed = entry + 1;
            trimmed.proved &= matches!(state.stream[entry], Entry::Marker(_));
            next.push((Step::Trim { entry }, trimmed));
        }
    }
}

/// What an entry is a change of: the stream keeps the order of one item's changes whatever happens.
fn item(entry: Entry) -> Option<usize> {
    match entry {
        Entry::Row { row, .. } => Some(row),
        Entry::Marker(_) => None,
    }
}

impl State {
    fn with(&self, recounter: usize, now: Recounter) -> Self {
        let mut state = self.clone();
        state.recounters[recounter] = now;
        state
    }

    /// With a row as `recounter` has read it now.
    fn with_read(&self, recounter: usize, row: usize) -> Self {
        let mut state = self.clone();
        if let Recounter::Trying { read, .. } = &mut state.recounters[recounter] {
            read[row] = self.rows[row];
        }
        state
    }

    /// The entries between the markers of a window.
    fn within(&self, run: WindowRun) -> &[Entry] {
        let opening = self.stream.iter().position(|entry| *entry == Entry::Marker(Marker::low(run)));
        &self.stream[opening.unwrap_or(0)..self.closing(run).unwrap_or(self.stream.len())]
    }

    /// With a late copy of a request under way.
    fn haunted(&self, ghost: Ghost) -> Self {
        let mut state = Self { ghost: Some(ghost), ..self.clone() };
        state.left.ghosts -= 1;
        state
    }

    /// How many entries of the stream the counter has.
    fn applied(&self) -> usize {
        (0..self.stream.len()).take_while(|at| contains(&self.counter, SHARD, sequence(*at))).count()
    }

    /// The rows there were at the counter's position in the stream.
    fn rows_applied(&self) -> Rows {
        folded(self.rows_at_first, &self.stream[..self.applied()])
    }

    fn report(&mut self, report: Touched) {
        if !self.reports.contains(&report) {
            self.reports.push(report);
            self.reports.sort_by_key(|report| report.run);
        }
    }

    fn closing(&self, run: WindowRun) -> Option<usize> {
        self.stream.iter().position(|entry| *entry == Entry::Marker(Marker::high(run)))
    }

    fn closed_after_trim(&self, run: WindowRun) -> bool {
        self.closing(run).is_some_and(|at| at >= self.trimmed)
    }

    /// Every worker is past the closing marker, and none has the window's report.
    fn none_will_report(&self, run: WindowRun) -> bool {
        let past = |worker: &Worker, at| worker.position > at && !worker.may_report(run);
        self.closing(run).is_some_and(|at| self.workers.iter().all(|worker| past(worker, at)))
    }
}

impl Recounter {
    fn read(&self) -> Rows {
        match self {
            Self::Trying { read, .. } => *read,
            Self::Idle | Self::Done => [None; 2],
        }
    }
}

impl Model for Recounts {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let state = |weights: [i64; 2], drift: i64| {
            let rows = self.world.rows(weights);
            let tally = ShardTally { suspect: self.suspect, ..ShardTally::default() };
            let counter = self.world.counter(rows, drift, tally);
            State {
                rows,
                rows_at_first: rows,
                drift_at_first: drift,
                stream: Vec::new(),
                settled: 0,
                trimmed: 0,
                counter: Item::new(counter),
                marker: None,
                workers: vec![self.worker(0); self.workers],
                recounters: vec![Recounter::Idle; self.recounters],
                reports: Vec::new(),
                ghost: None,
                replaced: Vec::new(),
                left: self.budget,
                runs: 0,
                proved: false,
            }
        };
        self.rows.iter().flat_map(|rows| self.drifts.iter().map(|drift| state(*rows, *drift))).collect()
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.write(state, next);
        if state.left.trims > 0 {
            Self::trim(state, next);
        }
        for worker in 0..state.workers.len() {
            self.work(state, worker, next);
        }
        for recounter in 0..state.recounters.len() {
            self.recount(state, recounter, next);
        }
        if let Some(ghost) = state.ghost {
            self.haunt(state, ghost, next);
        }
        // Workers differ in nothing but their place: states that differ only by a swap are one.
        next.iter_mut().for_each(|(_, state)| state.workers.sort_unstable());
    }

    fn violation(&self, state: &State) -> Option<String> {
        let tally = state.counter.tally(self.world.key.shard);
        let drift = self.world.weight(state.rows_applied()).map(|weight| tally.rows - weight);
        if drift.is_none() && !tally.suspect {
            Some(UNMARKED.to_owned())
        } else if tally.suspect && !self.suspect && !self.world.may_be_damaged() {
            Some("one stream shard of readable rows makes a suspect".to_owned())
        } else if state.proved && drift != Some(0) && !tally.suspect {
            Some(WRONG.to_owned())
        } else if self.budget.trims == 0 && drift != Some(0) && drift != Some(state.drift_at_first) && !tally.suspect {
            Some("a correction changed a right count".to_owned())
        } else {
            (state.counter.sum() != Ok(state.counter.likes)).then(|| "the total is not the sum".to_owned())
        }
    }

    fn is_goal(&self, state: &State) -> bool {
        state.proved && state.recounters.contains(&Recounter::Done)
    }
}

const UNMARKED: &str = "a count with an unreadable weight is not suspect";
const WRONG: &str = "a proved count is not what the rows weigh";
