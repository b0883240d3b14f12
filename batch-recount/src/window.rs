//! One attempt at an exact count of one row key: a window in the row key's own stream, from the marker that stands to a
//! verdict. What makes it exact is decided in `tally_core::recount`; an attempt that fails anywhere leaves nothing to
//! clean up, and is followed by a new one with nothing of its data.

mod marking;
mod reading;
mod roster;

use tally_core::fault::Fault;
use tally_core::ids::RowKey;
use tally_core::ports::{Judged, LedgerEntry};
use tally_core::recount::{Form, Marker, NoVerdict, Report, Verdict, WindowRun, verdict};

use crate::config::Rules;
use crate::cost::ITEM;
use crate::room::Part;
use crate::summary::Cause;
use crate::tools::Tools;
use roster::Roster;

/// What a verdict with its ledger line costs: two items in a transaction.
const VERDICT: u64 = 4;
/// How often a verdict that was certainly not carried out is sent once more.
const CONFLICTS: u32 = 8;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The verdict stands.
    Judged(Judgement),
    /// The correction is large, and nobody said that large ones are wanted.
    Withheld(Judgement),
    /// There is no verdict: begin anew.
    Again(Again),
}

/// What a window found, and whether it was judged in the form for suspects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// Rows counted at the closing marker.
    pub(crate) before: i64,
    /// Rows there were.
    pub(crate) after: i64,
    /// Whether the count had been fed by two open stream shards.
    pub(crate) suspect: bool,
}

impl Judgement {
    pub(crate) fn correction(self) -> i64 {
        self.after.saturating_sub(self.before)
    }
}

/// Why an attempt came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// The opening marker does not stand.
    NotOpened,
    /// Another run's marker took the place of ours.
    TakenOver,
    /// Token and report did not come.
    NoReport,
    /// The counter holds another run's token, or none.
    TokenGone,
    /// The stream's readers did not come past the closing marker.
    NotPassed,
    /// The verdict was refused, or nobody knows.
    Void,
    /// There was no room for all its rows beside those of other windows; so many were read.
    NoRoom(u64),
}

impl Again {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NotOpened => "not_opened",
            Self::TakenOver => "taken_over",
            Self::NoReport => "no_report",
            Self::TokenGone => "token_gone",
            Self::NotPassed => "not_passed",
            Self::Void => "void",
            Self::NoRoom(_) => "no_room",
        }
    }
}

/// One attempt under way.
pub(crate) struct Window<'a> {
    tools: &'a Tools,
    key: &'a RowKey,
    run: WindowRun,
}

impl<'a> Window<'a> {
    /// An attempt at `key`, under an id of its own.
    pub(crate) fn new(tools: &'a Tools, key: &'a RowKey) -> Self {
        Self { tools, key, run: tools.draw_window() }
    }

    /// Opens the window, reads the rows, of which about `rows` are expected, closes it, waits for the streamer's report,
    /// and judges.
    pub(crate) async fn attempt(&self, why: Cause, rows: u64) -> anyhow::Result<Ending> {
        // Before the window opens: one that stands open meanwhile would gather whoever is touched.
        let mut part = self.tools.stop.unless_requested(self.tools.room.take(rows)).await?;
        let ending = self.windowed(why, &mut part).await?;
        let outcome = match &ending {
            Ending::Judged(_) => "judged",
            Ending::Withheld(_) => "withheld",
            Ending::Again(again) => again.label(),
        };
        crate::metrics::window(outcome);
        tracing::debug!(key = %self.key, run = %self.run, outcome, "window ended");
        Ok(ending)
    }

    async fn windowed(&self, why: Cause, part: &mut Part) -> anyhow::Result<Ending> {
        let found = self.marker().await?;
        let low = Marker::low(self.run);
        if !self.put(low, low.requires(found)).await? {
            return Ok(Ending::Again(Again::NotOpened));
        }
        // What was written before the marker may still overtake it in the stream until the guard time is over.
        self.tools.wait(self.tools.rules.guard).await?;
        // Before the rows are read: a switch of feeders after this moment voids the verdict.
        let form = self.form().await?;
        let read = match self.rows(part).await? {
            Ok(read) => read,
            Err(rows) => return Ok(Ending::Again(Again::NoRoom(rows))),
        };
        // What was read must be in the stream before the closing marker is.
        self.tools.wait(self.tools.rules.guard).await?;
        self.tools.closing_turn().await?;
        let high = Marker::high(self.run);
        if !self.put(high, high.requires(None)).await? {
            return Ok(Ending::Again(Again::TakenOver));
        }
        let closed = self.tools.moment();
        let Some(report) = self.report().await? else { return Ok(Ending::Again(Again::NoReport)) };
        if matches!(form, Form::Suspect { .. }) && !self.all_passed(closed).await? {
            return Ok(Ending::Again(Again::NotPassed));
        }
        self.judge(&read, &report, form, why).await
    }

    /// Draws the conclusion and has it written, also where there is nothing to correct: a verdict takes the token, so
    /// that no older report can correct after it.
    async fn judge(&self, read: &Roster, report: &Report, form: Form, why: Cause) -> anyhow::Result<Ending> {
        let Some(counter) = self.tools.counter(&self.key.counter).await? else {
            return Ok(Ending::Again(Again::TokenGone));
        };
        let verdict = match verdict(read, report, &counter, form) {
            Ok(verdict) => verdict,
            Err(NoVerdict::NoWindow) => return Ok(Ending::Again(Again::TokenGone)),
            Err(NoVerdict::Overflow(error)) => {
                tracing::error!(key = %self.key, %error, "the rows weigh more than a counter holds");
                return Ok(Ending::Again(Again::Void));
            }
        };
        let token = counter.shards.get(&self.key.shard).and_then(|tally| tally.window);
        let before = token.map_or(0, |token| token.rows);
        let suspect = matches!(form, Form::Suspect { .. });
        let judgement = Judgement { before, after: before.saturating_add(verdict.correction), suspect };
        if !self.tools.rules.force && Rules::is_large(judgement.before, judgement.after) {
            return Ok(Ending::Withheld(judgement));
        }
        Ok(match self.write(&verdict, judgement, why).await? {
            Judged::Stands => Ending::Judged(judgement),
            Judged::Void | Judged::NotDone => Ending::Again(Again::Void),
        })
    }

    /// Sends the verdict until it is known to stand, or not known not to: that is void, whatever the reason.
    async fn write(&self, verdict: &Verdict, judgement: Judgement, why: Cause) -> anyhow::Result<Judged> {
        let entry = LedgerEntry {
            counter: self.key.counter.clone(),
            shard: Some(self.key.shard),
            at: self.tools.clock.now(),
            run: self.run,
            by: self.tools.me.0.clone(),
            before: judgement.before,
            after: judgement.after,
            why: why.label().to_owned(),
        };
        let mut tries = 0;
        loop {
            self.tools.spent.wrote(VERDICT);
            match self.tools.ports.counts.judge(verdict, &entry).await {
                Ok(Judged::NotDone) if tries < CONFLICTS => {
                    let fault = Fault::Transient("another write was at the counter".to_owned());
                    self.tools.pause("write a verdict", &fault, &mut tries).await?;
                }
                Ok(judged) => return Ok(judged),
                Err(fault) if fault.is_retryable() => {
                    self.tools.pause("write a verdict", &fault, &mut tries).await?;
                    return Ok(Judged::Void);
                }
                Err(fault) => return Err(anyhow::anyhow!(fault).context("cannot write a verdict")),
            }
        }
    }

    async fn marker(&self) -> anyhow::Result<Option<Marker>> {
        let marker = self.tools.persist("read a marker", || self.tools.ports.rows.marker(self.key)).await?;
        self.tools.spent.read(ITEM);
        Ok(marker)
    }
}
