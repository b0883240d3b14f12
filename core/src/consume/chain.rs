//! One lane's fence and its chain of batches: takes records into a batch, and holds where the chain stands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::letters::Letter;
use super::reading::Context;
use super::write::Writing;
use crate::batch::{Batch, BatchLimits, Taken, Trigger};
use crate::event::{Event, Rejection};
use crate::fence::{Fence, Offset};
use crate::ports::log::{Record, Records};

/// How long a lane with nothing to write may be behind before its fence follows.
const FOLLOW_AFTER: Duration = Duration::from_secs(10);

/// How many records it may be behind.
const FOLLOW_BEHIND: u64 = 5_000;

/// One fence, what waits to be written under it, and what is being written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Chain {
    pub(super) fence: Fence,
    pub(super) batch: Batch,
    /// Records that were handed to the lane while the batch had no room, in order.
    pub(super) waiting: VecDeque<Offset>,
    pub(super) stage: Stage,
    /// Since when it is behind with nothing to write.
    behind: Option<Duration>,
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

impl Chain {
    pub(super) fn new(limits: BatchLimits, fence: Fence) -> Self {
        let batch = Batch::new(limits, fence.offset);
        Self { fence, batch, waiting: VecDeque::new(), stage: Stage::Gathering, behind: None }
    }

    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.stage, Stage::Gathering)
    }

    /// Whether a transaction is under way.
    pub(super) fn awaits_answer(&self) -> bool {
        matches!(&self.stage, Stage::Writing(writing) if writing.awaits_answer())
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.waiting.is_empty()
    }

    /// Whether the batch takes another record. While another batch is being written this one fills up.
    pub(super) fn has_room(&self) -> bool {
        self.batch.has_room() && !matches!(self.stage, Stage::Due { .. })
    }

    /// How far its fence may move, when all before `handed` was handed to the lanes.
    pub(super) fn until(&self, handed: Offset) -> Offset {
        self.waiting.front().map_or(handed, |first| handed.min(*first))
    }

    /// When what is gathered is due by age, or the fence is to follow.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let follow = self.behind.map(|since| since.saturating_add(FOLLOW_AFTER));
        self.batch.due_at().or(follow).filter(|_| self.is_gathering())
    }

    /// Why its batch is due, or its fence is to follow what was `handed` to all lanes.
    /// Where reading is `pressed`, it waits for this lane.
    pub(super) fn due(&mut self, handed: Offset, pressed: bool, now: Duration) -> Option<Trigger> {
        let behind = handed.0.saturating_sub(self.fence.offset.0);
        if !self.is_empty() || behind == 0 {
            self.behind = None;
            return self.batch.due(now);
        }
        let since = *self.behind.get_or_insert(now);
        let follows = pressed || behind >= FOLLOW_BEHIND || now >= since.saturating_add(FOLLOW_AFTER);
        follows.then_some(Trigger::Follow)
    }

    /// Its batch is due, or its fence follows.
    pub(super) fn begin(&mut self, trigger: Trigger, now: Duration) {
        self.behind = None;
        self.stage = Stage::Due { trigger, since: now };
    }

    /// The dead letter of the record at `offset` of `run`.
    pub(super) fn letter(&self, run: &Arc<Records>, offset: Offset, rejection: Rejection) -> Letter {
        Letter { cfg: self.fence.cfg, offset, records: Arc::clone(run), rejection }
    }

    /// Offers a record of `run` to the batch: as an event, or as one that needs a dead letter first.
    pub(super) fn offer(
        &mut self,
        run: &Arc<Records>,
        record: Record<'_>,
        decoded: Result<Event<'_>, Rejection>,
        context: &mut Context<'_>,
    ) -> Taken {
        let (offset, weight, now) = (record.offset, record.weight(), context.now);
        if context.letters.has(self.fence.cfg, offset) {
            let taken = self.batch.reject(offset, weight, now);
            self.batch.dead_letter_acknowledged(offset);
            return taken;
        }
        match decoded {
            Ok(event) => self.batch.accept(offset, &event, weight, now),
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
