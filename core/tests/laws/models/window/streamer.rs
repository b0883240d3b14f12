//! What a streamer's worker does with the row key's stream: the real fold and captures, and a counter that refuses.

use std::time::Duration;

use tally_core::counter::{Retry, after_refusal, contains};
use tally_core::lineage::Lineage;
use tally_core::recount::{CaptureLimits, Captures, Marker, Report};
use tally_core::tally::{Cut, CutRules, Fold, Prefix, RecordKind, UpdateContext};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;

use super::{Entry, NOW, Recounts, Rule, SHARD, State, Step, Touched};

impl Recounts {
    pub(super) fn work(&self, state: &State, worker: usize, next: &mut Vec<(Step, State)>) {
        let doing = &state.workers[worker];
        if let Some(report) = doing.report {
            let mut written = state.clone();
            written.workers[worker].report = None;
            written.report(report);
            next.push((Step::PutReport { worker }, written));
        } else if doing.position < state.trimmed {
            let mut passed = state.clone();
            passed.workers[worker].position = state.trimmed;
            if self.obeys(Rule::TrimDropsCaptures) {
                self.discontinue(&mut passed, worker);
            }
            next.push((Step::PassTrimmed { worker }, passed));
        } else {
            for entries in 1..=2 {
                next.extend(self.flush(state, worker, entries).map(|after| (Step::Flush { worker, entries }, after)));
            }
            self.lose_answer(state, worker, next);
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
        state.workers[worker].position = at;
        state.workers[worker].report = None;
        if self.obeys(Rule::ResumeDropsCaptures) {
            self.discontinue(&mut state, worker);
        }
        state
    }

    /// What the real captures hold after all that the worker has read.
    fn captures(&self, state: &State, worker: usize) -> Captures {
        let mut captures = Captures::new(CaptureLimits { members: usize::MAX, age: Duration::MAX });
        for at in &state.workers[worker].captured {
            captures.observe(&self.world.record(state.stream[*at], *at), NOW);
        }
        captures
    }

    /// Reading goes on elsewhere.
    fn discontinue(&self, state: &mut State, worker: usize) {
        let mut captures = self.captures(state, worker);
        captures.discontinuity();
        if captures.is_empty() {
            state.workers[worker].captured.clear();
        }
    }

    /// Reads the next `entries` as one prefix, and writes it; `None` where the fold cuts before, or there are no more.
    fn flush(&self, state: &State, worker: usize, entries: usize) -> Option<State> {
        let mut fold = Fold::new(CutRules { records: usize::MAX, age: Duration::MAX });
        let mut after = state.clone();
        for _ in 0..entries {
            let at = after.workers[worker].position;
            if at == state.stream.len() || fold.due(NOW) == Some(Cut::Boundary) {
                return None;
            }
            fold.push(&self.world.record(state.stream[at], at), NOW).expect("nothing else cuts so few records");
            self.observe(&mut after, worker, at);
        }
        self.apply(&mut after, fold.take());
        Some(after)
    }

    /// Shows the next record to the worker's captures.
    fn observe(&self, state: &mut State, worker: usize, at: usize) {
        let record = self.world.record(state.stream[at], at);
        let skipped = !self.obeys(Rule::CaptureApplied)
            && matches!(record.kind, RecordKind::Row { .. })
            && contains(&state.counter, SHARD, record.sequence);
        let mut captures = self.captures(state, worker);
        let report = if skipped { None } else { captures.observe(&record, NOW) };
        let unseen = match state.stream[at] {
            Entry::Marker(marker) if marker == Marker::high(marker.run) && !self.obeys(Rule::OpeningSeen) => {
                Some(Touched { run: marker.run, touched: 0, likes: 0 })
            }
            _ => None,
        };
        let worker = &mut state.workers[worker];
        worker.position = at + 1;
        worker.report = report.map(|report| self.touched(&report)).or(unseen);
        if captures.is_empty() {
            worker.captured.clear();
        } else if !skipped {
            worker.captured.push(at);
        }
    }

    fn touched(&self, report: &Report) -> Touched {
        let set = |wanted: fn(bool) -> bool| {
            let users = self.world.users.iter().enumerate();
            let likes = |weight: &Weight| *weight == Weight::ONE;
            let among = users.filter(|(_, user)| report.touched.get(*user).is_some_and(|weight| wanted(likes(weight))));
            among.fold(0, |set, (user, _)| set | 1 << user)
        };
        Touched { run: report.run, touched: set(|_| true), likes: set(|likes| likes) }
    }

    /// Writes a prefix: the counter, then the closing marker by itself.
    fn apply(&self, state: &mut State, mut prefix: Prefix) {
        let context =
            UpdateContext { shard: SHARD, now: UnixMillis(0), ancestors: &[], closed_through: None, seen: None };
        let records = prefix.counters.remove(&self.world.key.counter);
        if let (Some(records), Some(boundary), false) = (&records, &prefix.boundary, self.obeys(Rule::Boundary)) {
            let mut both = records.update(&context).expect("a touched counter has records");
            both.last = boundary.sequence;
            both.touched[0].window = Some(boundary.run);
            state.take(&both);
            return;
        }
        let mut left = records.unwrap_or_default();
        while let Some(update) = left.update(&context) {
            if state.take(&update) {
                break;
            }
            match after_refusal(&update, Some(&state.counter), &Lineage::default()) {
                Retry::After(mark) => left = left.after(mark),
                other => panic!("one stream shard alone leads to {other:?}"),
            }
        }
        if let Some(boundary) = prefix.boundary {
            let replaced = state.counter.tally(self.world.key.shard).window.map(|window| window.run);
            // Refused where another worker was first: the report is written all the same.
            let taken = state.take(&boundary.update(&context));
            if taken && !self.obeys(Rule::NewerTokenReplaces) {
                state.replaced.extend(replaced);
            }
        }
    }

    /// The next prefix reaches the counter, and its answer is lost: the worker will send it again.
    fn lose_answer(&self, state: &State, worker: usize, next: &mut Vec<(Step, State)>) {
        if let (1.., Some(flushed)) = (state.left.ghosts, self.flush(state, worker, 1)) {
            let mut lost = State { counter: flushed.counter, ..state.clone() };
            lost.left.ghosts -= 1;
            next.push((Step::LoseAnswer { worker }, lost));
        }
    }
}
