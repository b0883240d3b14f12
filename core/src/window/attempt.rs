//! One attempt at an exact count of one row key, as a machine without I/O: from the marker that stands to a verdict.
//!
//! The order of what it asks for is the protocol: the opening marker over the marker that was read; a guard time; the
//! form of the verdict before the rows; every row; another guard time; the closing marker over the opening one and no
//! other; the streamer's report; for a suspect, every stream shard past the closing marker; the counter; the verdict.
//!
//! It asks for one thing at a time, and an answer that it does not wait for changes nothing. It may be dropped at any
//! point: what it leaves needs no cleaning up, and the next attempt uses nothing of it.

mod ending;

use std::time::Duration;

pub use ending::{Again, Ending};

use super::{
    AfterPut, Form, Judgement, Marker, NoVerdict, Phase, Report, Roster, Verdict, WindowRun, after_put, exact_weight,
    judgement,
};
use crate::counter::Counter;
use crate::ids::{MemberKey, RowKey};
use crate::ports::{Cursor, Judged, MarkerPut};
use crate::time::{Now, UnixMillis};
use crate::weight::Weight;

/// The first wait between two looks for a report, and the longest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// The wait between two looks at how far the stream is applied.
const PASSING: Duration = Duration::from_secs(1);
/// How often a verdict that was certainly not carried out is sent once more.
const CONFLICTS: u32 = 8;

/// How long an attempt waits, and what it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRules {
    /// `D`: how far two changes of one row key may be out of order in the stream.
    pub guard: Duration,
    /// How long the report is waited for.
    pub report: Duration,
    /// How long the stream's readers may take to pass the closing marker of a suspect.
    pub passing: Duration,
    /// Whether [large](Judgement::is_large) corrections are written.
    pub force: bool,
}

/// What an attempt asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Wait until so many rows may be held in memory; more than there is room for in all are granted all of it.
    TakeRoom(u64),
    /// Say at once whether so many rows may be held.
    GrowRoom(u64),
    /// Read the marker of the row key, consistently.
    ReadMarker,
    /// Put `marker` if `required` stands. Sent once: a second copy of an opening marker could open its window again.
    PutMarker {
        /// The marker to put.
        marker: Marker,
        /// The marker it may replace.
        required: Option<Marker>,
    },
    /// Say when the monotonic clock has come this far.
    WakeAt(Duration),
    /// Read the counter, consistently.
    ReadCounter,
    /// Read the next page of rows, consistently.
    ReadRows(Option<Cursor>),
    /// Wait for this window's turn to close: each closing marker makes the streamer cut a flush.
    TakeTurn,
    /// Look for the streamer's report, once.
    ReadReport,
    /// Read up to when every open stream shard is applied, once.
    ReadApplied,
    /// Write the verdict and its line on the ledger. Sent once, but after [`Judged::NotDone`].
    Judge(Verdict, Judgement),
    /// Back off, as before the try that follows so many: another write was at the counter.
    BackOff(u32),
    /// The attempt is over.
    End(Ending),
}

/// What an attempt is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin.
    Begin,
    /// Whether the rows asked for may be held.
    Room(bool),
    /// The marker that stands.
    Marker(Option<Marker>),
    /// What became of a marker put.
    Put(MarkerPut),
    /// The time asked for has come, or the backing off is over.
    Woke,
    /// The counter.
    Counter(Option<Counter>),
    /// A page of rows, and where the next begins.
    Rows(Vec<(MemberKey, Weight)>, Option<Cursor>),
    /// A page has a row whose weight is not readable.
    Unreadable,
    /// This window may close.
    Turn,
    /// The report, if it is complete.
    Report(Option<Report>),
    /// Up to when every open stream shard is applied; `None` while a shard is open that no reader has met.
    Applied(Option<UnixMillis>),
    /// What became of the verdict.
    Judged(Judged),
}

/// One attempt under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    key: RowKey,
    run: WindowRun,
    rules: AttemptRules,
    stage: Stage,
    /// Rows that room was asked for.
    room: u64,
    roster: Roster,
    /// Where the next page of rows begins.
    cursor: Option<Cursor>,
    form: Form,
    /// When the closing marker was seen to stand.
    closed: Now,
}

/// What an attempt waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New,
    Room,
    /// The marker that stands.
    Standing,
    /// What becomes of a put.
    Putting(Put),
    /// What became of one: the marker that stands now says it.
    Checking(Put),
    SettlingLow {
        until: Duration,
    },
    Form,
    Rows,
    MoreRoom,
    SettlingHigh {
        until: Duration,
    },
    Turn,
    Report {
        look: Duration,
    },
    NextReport {
        look: Duration,
        until: Duration,
    },
    Applied {
        exact: i128,
        since: Duration,
    },
    NextApplied {
        exact: i128,
        since: Duration,
        until: Duration,
    },
    Counter {
        exact: i128,
    },
    Judged {
        judgement: Judgement,
        tries: u32,
    },
    BackedOff {
        judgement: Judgement,
        tries: u32,
    },
    Over,
}

/// A marker, and the one it may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Put {
    marker: Marker,
    required: Option<Marker>,
}

/// What to wait for next, and what to ask for.
type Next = (Stage, Effect);

impl Attempt {
    /// An attempt at `key`, of which about `expected` rows are known, under the name `run`, which no other has.
    pub fn new(key: RowKey, run: WindowRun, expected: u64, rules: AttemptRules, roster: Roster) -> Self {
        let closed = Now::default();
        Self { key, run, rules, stage: Stage::New, room: expected, roster, cursor: None, form: Form::Plain, closed }
    }

    /// Its name.
    pub fn run(&self) -> WindowRun {
        self.run
    }

    /// Takes an input, and adds what follows to `effects`. `now.wall` is by the clock that is furthest ahead, ours or a
    /// change-streamer's: times of this process are held against times that change-streamers wrote.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if let Some((stage, effect)) = self.next(now, input) {
            self.stage = stage;
            effects.push(effect);
        }
    }

    /// What follows `input`; `None` where it is not waited for.
    fn next(&mut self, now: Now, input: Input) -> Option<Next> {
        match (self.stage, input) {
            (Stage::New, Input::Begin) => Some((Stage::Room, Effect::TakeRoom(self.room))),
            (Stage::Room, Input::Room(_)) => Some((Stage::Standing, Effect::ReadMarker)),
            (Stage::Standing, Input::Marker(found)) => Some(put(Marker::low(self.run), found)),
            (Stage::Putting(_) | Stage::Checking(_), input) => self.marked(now, input),
            (Stage::Form, Input::Counter(counter)) => Some(self.formed(counter.as_ref())),
            (Stage::Rows, Input::Rows(rows, next)) => Some(self.read(now, &rows, next)),
            (Stage::Rows, Input::Unreadable) => Some(again(Again::Unreadable)),
            (Stage::MoreRoom, Input::Room(true)) => {
                self.room = self.roster.len();
                Some(self.paged(now))
            }
            (Stage::MoreRoom, Input::Room(false)) => Some(again(Again::NoRoom(self.roster.len()))),
            (Stage::Turn, Input::Turn) => Some(put(Marker::high(self.run), None)),
            (Stage::Report { look }, Input::Report(report)) => Some(self.reported(now, look, report)),
            (Stage::Applied { exact, since }, Input::Applied(as_of)) => Some(self.applied(now, exact, since, as_of)),
            (Stage::Counter { exact }, Input::Counter(counter)) => Some(self.concluded(exact, counter.as_ref())),
            (Stage::Judged { judgement, tries }, Input::Judged(judged)) => Some(written(judged, judgement, tries)),
            (_, Input::Woke) => self.woke(now),
            _ => None,
        }
    }

    /// A wait is over, unless the clock says that it is not.
    fn woke(&self, now: Now) -> Option<Next> {
        let until = match self.stage {
            Stage::SettlingLow { until } | Stage::SettlingHigh { until } => until,
            Stage::NextReport { until, .. } | Stage::NextApplied { until, .. } => until,
            Stage::BackedOff { .. } => Duration::ZERO,
            _ => return None,
        };
        if now.at < until {
            return Some((self.stage, Effect::WakeAt(until)));
        }
        Some(match self.stage {
            // Before the rows are read: a switch of feeders after this moment voids the verdict.
            Stage::SettlingLow { .. } => (Stage::Form, Effect::ReadCounter),
            Stage::SettlingHigh { .. } => (Stage::Turn, Effect::TakeTurn),
            Stage::NextReport { look, .. } => (Stage::Report { look }, Effect::ReadReport),
            Stage::NextApplied { exact, since, .. } => (Stage::Applied { exact, since }, Effect::ReadApplied),
            Stage::BackedOff { judgement, tries } => self.judge(judgement, tries),
            _ => return None,
        })
    }

    /// What a put came to: its answer says it, or the marker that is read after an answer that does not.
    fn marked(&mut self, now: Now, input: Input) -> Option<Next> {
        Some(match (self.stage, input) {
            (Stage::Putting(put), Input::Put(MarkerPut::Put)) => self.stands(now, put.marker),
            (Stage::Putting(put), Input::Put(MarkerPut::Unclear)) => (Stage::Checking(put), Effect::ReadMarker),
            (Stage::Checking(ours), Input::Marker(found)) => match after_put(ours.marker, found) {
                AfterPut::Stands => self.stands(now, ours.marker),
                AfterPut::Repeat => put(ours.marker, ours.required),
                AfterPut::Lost if ours.marker.phase == Phase::Low => again(Again::NotOpened),
                AfterPut::Lost => again(Again::TakenOver),
            },
            _ => return None,
        })
    }

    fn stands(&mut self, now: Now, marker: Marker) -> Next {
        match marker.phase {
            // What was written before the marker may still overtake it in the stream until the guard time is over.
            Phase::Low => {
                let until = now.at + self.rules.guard;
                (Stage::SettlingLow { until }, Effect::WakeAt(until))
            }
            Phase::High => {
                self.closed = now;
                (Stage::Report { look: LOOKS.0 }, Effect::ReadReport)
            }
        }
    }

    fn formed(&mut self, counter: Option<&Counter>) -> Next {
        let tally = counter.and_then(|counter| counter.shards.get(&self.key.shard));
        let suspect = tally.filter(|tally| tally.suspect);
        self.form = suspect.map_or(Form::Plain, |tally| Form::Suspect { switches: tally.switches });
        (Stage::Rows, Effect::ReadRows(None))
    }

    fn read(&mut self, now: Now, rows: &[(MemberKey, Weight)], next: Option<Cursor>) -> Next {
        self.roster.extend(rows);
        self.cursor = next;
        let rows = self.roster.len();
        if rows > self.room { (Stage::MoreRoom, Effect::GrowRoom(rows)) } else { self.paged(now) }
    }

    /// What follows a page that is held.
    fn paged(&mut self, now: Now) -> Next {
        if let Some(cursor) = self.cursor.take() {
            return (Stage::Rows, Effect::ReadRows(Some(cursor)));
        }
        self.roster.seal();
        // What was read must be in the stream before the closing marker is.
        let until = now.at + self.rules.guard;
        (Stage::SettlingHigh { until }, Effect::WakeAt(until))
    }

    fn reported(&mut self, now: Now, look: Duration, report: Option<Report>) -> Next {
        let Some(report) = report else {
            if now.at.saturating_sub(self.closed.at) >= self.rules.report {
                return again(Again::NoReport);
            }
            let (until, look) = (now.at + look, (look * 2).min(LOOKS.1));
            return (Stage::NextReport { look, until }, Effect::WakeAt(until));
        };
        let exact = exact_weight(&self.roster, &report.touched);
        self.roster.clear();
        match self.form {
            Form::Plain => (Stage::Counter { exact }, Effect::ReadCounter),
            Form::Suspect { .. } => (Stage::Applied { exact, since: now.at }, Effect::ReadApplied),
        }
    }

    /// Only once every open stream shard has passed the closing marker can nothing of this window be on its way
    /// through another one.
    fn applied(&self, now: Now, exact: i128, since: Duration, as_of: Option<UnixMillis>) -> Next {
        let passed = self.closed.wall.plus(self.rules.guard);
        if as_of.is_some_and(|as_of| as_of > passed) {
            return (Stage::Counter { exact }, Effect::ReadCounter);
        }
        if now.at.saturating_sub(since) >= self.rules.passing {
            return again(Again::NotPassed);
        }
        let until = now.at + PASSING;
        (Stage::NextApplied { exact, since, until }, Effect::WakeAt(until))
    }

    /// Draws the conclusion, which is written also where there is nothing to correct: a verdict takes the token, so that
    /// no older report can correct after it.
    fn concluded(&self, exact: i128, counter: Option<&Counter>) -> Next {
        let tally = counter.and_then(|counter| counter.shards.get(&self.key.shard));
        let judgement = match judgement(self.run, exact, tally, self.form) {
            Ok(judgement) => judgement,
            Err(NoVerdict::NoToken) => return again(Again::TokenGone),
            Err(NoVerdict::Overflow(_)) => return again(Again::Overflow),
        };
        if judgement.is_large() && !self.rules.force {
            return (Stage::Over, Effect::End(Ending::Withheld(judgement)));
        }
        self.judge(judgement, 0)
    }

    fn judge(&self, judgement: Judgement, tries: u32) -> Next {
        let (key, correction) = (self.key.clone(), judgement.correction());
        let verdict = Verdict { key, run: self.run, correction, form: self.form };
        (Stage::Judged { judgement, tries }, Effect::Judge(verdict, judgement))
    }
}

fn put(marker: Marker, found: Option<Marker>) -> Next {
    let required = marker.requires(found);
    (Stage::Putting(Put { marker, required }), Effect::PutMarker { marker, required })
}

fn again(again: Again) -> Next {
    (Stage::Over, Effect::End(Ending::Again(again)))
}

/// A verdict that is not known to stand is void, whatever the reason.
fn written(judged: Judged, judgement: Judgement, tries: u32) -> Next {
    match judged {
        Judged::Stands => (Stage::Over, Effect::End(Ending::Judged(judgement))),
        Judged::NotDone if tries < CONFLICTS => {
            (Stage::BackedOff { judgement, tries: tries + 1 }, Effect::BackOff(tries))
        }
        Judged::NotDone | Judged::Void => again(Again::Void),
    }
}

#[cfg(test)]
mod tests;
