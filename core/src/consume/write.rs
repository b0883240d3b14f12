//! One sealed batch being written: as one transaction, or in as many parts as it takes to find a row that the table
//! refuses.

use std::sync::Arc;
use std::time::Duration;

use super::effect::{Effect, Transaction};
use super::places::Places;
use crate::batch::{SealedBatch, Trigger};
use crate::fence::{Advance, Fence, Offset, Reached};
use crate::ids::{CounterId, Lane, ShardCount};

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
    /// Under which homes the part's rows are written.
    places: Places,
    /// How often maps had been dropped when that was asked.
    drops: u64,
    /// How far the part's cells have come, where that had to be read.
    reached: Vec<Option<Reached>>,
    /// How often this part was refused for conflict or throttling, or what it needs could not be read.
    tries: u32,
    waits_for: WaitsFor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WaitsFor {
    /// The transaction's outcome.
    Answer,
    /// The end of a wait, to send the same again.
    Pause,
    /// The maps of the part's counters, or where its members stand.
    Places,
    /// The end of a wait, to ask for them again.
    PlacesPause,
    /// What the part's cells have, before it is sent.
    Cells,
    /// The end of a wait, to read them again.
    CellsPause,
    /// What the part's cells have: one of them was refused.
    Doubt,
    /// The dead letter of the part's only event.
    Letter(Offset),
}

/// What follows once it is known how far the part's cells have come.
pub(super) enum Cells {
    NotAsked,
    /// The part is sent.
    Send(Effect),
    /// A cell was in doubt: this one is ahead of the fence up to there, or none is.
    Doubted(Option<(CounterId, Offset)>),
}

/// What follows the end of a wait.
pub(super) enum Again {
    Nothing,
    /// This is asked for again.
    Ask(Effect),
    /// Where the part's rows stand is asked again first.
    Place,
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
        Self {
            trigger,
            since,
            events,
            rows,
            part,
            rest: Vec::new(),
            places: Places::default(),
            drops: 0,
            reached: Vec::new(),
            tries: 0,
            waits_for: WaitsFor::Places,
        }
    }

    pub(super) fn part(&self) -> &SealedBatch {
        &self.part
    }

    /// What the part needs was asked for, when maps had been dropped so often.
    pub(super) fn asks(&mut self, drops: u64) {
        (self.drops, self.waits_for) = (drops, WaitsFor::Places);
    }

    /// How often maps had been dropped when it asked for what it waits for.
    pub(super) fn asked_at(&self) -> Option<u64> {
        (self.waits_for == WaitsFor::Places).then_some(self.drops)
    }

    /// What it asked for could not be read, and is asked for again after a wait. How often that has been so.
    pub(super) fn asks_later(&mut self) -> u32 {
        self.waits_for = WaitsFor::PlacesPause;
        self.tries = self.tries.saturating_add(1);
        self.tries
    }

    /// Where maps put the part's rows.
    pub(super) fn places(&mut self, places: Places, drops: u64) {
        (self.places, self.drops) = (places, drops);
    }

    /// Under which home each row stands that was sought; `None`: under none of those.
    pub(super) fn found(&mut self, found: Vec<Option<ShardCount>>) {
        for (row, home) in self.places.sought.iter().zip(found) {
            if let Some(home) = home {
                self.places.homes[*row] = Some(home);
            }
        }
    }

    /// What sends the part, once it is known where its rows are written. Where the fence was moved back, its cells are read first.
    pub(super) fn send(&mut self, fence: &Fence) -> Effect {
        if fence.is_redoing() && self.adds_to_cells() {
            self.waits_for = WaitsFor::Cells;
            return self.read_cells(fence.lane);
        }
        self.reached = Vec::new();
        self.commit(fence)
    }

    fn commit(&mut self, fence: &Fence) -> Effect {
        self.waits_for = WaitsFor::Answer;
        Effect::Commit(self.transaction(fence))
    }

    /// The part as a transaction: from the fence as it is known to the part's end.
    pub(super) fn transaction(&self, fence: &Fence) -> Transaction {
        let advance = Advance { from: fence.clone(), to: self.part.to() };
        let (homes, reached) = (self.places.homes.clone(), self.reached.clone());
        Transaction { advance, batch: Arc::clone(&self.part), homes, reached }
    }

    fn read_cells(&self, lane: Lane) -> Effect {
        Effect::ReadCells { lane, counters: self.part.cells().cloned().collect() }
    }

    /// A cell refused the part while the fence did not: asks how far the cells have come.
    pub(super) fn doubt(&mut self, lane: Lane) -> Effect {
        self.waits_for = WaitsFor::Doubt;
        self.read_cells(lane)
    }

    /// How far the part's cells have come.
    pub(super) fn cells(&mut self, reached: Vec<Option<Reached>>, fence: &Fence) -> Cells {
        match self.waits_for {
            WaitsFor::Cells => {
                self.reached = reached;
                Cells::Send(self.commit(fence))
            }
            WaitsFor::Doubt => {
                let generation = fence.terms.generation;
                let ahead =
                    |reached: Option<Reached>| reached.filter(|_| !Reached::admits(reached, generation, fence.offset));
                let mut cells = self.part.cells().zip(reached);
                let ahead = cells.find_map(|(counter, reached)| Some((counter.clone(), ahead(reached)?.to)));
                Cells::Doubted(ahead)
            }
            _ => Cells::NotAsked,
        }
    }

    /// The cells could not be read, and are read again after a wait. How often that has been so.
    pub(super) fn cells_failed(&mut self) -> Option<u32> {
        if !matches!(self.waits_for, WaitsFor::Cells | WaitsFor::Doubt) {
            return None;
        }
        if self.waits_for == WaitsFor::Cells {
            self.waits_for = WaitsFor::CellsPause;
        }
        self.tries = self.tries.saturating_add(1);
        Some(self.tries)
    }

    pub(super) fn adds_to_cells(&self) -> bool {
        self.part.cells().next().is_some()
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

    /// The wait is over. Since the part was placed, maps may have been dropped: so often they are by now.
    pub(super) fn again(&mut self, fence: &Fence, drops: u64) -> Again {
        match self.waits_for {
            WaitsFor::Pause if self.drops == drops => Again::Ask(self.commit(fence)),
            WaitsFor::Pause | WaitsFor::PlacesPause => Again::Place,
            WaitsFor::CellsPause => Again::Ask(self.send(fence)),
            WaitsFor::Doubt => Again::Ask(self.read_cells(fence.lane)),
            WaitsFor::Answer | WaitsFor::Places | WaitsFor::Cells | WaitsFor::Letter(_) => Again::Nothing,
        }
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
        (self.part, self.tries, self.waits_for) = (Arc::new(part), 0, WaitsFor::Places);
        true
    }
}
