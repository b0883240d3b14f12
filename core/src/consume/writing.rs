//! What a lane writes, and what follows from each answer.

use std::time::Duration;

use super::REFUSED;
use super::chain::Stage;
use super::effect::{Cause, Effect, Halt, Note};
use super::letters::Letter;
use super::outcome;
use super::reading::{Context, Reading, Then};
use super::write::{Cells, Split, Writing};
use crate::batch::Trigger;
use crate::event::Rejection;
use crate::fence::{Alarm, Commit, Next, Reached};
use crate::ids::Lane;
use crate::ports::Outcome;

/// How often Kafka is told how far the partition is.
const TELL_EVERY: Duration = Duration::from_secs(5);

impl Reading {
    /// Writes the batch of `lane` that is due, once every dead letter in it is acknowledged.
    pub(super) fn seal(&mut self, lane: Lane, context: &mut Context<'_>) {
        let to = self.end_of(&self.chains[lane.index()]);
        let chain = &mut self.chains[lane.index()];
        let Stage::Due { trigger, since } = chain.stage else { return };
        let Some(batch) = chain.batch.seal_to(to) else { return };
        context.note(Note::Sealed { lane, trigger, from: batch.from(), to: batch.to() });
        chain.stage = Stage::Writing(Writing::new(trigger, since, batch));
        self.send(lane, context);
    }

    /// Decides what follows a transaction. An unknown outcome never means that nothing happened.
    pub(super) fn committed(&mut self, lane: Lane, commit: &Commit, context: &mut Context<'_>) -> Then {
        let over = self.over.is_some();
        let Some(chain) = self.chain(lane) else { return Then::GoOn };
        let Stage::Writing(writing) = &mut chain.stage else { return Then::GoOn };
        if !writing.awaits_answer() {
            return Then::GoOn;
        }
        let next = commit.next();
        if next == Next::Go {
            context.effects.push(Effect::Note(Note::Applied(writing.part().len())));
            context.heats.offered(writing.part(), context.now);
            chain.fence.offset = writing.part().to();
            *context.fruitless = None;
            if writing.part().rows() > 0 {
                *context.refused = 0;
            }
        }
        if over {
            chain.stage = Stage::Gathering;
            return self.over_once_answered();
        }
        match next {
            Next::Go => {
                self.confirmed = context.now;
                self.next_part(lane, context)
            }
            Next::Again => {
                context.heats.refused(&writing.transaction(&chain.fence), commit, context.now);
                let tries = writing.refused_for_now();
                let (class, why) = (outcome::class_of(commit), outcome::summary(commit));
                context.note(Note::Retrying { call: "commit", class, tries, why });
                context.effects.push(Effect::BackOff { lane: Some(lane), attempt: tries - 1 });
                Then::GoOn
            }
            // Below `redo` each cell was read before it was added to.
            Next::Reload if writing.adds_to_cells() && commit.refuses_a_cell() && !chain.fence.is_redoing() => {
                context.effects.push(writing.doubt(lane));
                Then::GoOn
            }
            Next::Reload => self.ends(lane, Then::Reload(outcome::cause_of(commit), outcome::summary(commit))),
            Next::Bisect => {
                let then = self.bisect(lane, outcome::summary(commit), context);
                self.ends(lane, then)
            }
            Next::Halt => {
                let sent = writing.transaction(&chain.fence);
                let changes = sent.changes();
                let (index, shards) = (context.setup.partition.index, context.setup.shards);
                let halt = Halt::Refused(outcome::refusal(commit, &changes, index, shards));
                self.ends(lane, Then::Halt(halt))
            }
        }
    }

    /// Looks for the row that the table does not take: by halves, until one event is left, which is put aside.
    fn bisect(&mut self, lane: Lane, refused: String, context: &mut Context<'_>) -> Then {
        let chain = &mut self.chains[lane.index()];
        let Stage::Writing(writing) = &mut chain.stage else { return Then::GoOn };
        match writing.split() {
            Split::Halved => {
                context.note(Note::Bisected);
                self.next_part(lane, context)
            }
            Split::Culprit(offset) if *context.refused >= REFUSED => Then::Halt(Halt::Refused(format!(
                "the store takes no record, {REFUSED} in a row were put aside: {offset}: {refused}"
            ))),
            Split::Culprit(offset) => {
                *context.refused += 1;
                let (run, _) = self.runs.at(offset).expect("a run is kept until every fence has passed it");
                let letter = chain.letter(run, offset, Rejection::RefusedByStore(refused));
                context.letters.send(letter, context.effects);
                Then::GoOn
            }
            // Nothing but the fence is left to blame.
            Split::Fence => Then::Halt(Halt::Refused(format!("the store refuses the fence: {refused}"))),
        }
    }

    /// How far the cells have come that `lane` asked for.
    pub(super) fn cells(
        &mut self,
        lane: Lane,
        reached: Outcome<Vec<Option<Reached>>>,
        context: &mut Context<'_>,
    ) -> Then {
        if self.over.is_some() {
            return Then::GoOn;
        }
        let Some(chain) = self.chain(lane) else { return Then::GoOn };
        let Stage::Writing(writing) = &mut chain.stage else { return Then::GoOn };
        let reached = match reached {
            Ok(reached) => reached,
            Err(fault) if fault.is_retryable() => {
                let Some(tries) = writing.cells_failed() else { return Then::GoOn };
                context.note(Note::Retrying { call: "cells", class: fault.class(), tries, why: fault.to_string() });
                context.effects.push(Effect::BackOff { lane: Some(lane), attempt: tries - 1 });
                return Then::GoOn;
            }
            Err(fault) => return self.ends(lane, Then::Halt(Halt::Refused(format!("cells: {fault}")))),
        };
        let then = match writing.cells(reached, &chain.fence) {
            Cells::NotAsked => return Then::GoOn,
            Cells::Send(effect) => {
                context.effects.push(effect);
                return Then::GoOn;
            }
            Cells::Doubted(Some((counter, to))) => {
                let fence = chain.fence.clone();
                let alarm = Alarm::CellAhead { fence: fence.offset, counter, to };
                Then::Confirm(fence, alarm)
            }
            Cells::Doubted(None) => Then::Reload(Cause::Condition, "a cell was not as it had to be".to_owned()),
        };
        self.ends(lane, then)
    }

    /// An acknowledgement counts for the configuration of the fence that its record was read under.
    pub(super) fn letter_stored(&mut self, letter: &Letter, context: &mut Context<'_>) -> Then {
        if letter.cfg != self.chains[0].fence.cfg || self.over.is_some() {
            return Then::GoOn;
        }
        for lane in self.lanes().all() {
            let chain = &mut self.chains[lane.index()];
            chain.batch.dead_letter_acknowledged(letter.offset);
            match &mut chain.stage {
                Stage::Gathering => {}
                Stage::Due { .. } => self.seal(lane, context),
                Stage::Writing(writing) => {
                    if writing.put_aside(letter.offset) {
                        return self.next_part(lane, context);
                    }
                }
            }
        }
        Then::GoOn
    }

    /// Writes what is left of the batch of `lane`, or goes on gathering.
    fn next_part(&mut self, lane: Lane, context: &mut Context<'_>) -> Then {
        let chain = &mut self.chains[lane.index()];
        let Stage::Writing(writing) = &mut chain.stage else { return Then::GoOn };
        if writing.next() {
            self.send(lane, context);
            return Then::GoOn;
        }
        let (trigger, rows, took) = (writing.trigger, writing.rows, context.now.saturating_sub(writing.since));
        context.note(Note::Flushed { lane, trigger, events: writing.events, rows, took });
        chain.stage = Stage::Gathering;
        let waits = !chain.waiting.is_empty() || self.runs.has_next();
        self.pace.flushed(trigger, rows, context.setup.limits.rows, waits, context.now);
        self.advanced(trigger, context);
        self.gather(context)
    }

    /// A fence has moved: lets go of what lies behind the least, and tells Kafka now and then.
    fn advanced(&mut self, trigger: Trigger, context: &mut Context<'_>) {
        let (fence, furthest) = (self.least().clone(), self.furthest());
        self.runs.release(fence.offset);
        let waiting = self.runs.first_from(fence.offset).map(|record| record.at);
        context.letters.prune(&fence);
        if trigger == Trigger::Shutdown || context.now.saturating_sub(self.told) >= TELL_EVERY {
            self.told = context.now;
            context.effects.push(Effect::TellKafka(fence.offset));
        }
        context.note(Note::Advanced { fence, furthest, waiting });
    }
}
