//! One sealed batch being written: as one transaction, or in as many parts as it takes to find a row that the table
//! refuses.

use std::sync::Arc;
use std::time::Duration;

use super::effect::Transaction;
use crate::batch::{SealedBatch, Trigger};
use crate::fence::{Advance, Fence, Offset};

/// What is left of a sealed batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Writing {
    pub(super) trigger: Trigger,
    /// When the batch was due.
    pub(super) since: Duration,
    /// How many events and rows the whole batch has.
    pub(super) events: usize,
    pub(super) rows: usize,
    part: Arc<SealedBatch>,
    /// The parts behind this one, the next one last.
    rest: Vec<SealedBatch>,
    /// How often this part was refused for conflict or throttling.
    tries: u32,
    waits_for: WaitsFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WaitsFor {
    /// The transaction's outcome.
    Answer,
    /// The end of a wait, to send the same again.
    Pause,
    /// The dead letter of the part's only event.
    Letter(Offset),
}

/// What is done about a part that the table does not take.
pub(super) enum Split {
    /// It is two parts now, to be written one after the other.
    Halved,
    /// It has this event alone.
    Culprit(Offset),
    /// It has no event: the fence itself is refused.
    Fence,
}

impl Writing {
    pub(super) fn new(trigger: Trigger, since: Duration, batch: SealedBatch) -> Self {
        let (events, rows) = (batch.len(), batch.rows());
        let part = Arc::new(batch);
        Self { trigger, since, events, rows, part, rest: Vec::new(), tries: 0, waits_for: WaitsFor::Answer }
    }

    pub(super) fn part(&self) -> &SealedBatch {
        &self.part
    }

    /// The part as a transaction: from the fence as it is known to the part's end.
    pub(super) fn transaction(&self, fence: &Fence) -> Transaction {
        Transaction { advance: Advance { from: fence.clone(), to: self.part.to() }, batch: Arc::clone(&self.part) }
    }

    pub(super) fn awaits_answer(&self) -> bool {
        self.waits_for == WaitsFor::Answer
    }

    /// The part certainly was not written and is sent again after a wait. How often that has been so.
    pub(super) fn refused_for_now(&mut self) -> u32 {
        self.waits_for = WaitsFor::Pause;
        self.tries = self.tries.saturating_add(1);
        self.tries
    }

    /// The wait is over: whether there was one.
    pub(super) fn again(&mut self) -> bool {
        let waited = self.waits_for == WaitsFor::Pause;
        if waited {
            self.waits_for = WaitsFor::Answer;
        }
        waited
    }

    /// The table does not take the part.
    pub(super) fn split(&mut self) -> Split {
        if let Some((first, second)) = self.part.halves() {
            self.rest.extend([second, first]);
            Split::Halved
        } else if let Some(culprit) = self.part.single() {
            self.waits_for = WaitsFor::Letter(culprit);
            Split::Culprit(culprit)
        } else {
            Split::Fence
        }
    }

    /// The dead letter of the event at `offset` is acknowledged: whether it was waited for. Then only the fence has to
    /// pass the event.
    pub(super) fn put_aside(&mut self, offset: Offset) -> bool {
        let awaited = self.waits_for == WaitsFor::Letter(offset);
        if awaited {
            self.rest.push(self.part.emptied());
        }
        awaited
    }

    /// Turns to the next part; `false` if there is none.
    pub(super) fn next(&mut self) -> bool {
        let Some(part) = self.rest.pop() else { return false };
        (self.part, self.tries, self.waits_for) = (Arc::new(part), 0, WaitsFor::Answer);
        true
    }
}
