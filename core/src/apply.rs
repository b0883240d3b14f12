//! The whole protocol by which the records of one stream shard become counts: one machine a stream shard, without I/O.
//!
//! 1. **Gather.** Records are folded into a prefix, in order, and shown to the captures of open recount windows.
//! 2. **Cut.** A prefix ends by size, by age, behind a window's closing marker, before an update would grow too wide, or
//!    where the reader ends. From then on nothing is taken from the reader until the prefix is dealt with.
//! 3. **Write.** Each counter of the prefix gets one conditional update, so many counters side by side. A counter never has
//!    two unanswered updates: the next prefix waits for every answer. After an unknown outcome the same update is sent
//!    again; a refusal is settled by [`after_refusal`](crate::counter::after_refusal).
//! 4. **Close the window.** A closing marker gets an update of its own once all others are answered, and then the window's
//!    report is written, also if that update was refused: another worker may have been first. Only where a counter says
//!    that the stream shard is finished is there no report.
//! 5. **Checkpoint.** The checkpoint moves behind the prefix, and gathering goes on.
//!
//! While nothing comes, the checkpoint's time is refreshed. The machine ends where the stream shard does, with everything
//! applied: the shard may be closed. A counter that says that the shard is finished ends it, too: another worker has done
//! all of it.
//!
//! The runner owns the clock, the channel from the reader and the clients. It hands in one [`Input`] at a time, carries
//! every [`Effect`] out, and answers each request at most once; an answer that is not awaited is ignored. A machine that
//! is dropped half-way loses nothing: the next one begins at the checkpoint, and whatever it repeats is refused.

mod contract;
mod follow_up;
mod remembered;
mod sending;
#[cfg(test)]
mod tests;
mod writing;

use std::sync::Arc;
use std::time::Duration;

pub use contract::{Again, Answer, Effect, End, Flushed, Input, RefusedBy, Request, RequestId, Rules, WindowEnd};

use crate::fault::Fault;
use crate::ids::{Ordinal, Sequence, StreamShardId};
use crate::lineage::{Checkpoint, Picture};
use crate::milestone::Ladder;
use crate::tally::{Cut, Fold, Record};
use crate::time::{Now, UnixMillis};
use crate::window::{Captures, Report};

use remembered::{Remembered, Totals};
use writing::Writing;

/// How often the checkpoint's time is stored while nothing comes.
const REFRESH: Duration = Duration::from_secs(10);

/// Delay from the last prefix to the first refresh; until then the stored time understates what counters include.
const SETTLED: Duration = Duration::from_secs(1);

/// How long a window's report is worth writing: the run that waits for it begins anew after that.
const REPORT_PATIENCE: Duration = Duration::from_secs(30);

/// The machine of one stream shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    id: StreamShardId,
    shard: Ordinal,
    rules: Rules,
    picture: Arc<Picture>,
    page: Page,
    fold: Fold,
    captures: Captures,
    /// The report of the window whose closing marker ends the gathered prefix.
    report: Option<Report>,
    remembered: Remembered,
    ladder: Ladder,
    /// Where counters near a threshold were last seen.
    totals: Totals,
    /// Set once the reader passes nothing more on.
    reader_ended: Option<ReaderEnded>,
    phase: Phase,
    next: RequestId,
    /// Everything written before this time was passed on by the reader.
    read_up_to: UnixMillis,
    /// Everything written before this time is in the counters, and the checkpoint says so.
    stored: UnixMillis,
    refresh_at: Duration,
}

/// Records that the reader has passed on and the fold has not taken yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Page {
    records: Vec<Record>,
    taken: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderEnded {
    AtEndOfShard,
    ByRequest,
}

/// What the machine is doing. It takes from the reader while it gathers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    /// Updates are unanswered.
    Writing(Box<Writing>),
    /// All updates are answered; the report of the window that ended is not.
    Reporting {
        awaited: RequestId,
        report: Arc<Report>,
        tries: u32,
        began: Duration,
        written: Written,
    },
    /// Everything of a prefix is answered but its checkpoint; a refresh belongs to no prefix.
    Checkpointing {
        awaited: RequestId,
        at: UnixMillis,
        written: Option<Written>,
    },
    Ended,
}

/// What is to be known of a prefix behind its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    cut: Cut,
    began: Duration,
    counters: usize,
    records: usize,
    last: Sequence,
    /// When its latest record was written: everything written before is covered, too.
    newest: UnixMillis,
}

/// Hands out requests and names them.
struct Asking<'a> {
    next: &'a mut RequestId,
    effects: &'a mut Vec<Effect>,
}

impl Asking<'_> {
    fn ask(&mut self, request: Request) -> RequestId {
        let id = *self.next;
        self.next.nth += 1;
        self.effects.push(Effect::Ask(id, request));
        id
    }
}

impl Apply {
    /// Starts behind `checkpoint`, with no window open: those that are may have begun before it.
    pub fn new(checkpoint: &Checkpoint, rules: Rules, picture: Arc<Picture>, now: Now) -> Self {
        Self {
            id: checkpoint.id.clone(),
            shard: checkpoint.ordinal,
            rules,
            picture,
            page: Page::default(),
            fold: Fold::new(rules.cut),
            captures: Captures::new(rules.window),
            report: None,
            remembered: Remembered::default(),
            ladder: Ladder::default(),
            totals: Totals::default(),
            reader_ended: None,
            phase: Phase::Gathering,
            next: RequestId { prefix: checkpoint.sequence, nth: 0 },
            read_up_to: checkpoint.at,
            stored: checkpoint.at,
            refresh_at: now.at + REFRESH,
        }
    }

    /// The same, with what the deployment's ladder is known to be.
    #[must_use]
    pub fn knowing(mut self, ladder: Ladder) -> Self {
        self.ladder.learn(ladder);
        self
    }

    /// Takes one input; what follows from it is added to `effects`.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Records(records) => {
                assert!(self.wants_more(), "records were handed in while a prefix is written: they would be lost");
                self.page = Page { records, taken: 0 };
            }
            Input::UpTo(at) => {
                self.read_up_to = self.read_up_to.max(at);
                self.fold.read_up_to(at, now);
            }
            Input::Drained => self.fold.drained(),
            Input::Break => self.captures.discontinuity(),
            Input::EndOfShard => self.reader_ended = Some(ReaderEnded::AtEndOfShard),
            Input::ReaderStopped => self.reader_ended = Some(ReaderEnded::ByRequest),
            Input::Answered(id, answer) => self.answered(id, answer, now, effects),
            // Begins nothing: the runner hands in a picture right before another input, which may be records.
            Input::Picture(picture) => {
                self.picture = picture;
                return;
            }
            Input::Ladder(ladder) => {
                self.ladder.learn(ladder);
                return;
            }
            Input::Share(records) => {
                self.fold.share(records);
                return;
            }
            Input::Woke => {}
        }
        self.gather(now, effects);
    }

    /// Whether the reader's next input may be handed in. While it may not, the reader waits: that is the backpressure.
    pub fn wants_more(&self) -> bool {
        self.phase == Phase::Gathering && self.reader_ended.is_none()
    }

    /// When to hand in [`Input::Woke`], by the monotonic clock, if no other input comes first.
    pub fn wake_at(&self) -> Option<Duration> {
        let due = self.fold.due_at().map_or(self.refresh_at, |due| due.min(self.refresh_at));
        (self.phase == Phase::Gathering).then_some(due)
    }

    /// Everything written before this time was passed on by the reader.
    pub fn read_up_to(&self) -> UnixMillis {
        self.read_up_to.max(self.stored)
    }

    /// Everything written before this time is in the counters, and the checkpoint says so.
    pub fn stored(&self) -> UnixMillis {
        self.stored
    }

    /// Gathers until something has to be written, stored or waited for.
    fn gather(&mut self, now: Now, effects: &mut Vec<Effect>) {
        while self.phase == Phase::Gathering {
            let cut = self.take_records(now);
            match (cut, self.reader_ended) {
                (Some(cut), _) => self.write(cut, now, effects),
                (None, Some(_)) if !self.fold.is_empty() => self.write(Cut::Stop, now, effects),
                (None, Some(ReaderEnded::AtEndOfShard)) => self.end(End::ShardApplied(self.stored), effects),
                (None, Some(ReaderEnded::ByRequest)) => self.end(End::Stopped, effects),
                (None, None) if now.at >= self.refresh_at => self.refresh(now, effects),
                (None, None) => return,
            }
        }
    }

    /// Takes records of the page until the prefix has to be written; why it has to.
    fn take_records(&mut self, now: Now) -> Option<Cut> {
        while let Some(record) = self.page.records.get(self.page.taken) {
            if let Err(cut) = self.fold.push(record, now) {
                return Some(cut);
            }
            // Also records that some counter has already: they were touched inside the window all the same.
            if let Some(report) = self.captures.observe(record, now.at) {
                self.report = Some(report);
            }
            self.page.taken += 1;
            if let Some(cut) = self.fold.due(now.at) {
                return Some(cut);
            }
        }
        self.page = Page::default();
        self.fold.due(now.at)
    }

    /// Begins to write what was gathered.
    fn write(&mut self, cut: Cut, now: Now, effects: &mut Vec<Effect>) {
        let prefix = self.fold.take();
        let last = prefix.last.expect("a prefix is written once it has a record");
        self.next = RequestId { prefix: Some(last), nth: 0 };
        let (counters, records, newest) = (prefix.counters.len(), prefix.records, prefix.written);
        let written = Written { cut, began: now.at, counters, records, last, newest };
        let picture = Arc::clone(&self.picture);
        let writing = Writing::new(&self.id, self.shard, picture, prefix, self.report.take(), written);
        self.phase = Phase::Writing(Box::new(writing));
        self.write_on(None, now, effects);
    }

    /// Takes an answer; then sends what may be sent, and goes on behind the prefix once everything is answered.
    fn write_on(&mut self, answered: Option<(RequestId, Answer)>, now: Now, effects: &mut Vec<Effect>) {
        let Phase::Writing(writing) = &mut self.phase else { return };
        let mut around = writing::Surroundings {
            now,
            latest: &self.picture,
            remembered: &mut self.remembered,
            ladder: &mut self.ladder,
            totals: &mut self.totals,
            asking: Asking { next: &mut self.next, effects },
        };
        if let Some((id, answer)) = answered
            && let Err(fault) = writing.answered(id, answer, &mut around)
        {
            return self.end(End::Failed { what: "update a counter", fault }, effects);
        }
        writing.send(self.rules.concurrency, &mut around);
        if !writing.is_settled() {
            return;
        }
        let Phase::Writing(writing) = std::mem::replace(&mut self.phase, Phase::Gathering) else { return };
        if writing.is_finished() {
            self.end(End::Finished, effects);
        } else if let Some(report) = writing.report {
            self.put_report(Arc::new(report), now.at, writing.written, effects);
        } else {
            if writing.closes_window {
                effects.push(Effect::WindowClosed(WindowEnd::Incomplete));
            }
            self.move_checkpoint(writing.written, effects);
        }
    }

    fn put_report(&mut self, report: Arc<Report>, began: Duration, written: Written, effects: &mut Vec<Effect>) {
        let awaited = self.ask(Request::PutReport { report: Arc::clone(&report), again: None }, effects);
        self.phase = Phase::Reporting { awaited, report, tries: 0, began, written };
    }

    /// Everything of a prefix is answered: the checkpoint follows.
    fn move_checkpoint(&mut self, written: Written, effects: &mut Vec<Effect>) {
        let at = self.stored.max(self.read_up_to).max(written.newest);
        let awaited = self.ask(Request::MoveCheckpoint { to: written.last, at }, effects);
        self.phase = Phase::Checkpointing { awaited, at, written: Some(written) };
    }

    /// Stores that everything read is applied. What is gathered is not, so with anything gathered the stored time stays.
    fn refresh(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.fold.is_empty() && self.read_up_to > self.stored {
            let at = self.read_up_to;
            let awaited = self.ask(Request::RefreshCheckpoint(at), effects);
            self.phase = Phase::Checkpointing { awaited, at, written: None };
        } else {
            self.checkpointed(self.stored, now.at + REFRESH, now.at);
        }
    }

    fn checkpointed(&mut self, at: UnixMillis, refresh_at: Duration, now: Duration) {
        self.stored = self.stored.max(at);
        self.refresh_at = refresh_at;
        self.captures.expire(now);
    }

    fn answered(&mut self, id: RequestId, answer: Answer, now: Now, effects: &mut Vec<Effect>) {
        match &self.phase {
            Phase::Writing(_) => self.write_on(Some((id, answer)), now, effects),
            Phase::Reporting { awaited, .. } if *awaited == id => self.reported(answer, now, effects),
            Phase::Checkpointing { awaited, at, written } if *awaited == id => {
                let (at, written) = (*at, *written);
                self.phase = Phase::Gathering;
                self.checkpointed(at, now.at + if written.is_some() { SETTLED } else { REFRESH }, now.at);
                if let Some(Written { cut, began, counters, records, .. }) = written {
                    let took = now.at.saturating_sub(began);
                    self.fold.wrote(took);
                    effects.push(Effect::Flushed(Flushed { cut, counters, records, took }));
                }
            }
            _ => {}
        }
    }

    /// A report that cannot be written holds the stream shard up for a while only.
    fn reported(&mut self, answer: Answer, now: Now, effects: &mut Vec<Effect>) {
        let Phase::Reporting { report, tries, began, written, .. } = &self.phase else { return };
        let (report, tries, began, written) = (Arc::clone(report), *tries, *began, *written);
        let outcome = match answer {
            Answer::Reported(Err(fault)) if fault.is_retryable() && now.at.saturating_sub(began) < REPORT_PATIENCE => {
                let again = Some(Again { fault, tries });
                let awaited = self.ask(Request::PutReport { report: Arc::clone(&report), again }, effects);
                self.phase = Phase::Reporting { awaited, report, tries: tries.saturating_add(1), began, written };
                return;
            }
            Answer::Reported(Err(fault @ Fault::Fatal(_))) => {
                return self.end(End::Failed { what: "write a window's report", fault }, effects);
            }
            Answer::Reported(Err(fault)) => WindowEnd::Failed(report.key.clone(), fault),
            _ => WindowEnd::Reported,
        };
        effects.push(Effect::WindowClosed(outcome));
        self.move_checkpoint(written, effects);
    }

    fn end(&mut self, end: End, effects: &mut Vec<Effect>) {
        self.phase = Phase::Ended;
        effects.push(Effect::Ended(end));
    }

    fn ask(&mut self, request: Request, effects: &mut Vec<Effect>) -> RequestId {
        Asking { next: &mut self.next, effects }.ask(request)
    }
}
