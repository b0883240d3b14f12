//! One fence and its chain of batches: takes records into a batch until it is due, and holds where the chain stands.
//!
//! All that belongs to a fence is here, so that a partition can have several.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Setup;
use super::effect::{Effect, Misrouted, Note};
use super::learning::Learning;
use super::letters::Letter;
use super::reading::Context;
use super::write::Writing;
use crate::batch::{Batch, BatchLimits, Taken, Trigger};
use crate::event::{Event, Rejection, Routing, decode};
use crate::fence::{Fence, Offset};
use crate::ports::log::{Record, Records};
use crate::time::UnixMillis;

/// One fence, what waits to be written under it, and what is being written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    pub(super) fence: Fence,
    pub(super) batch: Batch,
    /// The next record to take: a run, and an index in it.
    pub(super) next: (usize, usize),
    pub(super) stage: Stage,
}

/// What the lane is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Records are taken into the batch.
    Gathering,
    /// The batch is due, and waits for its dead letters to be acknowledged.
    Due { trigger: Trigger, since: Duration },
    /// A sealed batch is being written.
    Writing(Writing),
}

/// Where a pass over the records has stopped.
pub(super) enum Stopped {
    /// The batch is due.
    Due(Trigger),
    /// Nothing is left.
    AtTheEnd,
    /// The next record, at this offset, has this action, which no definition in force has.
    Unknown(Box<str>, Offset),
}

/// What one pass over the records has seen.
#[derive(Default)]
struct Seen {
    stale: u64,
    misrouted: Option<Misrouted>,
    oldest: Option<UnixMillis>,
}

impl Lane {
    pub(super) fn new(limits: BatchLimits, fence: Fence) -> Self {
        let batch = Batch::new(limits, fence.offset);
        Self { fence, batch, next: (0, 0), stage: Stage::Gathering }
    }

    /// How far the rows have come.
    pub(super) fn offset(&self) -> Offset {
        self.fence.offset
    }

    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.stage, Stage::Gathering)
    }

    /// When what is gathered is due by age.
    pub(super) fn due_at(&self) -> Option<Duration> {
        self.batch.due_at().filter(|_| self.is_gathering())
    }

    /// Takes what was read into the batch, until it is due, a record is not understood, or nothing is left.
    pub(super) fn take(
        &mut self,
        runs: &VecDeque<Arc<Records>>,
        learning: &Learning,
        partitions: u32,
        context: &mut Context<'_>,
    ) -> Stopped {
        let Setup { key: scheme, shards, .. } = *context.setup;
        let routing = Routing { scheme, shards, partitions };
        let mut seen = Seen::default();
        let stopped = loop {
            if let Some(trigger) = self.batch.due(context.now) {
                break Stopped::Due(trigger);
            }
            let Some(run) = runs.get(self.next.0) else { break Stopped::AtTheEnd };
            let Some(record) = run.get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            let offered = match decode(record, learning.definitions()) {
                Err(Rejection::BadAction(Some(action)))
                    if record.offset >= self.batch.to() && !learning.is_settled(record.offset, &action) =>
                {
                    break Stopped::Unknown(action, record.offset);
                }
                decoded => self.offer(run, record, decoded, &routing, &mut seen, context),
            };
            match offered {
                Taken::Full => break Stopped::Due(Trigger::Rows),
                Taken::Stale => seen.stale += 1,
                Taken::Taken => seen.oldest = Some(seen.oldest.map_or(record.at, |oldest| oldest.min(record.at))),
            }
            self.next.1 += 1;
        };
        let Seen { stale, misrouted, oldest } = seen;
        if stale > 0 || oldest.is_some() {
            context.effects.push(Effect::Note(Note::Taken { stale, misrouted, oldest }));
        }
        stopped
    }

    /// The dead letter of the record at `offset` of `run`.
    pub(super) fn letter(&self, run: &Arc<Records>, offset: Offset, rejection: Rejection) -> Letter {
        Letter { cfg: self.fence.cfg, offset, records: Arc::clone(run), rejection }
    }

    /// Offers a record of `run` to the batch: as an event, or as one that needs a dead letter first.
    fn offer(
        &mut self,
        run: &Arc<Records>,
        record: Record<'_>,
        decoded: Result<Event<'_>, Rejection>,
        routing: &Routing,
        seen: &mut Seen,
        context: &mut Context<'_>,
    ) -> Taken {
        let (offset, weight, now) = (record.offset, record.weight(), context.now);
        if context.letters.has(self.fence.cfg, offset) {
            let taken = self.batch.reject(offset, weight, now);
            self.batch.dead_letter_acknowledged(offset);
            return taken;
        }
        match decoded {
            Ok(event) => {
                let taken = self.batch.accept(offset, &event, weight, now);
                let index = context.setup.partition.index;
                if taken == Taken::Taken && !routing.fits(&event, index) {
                    let events = seen.misrouted.map_or(0, |misrouted| misrouted.events) + 1;
                    seen.misrouted = Some(Misrouted { events, last: offset, partitions: routing.partitions });
                }
                taken
            }
            Err(rejection) => {
                let taken = self.batch.reject(offset, weight, now);
                if taken == Taken::Taken {
                    context.letters.send(self.letter(run, offset, rejection), context.effects);
                }
                taken
            }
        }
    }
}
