//! Gathers what a fold has read of one partition of the log of changes: [`Partition`] holds the items that are accepted
//! but not yet written, by counter, and its [`Flush`] applies them to the counters.

use std::collections::BTreeMap;

use super::reading::Reading;
use super::{Change, Counter, Mark, Overflow, ReadTo, Replaced};
use crate::changes::{Correction, Entry, Filter, Item, Message, Place, Standing, Taken};
use crate::ids::CounterId;
use crate::milestone::{Ladder, Winner};
use crate::time::UnixMillis;

/// A partition, read from a stored position on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Partition {
    filter: Filter,
    /// Everything before this place was taken.
    place: Place,
    /// The thresholds in force at the place.
    ladder: Ladder,
    /// The thresholds in force before the first pending item.
    before: Ladder,
    pending: BTreeMap<CounterId, Vec<Pending>>,
    bytes: usize,
    reading: Reading,
}

/// An item to apply to one counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub at: Place,
    /// The last announcement of a loss before it.
    pub loss: Option<Place>,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    Entry(Entry),
    Correction(Correction),
    /// Thresholds that are in force for the items behind it.
    Ladder(Ladder),
}

/// The position where a fold begins: a place, and what is known of the log before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// Everything before this place is in the counters.
    pub at: Place,
    pub filter: Filter,
    /// The thresholds in force there.
    pub ladder: Ladder,
    /// The mark of the last message before the place; `None` where none was read.
    pub last: Option<Mark>,
}

/// What the fold writes next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flush {
    /// The items for each counter, in the order of the log.
    pub counters: BTreeMap<CounterId, Vec<Pending>>,
    /// The fold's position once all of this is written.
    pub position: Position,
    /// The standing of the partition then.
    pub standing: Standing,
    /// The thresholds in force before the first item.
    pub ladder: Ladder,
}

/// A counter after its items of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After {
    pub counter: Counter,
    /// The thresholds that it reached.
    pub reached: Vec<Reached>,
    /// How many items were left out, as the count would have left the range of 64 bits.
    pub overflows: usize,
}

/// A threshold that was reached, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    pub threshold: i64,
    /// Who or what reached it.
    pub by: Winner,
    /// When its change was written.
    pub at: UnixMillis,
}

impl Position {
    /// Returns the place and the mark of the message before it.
    pub fn read_to(&self) -> Option<ReadTo> {
        self.last.map(|last| ReadTo { at: self.at, last })
    }
}

impl Partition {
    /// Goes on from a stored position.
    pub fn new(position: Position) -> Self {
        let read_to = position.read_to();
        let Position { at, filter, ladder, .. } = position;
        let mut partition = Self { filter, place: at, ladder, before: ladder, ..Self::default() };
        read_to.into_iter().for_each(|read_to| partition.look_for(read_to));
        partition
    }

    /// Requires that this fold finds a message that another one had read before this one began.
    pub fn look_for(&mut self, stated: ReadTo) {
        self.reading.look_for(self.place, stated);
    }

    /// Takes what another fold has stated meanwhile about the messages that it read.
    ///
    /// # Errors
    /// This fold has read another message at that place.
    pub fn heed(&mut self, stated: ReadTo) -> Result<(), Replaced> {
        self.reading.heed(self.place, stated)
    }

    /// Compares the message at `at` with what folds have stated. The caller calls it before it takes the message, and
    /// with the message right before the position.
    ///
    /// # Errors
    /// Another message was read at that place before.
    pub fn recognise(&mut self, at: Place, mark: Mark) -> Result<(), Replaced> {
        self.reading.recognise(at, mark)
    }

    /// Returns whether the log is known to be the one that the counters were written from. The fold writes and states
    /// nothing before.
    pub fn is_sure(&self) -> bool {
        self.reading.is_sure()
    }

    /// Returns how far this fold has read, once it has read anything.
    pub fn read_to(&self) -> Option<ReadTo> {
        self.reading.read_to()
    }

    /// Takes the message at `at`.
    pub fn take(&mut self, at: Place, appended: UnixMillis, message: &Message) -> Taken {
        let Self { filter, pending, ladder, before, bytes, place, .. } = self;
        let (mut raised, in_force) = (None, *ladder);
        let taken = filter.take(at, appended, message, |item, loss| {
            let (counter, what) = match item {
                Item::Entry(entry) => (&entry.key.counter, What::Entry(entry.clone())),
                Item::Correction(correction) => (&correction.counter, What::Correction(correction.clone())),
                Item::Ladder(ladder) => {
                    raised = Some(*ladder);
                    return;
                }
            };
            *bytes += 200;
            let pending = pending.entry(counter.clone()).or_default();
            // This counter had nothing pending when a ladder was raised since the last flush.
            if pending.is_empty() && in_force != *before {
                pending.push(Pending { at, loss: None, what: What::Ladder(in_force) });
            }
            pending.push(Pending { at, loss, what });
        });
        if let Some(raised) = raised {
            for pending in pending.values_mut() {
                pending.push(Pending { at, loss: None, what: What::Ladder(raised) });
            }
            ladder.learn(raised);
        }
        *place = at.next();
        taken
    }

    /// Opens a loss and goes on at `at`, since the place is no longer in the log. Returns the number of the loss.
    pub fn jump(&mut self, at: Place, now: UnixMillis) -> crate::changes::LossNumber {
        (self.place, self.reading) = (at, Reading::default());
        self.filter.jump(at, now)
    }

    /// Returns the place before which everything was taken.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns roughly how much memory the pending items take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns what to write now. The caller writes it before it asks for the next flush.
    pub fn flush(&mut self) -> Flush {
        self.bytes = 0;
        let before = std::mem::replace(&mut self.before, self.ladder);
        Flush {
            counters: std::mem::take(&mut self.pending),
            position: Position {
                at: self.place,
                filter: self.filter.clone(),
                ladder: self.ladder,
                last: self.read_to().map(|read| read.last),
            },
            standing: self.filter.standing(),
            ladder: before,
        }
    }
}

impl Pending {
    /// Returns whether it is a correction. The fold then reads the counter consistently first: a correction that does
    /// not hold writes nothing, so no refused update would show that the fold knows an outdated counter.
    pub fn is_correction(&self) -> bool {
        matches!(self.what, What::Correction(_))
    }
}

impl Flush {
    /// Returns the counter with its items of this flush, or `None` if they change nothing. Items that are in already
    /// are skipped, so the same flush may be applied to the counter that refused an update.
    pub fn apply(&self, counter: Option<&Counter>, pending: &[Pending], now: UnixMillis) -> Option<After> {
        let (mut after, mut ladder) = (counter.cloned().unwrap_or_default(), self.ladder);
        let (mut reached, mut overflows, mut changed) = (Vec::new(), 0, false);
        for Pending { at, loss, what } in pending {
            let change = match what {
                What::Entry(entry) => Change::Entry(entry),
                What::Correction(correction) => Change::Correction(correction),
                What::Ladder(raised) => {
                    ladder.learn(*raised);
                    continue;
                }
            };
            let before = after.likes;
            match after.apply(*at, change, *loss) {
                Ok(super::Applied::Nothing) => {}
                Ok(super::Applied::Changed) => {
                    changed = true;
                    let mut crossed = crossed(&ladder, before, after.likes, change);
                    // A total that goes down and up again reaches a threshold twice; the first time counts.
                    crossed.retain(|again| reached.iter().all(|first: &Reached| first.threshold != again.threshold));
                    reached.append(&mut crossed);
                }
                Err(Overflow) => overflows += 1,
            }
        }
        after.reach(self.position.at);
        after.updated_at = now;
        (changed || overflows > 0).then_some(After { counter: after, reached, overflows })
    }
}

/// Returns the thresholds that a change of the total from `before` to `after` reached.
fn crossed(ladder: &Ladder, before: i64, after: i64, change: Change<'_>) -> Vec<Reached> {
    if ladder.is_empty() || after <= before {
        return Vec::new();
    }
    let thresholds = ladder.crossed(Some(before), after).thresholds;
    let by = |threshold: i64| match change {
        Change::Correction(_) => (Winner::Unwitnessed, UnixMillis(0)),
        Change::Entry(entry) => (Winner::of(entry, threshold - before), UnixMillis(entry.second * 1000)),
    };
    let reached = |threshold| {
        let (by, at) = by(threshold);
        Reached { threshold, by, at }
    };
    thresholds.into_iter().map(reached).collect()
}
