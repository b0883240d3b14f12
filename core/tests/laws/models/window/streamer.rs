//! What a streamer's worker does with the row key's stream: the machine that ships, and a counter that answers at once.
//!
//! The runner of this model writes one prefix in one step: what may happen between an update and its answer is the
//! watermark model's. An answer may be lost, and a report waits until it is written.

use std::collections::VecDeque;
use std::sync::Arc;

use tally_core::Map;
use tally_core::apply::{Answer, Apply, Effect, Input, Request, RequestId, WindowEnd};
use tally_core::counter::{Update, contains};
use tally_core::fault::Fault;
use tally_core::ids::StreamShardId;
use tally_core::lineage::{Checkpoint, Picture};
use tally_core::ports::Applied;
use tally_core::tally::RecordKind;
use tally_core::time::{Now, UnixMillis};
use tally_core::weight::Weight;
use tally_core::window::{Marker, Report, WindowRun};

use super::super::applying::{AGED, NOW, RULES};
use super::{Entry, Item, Recounts, Rule, SHARD, State, Step, Touched};
use crate::intern::Number;

/// A worker: its machine, and what that waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Worker {
    /// The entry it reads next.
    pub(super) position: usize,
    machine: Number,
    waits: Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Waits {
    Records,
    /// An update whose answer was lost, to be sent again.
    Update(RequestId, Number),
    /// A report to be written.
    Report(RequestId, Touched),
}

/// What happens to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    /// It is given these records, and they grow old enough to be written.
    Read([Option<(Entry, usize)>; 2]),
    Break,
    Taken(RequestId, Number),
    Refused(RequestId, Number),
    Lost(RequestId),
    Done(RequestId),
    Reported(RequestId),
    /// The store will never take the report.
    ReportRefused(RequestId),
}

/// How the counter's answers reach a worker.
#[derive(Clone, Copy, PartialEq)]
enum Answers {
    Arrive,
    /// The first one is lost.
    Lost,
}

impl Worker {
    /// Whether it will still write the report of `run`, or may.
    pub(super) fn may_report(&self, run: WindowRun) -> bool {
        match self.waits {
            Waits::Records => false,
            Waits::Update(..) => true,
            Waits::Report(_, report) => report.run == run,
        }
    }
}

impl Recounts {
    /// A worker that begins at `position`, with a machine that has seen nothing.
    pub(super) fn worker(&self, position: usize) -> Worker {
        let checkpoint = Checkpoint {
            id: StreamShardId::from("shard-1"),
            parent: None,
            ordinal: SHARD,
            sequence: None,
            closed: false,
            at: UnixMillis(0),
        };
        let machine = self.machines.start(Apply::new(&checkpoint, RULES, Arc::new(Picture::default()), NOW));
        Worker { position, machine, waits: Waits::Records }
    }

    pub(super) fn work(&self, state: &State, worker: usize, next: &mut Vec<(Step, State)>) {
        let doing = &state.workers[worker];
        match doing.waits {
            Waits::Report(id, report) => {
                let mut written = state.clone();
                written.report(report);
                self.happens(&mut written, worker, Happening::Reported(id), Answers::Arrive);
                next.push((Step::PutReport { worker }, written));
            }
            Waits::Update(id, update) => {
                let mut sent = state.clone();
                let happening = self.send(&mut sent, id, &self.updates.get(update));
                self.happens(&mut sent, worker, happening, Answers::Arrive);
                next.push((Step::SendAgain { worker }, sent));
            }
            Waits::Records if doing.position < state.trimmed => {
                let mut passed = state.clone();
                passed.workers[worker].position = state.trimmed;
                if self.obeys(Rule::TrimDropsCaptures) {
                    self.happens(&mut passed, worker, Happening::Break, Answers::Arrive);
                }
                next.push((Step::PassTrimmed { worker }, passed));
            }
            Waits::Records => {
                for entries in 1..=2 {
                    let flushed = self.flush(state, worker, entries, Answers::Arrive);
                    next.extend(flushed.map(|after| (Step::Flush { worker, entries }, after)));
                }
                if state.left.ghosts > 0
                    && let Some(mut lost) = self.flush(state, worker, 1, Answers::Lost)
                {
                    lost.left.ghosts -= 1;
                    next.push((Step::LoseAnswer { worker }, lost));
                }
            }
        }
        if state.left.worker_crashes > 0 && doing.position > 0 {
            let applied = state.applied();
            for at in state.trimmed.min(applied)..=applied {
                next.push((Step::CrashAndResume { worker, at }, self.resumed(state, worker, at)));
            }
        }
    }

    /// A worker that starts again, anywhere between what was trimmed and what is applied.
    fn resumed(&self, state: &State, worker: usize, at: usize) -> State {
        let mut state = state.clone();
        state.left.worker_crashes -= 1;
        if self.obeys(Rule::ResumeDropsCaptures) {
            state.workers[worker] = self.worker(at);
            return state;
        }
        // The mutant keeps the machine with its captures, and gives it what lies elsewhere.
        if let Waits::Report(id, _) = state.workers[worker].waits {
            self.happens(&mut state, worker, Happening::ReportRefused(id), Answers::Arrive);
        }
        state.workers[worker].position = at;
        state
    }

    /// Reads the next `entries` as one prefix, and writes it; `None` where the prefix would end before, or there are no
    /// more.
    fn flush(&self, state: &State, worker: usize, entries: usize, answers: Answers) -> Option<State> {
        let position = state.workers[worker].position;
        let read = state.stream.get(position..position + entries)?;
        if entries == 2 && is_closing(read[0]) {
            return None;
        }
        let mut given = [None; 2];
        for (slot, at) in given.iter_mut().zip(position..position + entries) {
            *slot = Some((state.stream[at], at)).filter(|_| self.is_shown(state, at));
        }
        let mut after = state.clone();
        after.workers[worker].position = position + entries;
        if given != [None; 2] {
            self.happens(&mut after, worker, Happening::Read(given), answers);
        }
        // A prefix that asks nothing of the counter has no answer to lose.
        let is_lost = matches!(after.workers[worker].waits, Waits::Update(..));
        (answers == Answers::Arrive || is_lost).then_some(after)
    }

    /// Whether the machine is shown an entry. A mutant keeps those from it that the counter has.
    fn is_shown(&self, state: &State, at: usize) -> bool {
        let is_row = matches!(self.world.record(state.stream[at], at).kind, RecordKind::Row { .. });
        self.obeys(Rule::CaptureApplied) || !is_row || !contains(&state.counter, SHARD, super::sequence(at))
    }

    /// Hands `happening` to the worker's machine, and carries out what follows from it.
    fn happens(&self, state: &mut State, worker: usize, happening: Happening, answers: Answers) {
        let mut happenings = VecDeque::from([happening]);
        // The update that a mutant keeps back, to write it together with the closing marker.
        let mut kept_back: Option<Arc<Update>> = None;
        while let Some(happening) = happenings.pop_front() {
            let stepped = self.machines.step(state.workers[worker].machine, happening, || self.inputs(happening));
            state.workers[worker].machine = stepped.machine;
            state.workers[worker].waits = Waits::Records;
            for effect in &*stepped.effects {
                match effect {
                    Effect::Ask(id, Request::Update { update, again, .. }) => {
                        if again.is_some() {
                            state.workers[worker].waits = Waits::Update(*id, self.updates.number((**update).clone()));
                        } else if answers == Answers::Lost {
                            self.send(state, *id, update);
                            happenings.push_back(Happening::Lost(*id));
                        } else if !self.obeys(Rule::Boundary) && ends_in_marker(happening) {
                            let presumed = self.counters.number(state.counter.after(update));
                            happenings.push_back(Happening::Taken(*id, presumed));
                            kept_back = Some(Arc::clone(update));
                        } else if let (Some(kept), Some(run)) = (kept_back.take(), update.touched[0].window) {
                            let mut both = (*kept).clone();
                            both.last = update.last;
                            both.touched[0].window = Some(run);
                            happenings.push_back(self.send(state, *id, &both));
                        } else {
                            happenings.push_back(self.send(state, *id, update));
                        }
                    }
                    Effect::Ask(id, Request::PutReport { report, .. }) => {
                        state.workers[worker].waits = Waits::Report(*id, self.reported(self.world.touched(report)));
                    }
                    Effect::Ask(id, Request::MoveCheckpoint { .. } | Request::Queue(..)) => {
                        happenings.push_back(Happening::Done(*id));
                    }
                    Effect::WindowClosed(WindowEnd::Incomplete) => self.report_unseen(state, worker),
                    Effect::Ask(_, other) => panic!("a row key's stream leads to {other:?}"),
                    Effect::Ended(end) => panic!("nothing ends a worker: {end:?}"),
                    _ => {}
                }
            }
        }
    }

    fn inputs(&self, happening: Happening) -> Vec<(Now, Input)> {
        let counter = |number| (**self.counters.get(number)).clone();
        let answer = |id, answer| vec![(NOW, Input::Answered(id, answer))];
        match happening {
            Happening::Read(given) => {
                let records = given.into_iter().flatten().map(|(entry, at)| self.world.record(entry, at)).collect();
                vec![(NOW, Input::Records(records)), (AGED, Input::Woke)]
            }
            Happening::Break => vec![(NOW, Input::Break)],
            Happening::Taken(id, after) => answer(id, Answer::Updated(Ok(Applied::Taken(counter(after))))),
            Happening::Refused(id, by) => answer(id, Answer::Updated(Ok(Applied::Refused(Some(counter(by)))))),
            Happening::Lost(id) => answer(id, Answer::Updated(Err(Fault::Transient("no answer".to_owned())))),
            Happening::Done(id) => answer(id, Answer::Done),
            Happening::Reported(id) => answer(id, Answer::Reported(Ok(()))),
            Happening::ReportRefused(id) => answer(id, Answer::Reported(Err(Fault::Poison("never".to_owned())))),
        }
    }

    /// An update reaches the counter; its answer.
    fn send(&self, state: &mut State, id: RequestId, update: &Update) -> Happening {
        let replaced = state.counter.tally(self.world.key.shard).window.map(|window| window.run);
        let taken = self.take(state, update);
        if taken && update.touched[0].window.is_some() && !self.obeys(Rule::NewerTokenReplaces) {
            state.replaced.extend(replaced);
        }
        let counter = self.counters.number(state.counter.clone());
        if taken { Happening::Taken(id, counter) } else { Happening::Refused(id, counter) }
    }

    /// Applies `update` if the counter takes it.
    fn take(&self, state: &mut State, update: &Update) -> bool {
        if state.counter.refusal(update).is_some() {
            return false;
        }
        let (shard, doubted) = (self.world.key.shard, update.touched.iter().any(|touch| touch.doubt));
        let before = state.counter.tally(shard);
        let mut counter = (*state.counter.after(update)).clone();
        let tally = counter.shards.entry(shard).or_default();
        if doubted && !self.obeys(Rule::DoubtMarksSuspect) {
            tally.suspect = before.suspect;
        }
        if doubted && !self.obeys(Rule::DoubtCountsAsSwitch) {
            tally.switches = before.switches;
        }
        state.counter = Item::new(counter);
        true
    }

    /// A report as it is written; a mutant says only whether each row is there.
    fn reported(&self, report: Touched) -> Touched {
        let presence = |weight: Weight| Weight::of_presence(weight != Weight::ABSENT);
        let weights = report.weights.map(|weight| weight.map(presence));
        if self.obeys(Rule::WeightReported) { report } else { Touched { weights, ..report } }
    }

    /// A mutant reports also a window that has captured an unreadable weight: what else it has captured.
    fn report_unreadable(&self, state: &mut State, run: WindowRun) {
        let records = state.within(run).iter().enumerate().map(|(at, entry)| self.world.record(*entry, at).kind);
        let (mut captured, mut unreadable) = (Map::default(), false);
        for kind in records {
            match kind {
                RecordKind::Row { member, after, .. } => _ = captured.insert(member, after),
                RecordKind::Unreadable { .. } => unreadable = true,
                _ => {}
            }
        }
        if unreadable && !self.obeys(Rule::UnreadableEndsCapture) {
            state.report(self.world.touched(&Report { key: self.world.key.clone(), run, touched: captured }));
        }
    }

    /// A window is incomplete: a mutant reports it although its opening marker was not seen.
    fn report_unseen(&self, state: &mut State, worker: usize) {
        let closing = state.workers[worker].position - 1;
        let Entry::Marker(marker) = state.stream[closing] else { return };
        if !self.obeys(Rule::OpeningSeen) {
            state.report(Touched { run: marker.run, weights: [None; 2] });
        }
        self.report_unreadable(state, marker.run);
    }
}

fn is_closing(entry: Entry) -> bool {
    matches!(entry, Entry::Marker(marker) if marker == Marker::high(marker.run))
}

/// Whether records before a closing marker are given to a machine together with it.
fn ends_in_marker(happening: Happening) -> bool {
    matches!(happening, Happening::Read([Some(_), Some((entry, _))]) if is_closing(entry))
}
