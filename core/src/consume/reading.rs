//! Between two loads: runs of records are kept until the fence has passed them, and the lane's batches are written one
//! after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::effect::{Cause, Effect, Halt, Note, Replacing};
use super::lane::{Lane, Stage, Stopped};
use super::learning::Learning;
use super::letters::{Letter, Letters};
use super::outcome;
use super::write::{Cells, Split, Writing};
use super::{REFUSED, Setup};
use crate::batch::Trigger;
use crate::definitions::Definitions;
use crate::event::Rejection;
use crate::fence::{Alarm, Commit, Fence, Next, Reached, Terms};
use crate::ports::Outcome;
use crate::ports::log::Records;

/// How often Kafka is told how far the partition is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How long nothing is written before the fence is looked at: an operator may have moved it.
const QUIET: Duration = Duration::from_secs(60);

/// What is read and not behind the fence, and the lane that writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    /// A row that the table refuses is put aside with its record, so a run is kept until the fence has passed it.
    pub(super) runs: VecDeque<Arc<Records>>,
    pub(super) lane: Lane,
    pub(super) learning: Learning,
    /// How many partitions the topic has, as far as is known: a topic may grow.
    pub(super) partitions: u32,
    /// When Kafka was told last.
    told: Duration,
    /// When the fence was last known to be where it is here.
    confirmed: Duration,
    /// The fence is being looked at.
    looks: bool,
}

/// What the rest of the machine lends for one step of reading.
pub(super) struct Context<'a> {
    pub(super) setup: &'a Setup,
    pub(super) letters: &'a mut Letters,
    pub(super) leaving: bool,
    /// The log no longer fits the fence, or cannot be read.
    pub(super) doubted: &'a mut bool,
    /// Reloads that led to nothing written.
    pub(super) fruitless: &'a mut Option<u32>,
    /// Records that the store has refused since it took one.
    pub(super) refused: &'a mut u32,
    pub(super) now: Duration,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Context<'_> {
    fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }
}

/// What follows a step of reading.
pub(super) enum Then {
    GoOn,
    /// The fence has to be read again.
    Reload(Cause, String),
    /// The fence has to be read again: if it is this one still, the alarm is true.
    Confirm(Fence, Alarm),
    /// The partition stands still.
    Halt(Halt),
    /// The partition is left.
    End,
}

impl Reading {
    pub(super) fn new(setup: &Setup, fence: Fence, definitions: Definitions, partitions: u32, now: Duration) -> Self {
        let learning = Learning::new(definitions, &setup.partition.topic, fence.offset);
        let lane = Lane::new(setup.limits, fence);
        Self { runs: VecDeque::new(), lane, learning, partitions, told: now, confirmed: now, looks: false }
    }

    /// Whether the next records are wanted.
    pub(super) fn reads(&self) -> bool {
        self.lane.is_gathering() && self.learning.is_idle() && !self.looks
    }

    /// When what is gathered is due by age, or the fence is looked at because nothing is written. While the list of
    /// definitions or the fence is read, both wait for that.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let waits_for_records = self.reads() && self.lane.batch.is_empty();
        let look = waits_for_records.then(|| self.confirmed.saturating_add(QUIET));
        self.lane.due_at().filter(|_| self.reads()).or(look)
    }

    /// The time of [`due_at`](Self::due_at) has come.
    pub(super) fn woke(&mut self, context: &mut Context<'_>) -> Then {
        let then = self.gather(context);
        let waits_for_records = self.reads() && self.lane.batch.is_empty();
        if matches!(then, Then::GoOn) && waits_for_records && context.now >= self.confirmed.saturating_add(QUIET) {
            self.looks = true;
            context.effects.push(Effect::ReadFence);
        }
        then
    }

    /// The fence was looked at. A look that failed is made again later: what is written is held against the fence anyway.
    pub(super) fn looked_at(&mut self, stored: &Outcome<Option<Fence>>, context: &mut Context<'_>) -> Then {
        if !std::mem::take(&mut self.looks) {
            return Then::GoOn;
        }
        self.confirmed = context.now;
        match stored {
            Err(fault) if fault.is_retryable() => self.gather(context),
            Ok(Some(stored)) if *stored == self.lane.fence => self.gather(context),
            _ => Then::Reload(Cause::Condition, "the fence is no longer where it was".to_owned()),
        }
    }

    /// Whether records were read that are not written.
    pub(super) fn has_unsent(&self) -> bool {
        !self.lane.is_gathering() || !self.lane.batch.is_empty() || !self.runs.is_empty()
    }

    pub(super) fn read(&mut self, records: Outcome<Arc<Records>>, context: &mut Context<'_>) -> Then {
        match records {
            Ok(records) => self.runs.push_back(records),
            Err(fault) if self.lane.is_gathering() => {
                return Then::Reload(Cause::Position, format!("cannot read on: {fault}"));
            }
            // Once the batch under way is written.
            Err(_) => *context.doubted = true,
        }
        self.gather(context)
    }

    /// Takes records until the batch is due, and begins to write it.
    pub(super) fn gather(&mut self, context: &mut Context<'_>) -> Then {
        if !self.lane.is_gathering() {
            return Then::GoOn;
        }
        if context.leaving && self.lane.batch.is_empty() {
            return Then::End;
        }
        if self.looks {
            return Then::GoOn;
        }
        if *context.doubted {
            return Then::Reload(Cause::Position, "the log no longer fits the fence, or cannot be read".to_owned());
        }
        if !self.learning.is_idle() && !context.leaving {
            return self.learn(context);
        }
        let due = match self.lane.take(&self.runs, &self.learning, self.partitions, context) {
            Stopped::Due(trigger) => Some(trigger),
            Stopped::AtTheEnd => None,
            Stopped::Unknown(action, at) if !context.leaving => {
                let last = self.runs.back().and_then(|run| run.last_offset()).map_or(at, |last| last.max(at));
                self.learning.ask(action, last.next());
                context.effects.push(Effect::ReadDefinitions);
                return Then::GoOn;
            }
            Stopped::Unknown(..) => None,
        };
        match due.or((context.leaving && !self.lane.batch.is_empty()).then_some(Trigger::Shutdown)) {
            Some(trigger) => {
                self.lane.stage = Stage::Due { trigger, since: context.now };
                self.seal(context);
                Then::GoOn
            }
            None => Then::GoOn,
        }
    }

    /// Once it is known that a definition is to be taken: writes what lies before its first event, then has the fence state it.
    fn learn(&mut self, context: &mut Context<'_>) -> Then {
        let Some(count) = self.learning.wanted() else { return Then::GoOn };
        if !self.lane.batch.is_empty() {
            self.lane.stage = Stage::Due { trigger: Trigger::Definitions, since: context.now };
            self.seal(context);
            return Then::GoOn;
        }
        if self.learning.change() {
            let seen = self.lane.fence.clone();
            let by = Fence { terms: Terms { defs: count, ..seen.terms }, ..seen.clone() };
            context.effects.push(Effect::ReplaceFence { seen, by, why: Replacing::Definitions });
        }
        Then::GoOn
    }

    /// The deployment's definitions, which a record needs that is not understood.
    pub(super) fn defined(&mut self, list: Outcome<Definitions>, context: &mut Context<'_>) -> Then {
        if !self.learning.asks() {
            return Then::GoOn;
        }
        match list {
            Ok(list) => match self.learning.learnt(&list) {
                Ok(()) => self.gather(context),
                Err(why) => Then::Halt(Halt::Refused(why)),
            },
            Err(fault) if fault.is_retryable() => {
                let tries = self.learning.failed();
                context.note(Note::Retrying {
                    call: "definitions",
                    class: fault.class(),
                    tries,
                    why: fault.to_string(),
                });
                context.effects.push(Effect::BackOff { attempt: tries - 1 });
                Then::GoOn
            }
            Err(fault) => Then::Halt(Halt::Refused(format!("definitions: {fault}"))),
        }
    }

    /// The fence was replaced, or was not the one known: it is read again either way.
    pub(super) fn replaced(&self, stored: &Outcome<()>) -> Then {
        if !self.learning.changes() {
            return Then::GoOn;
        }
        let why = stored.as_ref().map_or_else(ToString::to_string, |()| "more counters are defined".to_owned());
        Then::Reload(Cause::Definitions, why)
    }

    /// How far the cells have come that were asked for.
    pub(super) fn cells(&mut self, reached: Outcome<Vec<Option<Reached>>>, context: &mut Context<'_>) -> Then {
        let Stage::Writing(writing) = &mut self.lane.stage else { return Then::GoOn };
        let reached = match reached {
            Ok(reached) => reached,
            Err(fault) if fault.is_retryable() => {
                let Some(tries) = writing.cells_failed() else { return Then::GoOn };
                context.note(Note::Retrying { call: "cells", class: fault.class(), tries, why: fault.to_string() });
                context.effects.push(Effect::BackOff { attempt: tries - 1 });
                return Then::GoOn;
            }
            Err(fault) => return Then::Halt(Halt::Refused(format!("cells: {fault}"))),
        };
        match writing.cells(reached, &self.lane.fence) {
            Cells::NotAsked => Then::GoOn,
            Cells::Send(effect) => {
                context.effects.push(effect);
                Then::GoOn
            }
            Cells::Doubted(Some((counter, to))) => {
                let fence = self.lane.fence.clone();
                let alarm = Alarm::CellAhead { fence: fence.offset, counter, to };
                Then::Confirm(fence, alarm)
            }
            Cells::Doubted(None) => Then::Reload(Cause::Condition, "a cell was not as it had to be".to_owned()),
        }
    }

    /// Writes the batch that is due, once every dead letter in it is acknowledged.
    fn seal(&mut self, context: &mut Context<'_>) {
        let Stage::Due { trigger, since } = self.lane.stage else { return };
        let Some(batch) = self.lane.batch.seal() else { return };
        context.note(Note::Sealed { trigger, from: batch.from(), to: batch.to() });
        let mut writing = Writing::new(trigger, since, batch);
        context.effects.push(writing.send(&self.lane.fence));
        self.lane.stage = Stage::Writing(writing);
    }

    /// Decides what follows a transaction. An unknown outcome never means that nothing happened.
    pub(super) fn committed(&mut self, commit: &Commit, context: &mut Context<'_>) -> Then {
        let Stage::Writing(writing) = &mut self.lane.stage else { return Then::GoOn };
        if !writing.awaits_answer() {
            return Then::GoOn;
        }
        match commit.next() {
            Next::Go => {
                context.effects.push(Effect::Note(Note::Applied(writing.part().len())));
                self.lane.fence.offset = writing.part().to();
                self.confirmed = context.now;
                *context.fruitless = None;
                if writing.part().rows() > 0 {
                    *context.refused = 0;
                }
                self.next_part(context)
            }
            Next::Again => {
                let tries = writing.refused_for_now();
                let (class, why) = (outcome::class_of(commit), outcome::summary(commit));
                context.note(Note::Retrying { call: "commit", class, tries, why });
                context.effects.push(Effect::BackOff { attempt: tries - 1 });
                Then::GoOn
            }
            // Below `redo` each cell was read before it was added to.
            Next::Reload if writing.adds_to_cells() && commit.refuses_a_cell() && !self.lane.fence.is_redoing() => {
                context.effects.push(writing.doubt());
                Then::GoOn
            }
            Next::Reload => Then::Reload(outcome::cause_of(commit), outcome::summary(commit)),
            Next::Bisect => self.bisect(outcome::summary(commit), context),
            Next::Halt => {
                let sent = writing.transaction(&self.lane.fence);
                let changes = sent.changes();
                Then::Halt(Halt::Refused(outcome::refusal(
                    commit,
                    &changes,
                    context.setup.partition.index,
                    context.setup.shards,
                )))
            }
        }
    }

    /// Looks for the row that the table does not take: by halves, until one event is left, which is put aside.
    fn bisect(&mut self, refused: String, context: &mut Context<'_>) -> Then {
        let Stage::Writing(writing) = &mut self.lane.stage else { return Then::GoOn };
        match writing.split() {
            Split::Halved => {
                context.note(Note::Bisected);
                self.next_part(context)
            }
            Split::Culprit(offset) if *context.refused >= REFUSED => Then::Halt(Halt::Refused(format!(
                "the store takes no record, {REFUSED} in a row were put aside: {offset}: {refused}"
            ))),
            Split::Culprit(offset) => {
                *context.refused += 1;
                let run = self.runs.iter().find(|run| run.at(offset).is_some());
                let run = run.expect("a run is kept until the fence has passed it");
                let letter = self.lane.letter(run, offset, Rejection::RefusedByStore(refused));
                context.letters.send(letter, context.effects);
                Then::GoOn
            }
            // Nothing but the fence is left to blame.
            Split::Fence => Then::Halt(Halt::Refused(format!("the store refuses the fence: {refused}"))),
        }
    }

    /// A wait is over: the same transaction again. It certainly did not happen.
    pub(super) fn waited(&mut self, context: &mut Context<'_>) -> Then {
        if let Stage::Writing(writing) = &mut self.lane.stage {
            context.effects.extend(writing.again(&self.lane.fence));
        } else if self.learning.asks() {
            context.effects.push(Effect::ReadDefinitions);
        }
        Then::GoOn
    }

    /// An acknowledgement counts for the configuration of the fence that its record was read under.
    pub(super) fn letter_stored(&mut self, letter: &Letter, context: &mut Context<'_>) -> Then {
        if letter.cfg != self.lane.fence.cfg {
            return Then::GoOn;
        }
        self.lane.batch.dead_letter_acknowledged(letter.offset);
        match &mut self.lane.stage {
            Stage::Gathering => Then::GoOn,
            Stage::Due { .. } => {
                self.seal(context);
                Then::GoOn
            }
            Stage::Writing(writing) => {
                if writing.put_aside(letter.offset) {
                    self.next_part(context)
                } else {
                    Then::GoOn
                }
            }
        }
    }

    /// Writes what is left of the batch, or goes on gathering.
    fn next_part(&mut self, context: &mut Context<'_>) -> Then {
        let Stage::Writing(writing) = &mut self.lane.stage else { return Then::GoOn };
        if writing.next() {
            context.effects.push(writing.send(&self.lane.fence));
            return Then::GoOn;
        }
        let (trigger, took) = (writing.trigger, context.now.saturating_sub(writing.since));
        context.note(Note::Flushed { trigger, events: writing.events, rows: writing.rows, took });
        self.lane.stage = Stage::Gathering;
        self.advanced(trigger, context);
        self.gather(context)
    }

    /// The fence has moved: lets go of what lies behind it, and tells Kafka now and then.
    fn advanced(&mut self, trigger: Trigger, context: &mut Context<'_>) {
        let fence = &self.lane.fence;
        while self.runs.front().is_some_and(|run| run.last_offset().is_none_or(|last| last < fence.offset)) {
            self.runs.pop_front();
            let (run, index) = self.lane.next;
            self.lane.next = if run == 0 { (0, 0) } else { (run - 1, index) };
        }
        let (run, index) = self.lane.next;
        let waiting = self.runs.get(run).and_then(|run| run.get(index)).map(|record| record.at);
        context.letters.prune(fence);
        context.effects.push(Effect::Note(Note::Advanced { fence: fence.clone(), waiting }));
        if trigger == Trigger::Shutdown || context.now.saturating_sub(self.told) >= TELL_EVERY {
            self.told = context.now;
            context.effects.push(Effect::TellKafka(fence.offset));
        }
    }
}
