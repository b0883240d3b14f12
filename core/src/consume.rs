//! One Kafka partition becoming rows: where it is read from, which records are written together, and what follows from
//! each answer. Sending, waiting and drawing jitter are its runner's.
//!
//! The rules, in the order in which a partition meets them:
//!
//! 1. The stored fence is read before the log, and reading starts at the fence.
//! 2. Records gather into a batch until it is due. A record that is no event gets a dead letter, and the batch is not
//!    sealed before every dead letter in it is acknowledged.
//! 3. A partition has one lane or several, each with a fence of its own. An event's lane follows from what it is about; what is
//!    no event goes through lane 0. A lane has one transaction under way at a time. It moves the lane's fence and changes the
//!    rows, or does neither. How far the partition is, is how far its least lane is.
//! 4. A refusal for conflict or throttling alone means that nothing happened: the same transaction is sent again. After an
//!    unknown outcome, or a refusal that says that the fence has moved, the fence is read again.
//! 5. A row that the table does not take is found by halving the batch; its record becomes a dead letter.
//! 6. Records are decoded by the definitions that the fence states. One whose action none of them has stops all lanes and makes the
//!    deployment's list be read. More definitions, and more lanes or fewer, are taken where all lanes have come to one offset: in
//!    one transaction over all fences, behind which they are read again.
//! 7. What a partition has added to a sum stands in its cell under a condition of its own. A cell ahead of a fence that was not
//!    moved back by its own command is an alarm.
//! 8. The rows of a set may be under several homes. Before each part of a batch its members are looked for, and each is written where
//!    it stands. Row keys that the store throttles make the machine ask for more of them.
//! 9. A fence may be moved by an operator. A partition that writes learns that from its next write; one that has written nothing
//!    for a minute looks at its fence.
//! 10. A log that does not fit the fence, and a store that refuses for good, make the partition stand still with an alarm;
//!     so does one that refuses record after record.

mod chain;
mod change;
mod effect;
mod heats;
mod learning;
mod letters;
mod load;
mod outcome;
mod pace;
mod places;
mod reading;
mod runs;
mod setup;
mod write;
mod writing;

use std::sync::Arc;
use std::time::Duration;

pub use effect::{Cause, Effect, Halt, Input, Leave, Look, Misrouted, Note, Replacing, Transaction};
pub use letters::Letter;
pub use load::CALLS;
use pace::Pace;
pub use pace::{BadLanePolicy, LanePolicy};
pub use setup::Setup;

use crate::definitions::Definitions;
use crate::fence::{self, Alarm, Fence, Offset};
use crate::ports::log::Record;
use crate::time::Now;

use heats::Heats;
use letters::Letters;
use load::{Loaded, Loading};
use reading::{Context, Reading, Then};

/// How long a partition stands still before its fence and log are read again.
const RECHECK: Duration = Duration::from_secs(30);

/// How many records in a row the store may refuse, with none taken between them, before the store is to blame and not they.
const REFUSED: u32 = 16;

/// How long a revoked partition may still be drained.
const DRAIN: Duration = Duration::from_secs(5);

/// The machine of one partition, from its assignment until it is left.
///
/// Its runner calls [`step`](Self::step) with what happened, carries out the effects, and while [`reads`](Self::reads)
/// holds also asks for records. Of the requests that have an answer each lane has at most one under way at a time, and so has the
/// partition, dead letters apart; behind [`Note::Loading`] none of before is waited for. An answer that is not waited for changes
/// nothing. Records are the exception: behind [`Effect::StartAt`] none may be
/// handed in that were read from an earlier position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Consume {
    setup: Arc<Setup>,
    phase: Phase,
    letters: Letters,
    heats: Heats,
    /// What the batches before the fences were read again say.
    pace: Option<Pace>,
    /// Nothing new may be begun.
    leaving: bool,
    /// When what is under way is given up.
    deadline: Option<Duration>,
    /// How many reloads before the next one led to nothing written, which sets its wait; `None`: the next is at once.
    fruitless: Option<u32>,
    /// How many records the store has refused since it took one.
    refused: u32,
    /// Why the partition stood still last, unless it has written something since.
    halted: Option<Halt>,
    /// The log no longer fits the fence, or cannot be read.
    doubted: bool,
    /// A cell is ahead of this fence, if the fence still stands.
    ahead: Option<(Fence, Alarm)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Before the first input.
    New,
    /// The fence and the log are being read.
    Loading(Loading),
    /// Records are read and written.
    Reading(Box<Reading>),
    /// Waits before the fence is read again.
    Resting(Cause),
    /// Over.
    Left,
}

impl Consume {
    /// A partition that is not assigned yet.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup: Arc::new(setup),
            phase: Phase::New,
            letters: Letters::default(),
            heats: Heats::default(),
            pace: None,
            leaving: false,
            deadline: None,
            fruitless: Some(0),
            refused: 0,
            halted: None,
            doubted: false,
            ahead: None,
        }
    }

    /// Takes in what happened at `now`, and appends what is to be done, in order.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        let now = now.at;
        match input {
            Input::Assigned if self.phase == Phase::New => self.load(Cause::Assigned, effects),
            Input::Leave(leave) => self.leave(leave, now, effects),
            Input::Looked(look) => self.looked(&look, now, effects),
            Input::Woke => self.woke(now, effects),
            Input::Waited(None) => self.waited(now, effects),
            Input::Waited(Some(lane)) => {
                self.reading(now, effects, |reading, context| reading.waited_in(lane, context));
            }
            Input::LetterStored(letter) => self.letter_stored(&letter, now, effects),
            Input::LetterRefused(letter) => self.letters.refused(letter, effects),
            Input::Records(records) => self.reading(now, effects, |reading, context| reading.read(records, context)),
            Input::Committed(lane, commit) => {
                self.reading(now, effects, |reading, context| reading.committed(lane, &commit, context));
            }
            Input::Cells(lane, reached) => {
                self.reading(now, effects, |reading, context| reading.cells(lane, reached, context));
            }
            Input::Maps(lane, maps) => {
                self.reading(now, effects, |reading, context| reading.maps_read(lane, maps, context));
            }
            Input::Located(lane, found) => {
                self.reading(now, effects, |reading, context| reading.located(lane, found, context));
            }
            Input::Moved(announced) => {
                if let Phase::Reading(reading) = &mut self.phase {
                    reading.maps.announced(announced);
                }
            }
            Input::Definitions(list) if self.is_reading() => {
                self.reading(now, effects, |reading, context| reading.defined(list, context));
            }
            Input::FenceStored(stored) if self.is_reading() => {
                self.reading(now, effects, |reading, _| reading.replaced(&stored));
            }
            Input::Fence(stored) if self.is_reading() => {
                self.reading(now, effects, |reading, context| reading.looked_at(&stored, context));
            }
            answer => self.loading(answer, now, effects),
        }
    }

    /// Whether the next records are wanted.
    pub fn reads(&self) -> bool {
        matches!(&self.phase, Phase::Reading(reading) if reading.reads() && !self.doubted && !self.leaving)
    }

    fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading(_))
    }

    /// What records are decoded by, while they are read.
    pub fn definitions(&self) -> Option<&Definitions> {
        if let Phase::Reading(reading) = &self.phase { Some(reading.learning.definitions()) } else { None }
    }

    /// When [`Input::Woke`] is due, if nothing else happens.
    pub fn wake_at(&self) -> Option<Duration> {
        if self.phase == Phase::Left {
            return None;
        }
        let due = if let Phase::Reading(reading) = &self.phase { reading.due_at(&self.heats) } else { None };
        // What is left to be written is under way when the partition is left.
        let due = due.filter(|_| !self.doubted && !self.leaving);
        [due, self.deadline].into_iter().flatten().min()
    }

    /// The records read from `from` up to `to`, as far as they are still held.
    pub fn records(&self, from: Offset, to: Offset) -> impl Iterator<Item = Record<'_>> {
        let reading = if let Phase::Reading(reading) = &self.phase { Some(reading) } else { None };
        let runs = reading.into_iter().flat_map(|reading| reading.runs.iter());
        runs.flat_map(move |run| run.between(from, to))
    }

    fn load(&mut self, cause: Cause, effects: &mut Vec<Effect>) {
        self.doubted = false;
        self.letters.forget_unacknowledged();
        effects.push(Effect::Note(Note::Loading(cause)));
        self.phase = Phase::Loading(Loading::begin(effects));
    }

    fn loading(&mut self, answer: Input, now: Duration, effects: &mut Vec<Effect>) {
        let Phase::Loading(loading) = &mut self.phase else { return };
        if let (Input::Fence(Ok(Some(fences))), Some((seen, _))) = (&answer, &self.ahead) {
            // The cell was read first, so a fence that has not moved since was behind it all along.
            let confirmed = fences.get(seen.lane) == Some(seen);
            let ahead = self.ahead.take().filter(|_| confirmed);
            if let Some((_, alarm)) = ahead {
                self.fruitless = Some(0);
                return self.halt(Halt::Alarm(alarm), effects);
            }
        }
        match loading.answered(answer, &self.setup.partition, effects) {
            Loaded::NotYet => {}
            Loaded::From(ready) => {
                let fences = &ready.fences;
                self.letters.prune(fences.least());
                // At once, although nothing is done yet: what is told is marked as this deployment's.
                effects.push(Effect::TellKafka(fences.least().offset));
                effects.push(Effect::Note(Note::Reading(fences.clone())));
                let reading = Reading::new(&self.setup, ready, self.pace.take(), now);
                self.phase = Phase::Reading(Box::new(reading));
            }
            Loaded::Halt(halt) => {
                self.fruitless = Some(0);
                self.halt(halt, effects);
            }
        }
    }

    /// Does `act` where records are read, and what follows from it.
    fn reading(
        &mut self,
        now: Duration,
        effects: &mut Vec<Effect>,
        act: impl FnOnce(&mut Reading, &mut Context<'_>) -> Then,
    ) {
        let Phase::Reading(reading) = &mut self.phase else { return };
        let mut context = Context {
            setup: &self.setup,
            letters: &mut self.letters,
            heats: &mut self.heats,
            leaving: self.leaving,
            doubted: &mut self.doubted,
            fruitless: &mut self.fruitless,
            refused: &mut self.refused,
            now,
            effects,
        };
        let then = act(reading, &mut context);
        if self.fruitless.is_none() {
            self.halted = None;
        }
        match then {
            Then::GoOn => {}
            Then::End => self.end(effects),
            Then::Halt(halt) => {
                self.fruitless = Some(self.fruitless.map_or(0, |loads| loads.saturating_add(1)));
                self.halt(halt, effects);
            }
            Then::Reload(cause, why) => self.reload(cause, why, effects),
            Then::Confirm(fence, alarm) => {
                let (why, halted) = (alarm.to_string(), self.halted.take());
                self.ahead = Some((fence, alarm));
                self.reload(Cause::Cell, why, effects);
                self.halted = halted;
            }
        }
    }

    /// Reads the fence again, at once unless the last load led nowhere.
    fn reload(&mut self, cause: Cause, why: String, effects: &mut Vec<Effect>) {
        effects.push(Effect::Note(Note::Doubted { cause, why }));
        self.halted = None;
        if let Phase::Reading(reading) = &self.phase {
            self.pace = Some(reading.pace.clone());
        }
        if self.leaving {
            return self.end(effects);
        }
        match self.fruitless {
            None => {
                self.fruitless = Some(0);
                self.load(cause, effects);
            }
            Some(attempt) => {
                self.fruitless = Some(attempt.saturating_add(1));
                self.phase = Phase::Resting(cause);
                effects.push(Effect::BackOff { lane: None, attempt });
            }
        }
    }

    /// Stands still until it is time to look again.
    fn halt(&mut self, halt: Halt, effects: &mut Vec<Effect>) {
        let again = self.halted.as_ref() == Some(&halt);
        effects.push(Effect::Note(Note::Halted { halt: halt.clone(), again }));
        self.halted = Some(halt);
        if self.leaving {
            return self.end(effects);
        }
        self.phase = Phase::Resting(Cause::Recheck);
        effects.push(Effect::Rest(RECHECK));
    }

    fn waited(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Resting(cause) => {
                let cause = *cause;
                self.load(cause, effects);
            }
            Phase::Loading(loading) => loading.waited(effects),
            Phase::Reading(_) => self.reading(now, effects, |reading, context| reading.waited(context)),
            Phase::New | Phase::Left => {}
        }
    }

    fn woke(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.end(effects);
        } else {
            self.reading(now, effects, Reading::woke);
        }
    }

    /// Nothing new is begun. What is under way is finished, unless there is no time for it; a write that is given up may
    /// still happen, and the fence decides about it.
    fn leave(&mut self, leave: Leave, now: Duration, effects: &mut Vec<Effect>) {
        self.leaving = true;
        match leave {
            Leave::AtOnce => return self.end(effects),
            Leave::Revoked => _ = self.deadline.get_or_insert(now.saturating_add(DRAIN)),
            Leave::Stopping => {}
        }
        match &self.phase {
            Phase::Reading(_) => self.reading(now, effects, Reading::gather),
            _ => self.end(effects),
        }
    }

    fn end(&mut self, effects: &mut Vec<Effect>) {
        self.letters.forget_unacknowledged();
        match std::mem::replace(&mut self.phase, Phase::Left) {
            Phase::Left => {}
            Phase::Reading(reading) => {
                let fence = reading.least().offset;
                effects.push(Effect::TellKafka(fence));
                effects.push(Effect::Left { fence: Some(fence), unsent: reading.has_unsent() });
            }
            _ => effects.push(Effect::Left { fence: None, unsent: false }),
        }
    }

    /// A look at the log beside the running reader: a topic that grew, was created again or has lost records is noticed
    /// although nothing says so.
    fn looked(&mut self, look: &Look, now: Duration, effects: &mut Vec<Effect>) {
        let Phase::Reading(reading) = &mut self.phase else { return };
        reading.partitions = look.partitions;
        if fence::unfit(&look.fence.topic, look.fence.offset, look.furthest, &look.log).is_some() {
            self.doubted = true;
            self.reading(now, effects, Reading::gather);
        }
    }

    fn letter_stored(&mut self, letter: &Letter, now: Duration, effects: &mut Vec<Effect>) {
        self.letters.stored(letter);
        self.reading(now, effects, |reading, context| reading.letter_stored(letter, context));
    }
}

#[cfg(test)]
mod tests;
