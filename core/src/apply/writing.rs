//! One prefix on its way into the counters: so many side by side, then the closing marker by itself.

use std::sync::Arc;

use super::remembered::{Remembered, Totals};
use super::sending::{Next, Sending};
use super::{Answer, Asking, RequestId, Written};
use crate::Map;
use crate::counter::Counter;
use crate::fault::Fault;
use crate::ids::{CounterId, CounterKind, Ordinal, StreamShardId};
use crate::lineage::Picture;
use crate::milestone::{Ladder, Terms};
use crate::served::Served;
use crate::standing::Reading;
use crate::tally::{Boundary, CounterRecords, Prefix, UpdateContext};
use crate::time::Now;
use crate::window::Report;

/// Ancestors that an update names. Feeders further away are found by asking again, and so are their watermarks.
const ANCESTORS: usize = 6;

/// A prefix being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writing {
    pub(super) written: Written,
    /// Whether it ends in a window's closing marker.
    pub(super) closes_window: bool,
    /// That window's report, if its capture is complete.
    pub(super) report: Option<Report>,
    basis: Basis,
    /// Counters whose update is not sent yet.
    waiting: Vec<(CounterId, CounterRecords)>,
    /// The closing marker, whose update is not sent yet.
    boundary: Option<Boundary>,
    unanswered: Map<RequestId, Sending>,
    is_finished: bool,
}

/// What all updates of a prefix are made from. Its picture may grow old: what is closed stays closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    shard: Ordinal,
    /// The nearest closed ancestors.
    ancestors: Vec<Ordinal>,
    pub(super) picture: Arc<Picture>,
}

/// What an answer is taken in.
pub(super) struct Surroundings<'a> {
    pub(super) now: Now,
    pub(super) latest: &'a Picture,
    pub(super) remembered: &'a mut Remembered,
    pub(super) ladder: &'a mut Ladder,
    pub(super) totals: &'a mut Totals,
    pub(super) asking: Asking<'a>,
}

impl Basis {
    /// What an update of `counter` needs besides the records.
    pub(super) fn context<'a>(&'a self, counter: &CounterId, around: &'a Surroundings<'_>) -> UpdateContext<'a> {
        UpdateContext {
            shard: self.shard,
            now: around.now.wall,
            ancestors: &self.ancestors,
            closed_through: self.picture.closed_through,
            seen: around.remembered.of(counter),
            terms: self.terms(counter, around),
        }
    }

    /// What is known of the milestones of `counter`.
    pub(super) fn terms(&self, counter: &CounterId, around: &Surroundings<'_>) -> Terms {
        Terms {
            ladder: *around.ladder,
            seen: around.totals.of(counter),
            now: around.now.wall,
            exact: self.reading(around).allows_exact(around.now),
        }
    }

    /// A counter that the store has just shown, as it is published. It includes what every counter included before the
    /// prefix was begun. A gap that was open then, or is now, says that it may be wrong; so does a picture that is too old
    /// to know of a gap.
    pub(super) fn served(&self, kind: CounterKind, counter: &Counter, around: &Surroundings<'_>) -> Served {
        self.reading(around).serve_as(kind, Some(counter), around.now)
    }

    fn reading(&self, around: &Surroundings<'_>) -> Reading {
        let reading = self.picture.reading();
        let open_gaps = reading.open_gaps || around.latest.open_gaps;
        Reading { open_gaps, ..reading }
    }
}

impl Writing {
    pub(super) fn new(
        id: &StreamShardId,
        shard: Ordinal,
        picture: Arc<Picture>,
        prefix: Prefix,
        report: Option<Report>,
        written: Written,
    ) -> Self {
        let ancestors = picture.lineage.closed_ancestors(id, ANCESTORS);
        Self {
            written,
            closes_window: prefix.boundary.is_some(),
            report,
            basis: Basis { shard, ancestors, picture },
            waiting: prefix.counters.into_iter().collect(),
            boundary: prefix.boundary,
            unanswered: Map::default(),
            is_finished: false,
        }
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// The fault after which the store will not go on.
    pub(super) fn answered(
        &mut self,
        id: RequestId,
        answer: Answer,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Fault> {
        let Some(mut sending) = self.unanswered.remove(&id) else { return Ok(()) };
        match sending.answered(answer, &self.basis, around) {
            Next::Ask(request) => {
                self.unanswered.insert(around.asking.ask(request), sending);
            }
            Next::Settled => {}
            Next::Finished => self.is_finished = true,
            Next::Failed(fault) => return Err(fault),
        }
        Ok(())
    }

    /// Sends updates until `concurrency` counters are unanswered; the closing marker's once none is.
    pub(super) fn send(&mut self, concurrency: usize, around: &mut Surroundings<'_>) {
        while !self.is_finished && self.unanswered.len() < concurrency {
            let Some((counter, records)) = self.waiting.pop() else { break };
            if let Some(update) = records.update(&self.basis.context(&counter, around)) {
                self.ask(Sending::new(counter, records, update), around);
            }
        }
        if !self.is_finished
            && self.unanswered.is_empty()
            && let Some(boundary) = self.boundary.take()
        {
            let counter = boundary.key.counter.clone();
            let update = boundary.update(&self.basis.context(&counter, around));
            self.ask(Sending::new(counter, CounterRecords::default(), update), around);
        }
    }

    fn ask(&mut self, (sending, request): (Sending, super::Request), around: &mut Surroundings<'_>) {
        self.unanswered.insert(around.asking.ask(request), sending);
    }

    /// Whether nothing is unanswered, and nothing is left to send.
    pub(super) fn is_settled(&self) -> bool {
        self.unanswered.is_empty() && (self.is_finished || self.waiting.is_empty() && self.boundary.is_none())
    }

    /// Whether a counter said that another worker has finished the stream shard.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }
}
