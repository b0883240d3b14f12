//! What of one Kafka partition waits to be written: events in order, collapsed to the last of each member and the sum of each
//! cell, and the rejected records whose dead letters have to be acknowledged first.

mod change;
mod contents;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

pub use change::Change;

use crate::event::{Deed, Event};
use crate::fence::Offset;
use crate::ids::{CounterId, CounterName, PostId, Region, ShardCount, UserId};
use crate::time::UnixMillis;

/// When a batch is written. A transaction holds 100 items, one of them the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchLimits {
    /// Different rows, at most [`BatchLimits::MAX_ROWS`].
    pub rows: usize,
    /// Bytes of records.
    pub bytes: usize,
    /// Time since the first record was taken.
    pub age: Duration,
}

impl BatchLimits {
    /// The items of one transaction, less the fence.
    pub const MAX_ROWS: usize = 99;
}

/// Why a batch is written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// It has as many rows as it may have.
    Rows,
    /// It has as many bytes as it may have.
    Bytes,
    /// Its first record has waited long enough.
    Age,
    /// A record behind it needs a definition that is not in force.
    Definitions,
    /// The partition is about to have more lanes or fewer.
    Lanes,
    /// It is empty, and its lane's fence is far behind what was read.
    Follow,
    /// The partition is left.
    Shutdown,
}

impl Trigger {
    /// The trigger, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Bytes => "bytes",
            Self::Age => "age",
            Self::Definitions => "definitions",
            Self::Lanes => "lanes",
            Self::Follow => "follow",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What became of a record offered to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a record that was not taken has to be offered again"]
pub enum Taken {
    /// It is in the batch.
    Taken,
    /// It lies before the fence, or was taken already.
    Stale,
    /// There is no room for its row: the batch has to be written first. A batch that is asked whether it is due before each
    /// record never says this.
    Full,
}

/// Where each row of a batch is, by its hash. It follows from the rows, so it takes no part in comparing batches.
#[derive(Clone, Debug, Default)]
struct RowIndex(HashTable<u32>);

impl PartialEq for RowIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RowIndex {}

impl Hash for RowIndex {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Records of one partition, from an offset on, that are not written yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    limits: BatchLimits,
    taken: SealedBatch,
    index: RowIndex,
    /// Offsets whose dead letter is not acknowledged.
    unacknowledged: BTreeSet<Offset>,
    bytes: usize,
    opened: Option<Duration>,
    /// A record was turned away, and so is every one behind it: offsets may have holes, so a later record that was taken
    /// would let the fence pass this one.
    full: bool,
}

impl Batch {
    /// An empty batch that starts at `from`.
    pub fn new(limits: BatchLimits, from: Offset) -> Self {
        let limits = BatchLimits { rows: limits.rows.clamp(1, BatchLimits::MAX_ROWS), ..limits };
        Self {
            limits,
            taken: SealedBatch::starting(from, limits.rows),
            index: RowIndex::default(),
            unacknowledged: BTreeSet::new(),
            bytes: 0,
            opened: None,
            full: false,
        }
    }

    /// Takes the event of the record at `offset`, which weighs `bytes`; `now` is a monotonic reading.
    pub fn accept(&mut self, offset: Offset, event: &Event<'_>, bytes: usize, now: Duration) -> Taken {
        if offset < self.taken.to {
            return Taken::Stale;
        }
        let Some(row) = self.row_of(event).filter(|_| !self.full) else {
            self.full = true;
            return Taken::Full;
        };
        let deed = match event.deed {
            Deed::Member { present, .. } => RowDeed::Member(present),
            Deed::Amount(n) => RowDeed::Amount(n),
        };
        let region = event.region();
        self.taken.events.push(RowEvent { offset, row, deed, at: event.at, region });
        self.count(offset, bytes, now);
        Taken::Taken
    }

    /// Takes a record that is no event. The batch cannot be sealed before
    /// [`dead_letter_acknowledged`](Self::dead_letter_acknowledged) is called for it.
    pub fn reject(&mut self, offset: Offset, bytes: usize, now: Duration) -> Taken {
        if offset < self.taken.to {
            return Taken::Stale;
        }
        if self.full {
            return Taken::Full;
        }
        self.unacknowledged.insert(offset);
        self.count(offset, bytes, now);
        Taken::Taken
    }

    /// The dead letter of the record at `offset` is stored.
    pub fn dead_letter_acknowledged(&mut self, offset: Offset) {
        self.unacknowledged.remove(&offset);
    }

    /// Offsets whose dead letter is still to be acknowledged, in order.
    pub fn unacknowledged(&self) -> impl Iterator<Item = Offset> {
        self.unacknowledged.iter().copied()
    }

    /// Whether it should be written, and why.
    pub fn due(&self, now: Duration) -> Option<Trigger> {
        if self.taken.rows.len() >= self.limits.rows {
            Some(Trigger::Rows)
        } else if self.bytes >= self.limits.bytes {
            Some(Trigger::Bytes)
        } else {
            self.due_at().filter(|due| now >= *due).map(|_| Trigger::Age)
        }
    }

    /// When it is due by age.
    pub fn due_at(&self) -> Option<Duration> {
        self.opened.map(|opened| opened.saturating_add(self.limits.age))
    }

    /// Whether it takes another record, whatever that is.
    pub fn has_room(&self) -> bool {
        self.taken.rows.len() < self.limits.rows && self.bytes < self.limits.bytes && !self.full
    }

    /// Whether no record was taken, so that not even the fence has to move.
    pub fn is_empty(&self) -> bool {
        self.opened.is_none()
    }

    /// The offset after the last record taken.
    pub fn to(&self) -> Offset {
        self.taken.to
    }

    /// Takes out what waits, and leaves an empty batch that starts where this one ends. `None` while a dead letter is not
    /// acknowledged: the fence must not pass a record that is neither applied nor stored as a dead letter.
    pub fn seal(&mut self) -> Option<SealedBatch> {
        self.seal_to(self.taken.to)
    }

    /// The same, where everything up to `to` that is not in it belongs to others: it ends there.
    pub fn seal_to(&mut self, to: Offset) -> Option<SealedBatch> {
        if !self.unacknowledged.is_empty() {
            return None;
        }
        self.taken.to = self.taken.to.max(to);
        let next = SealedBatch::starting(self.taken.to, self.limits.rows);
        self.index.0.clear();
        self.bytes = 0;
        self.opened = None;
        self.full = false;
        Some(std::mem::replace(&mut self.taken, next))
    }

    fn count(&mut self, offset: Offset, bytes: usize, now: Duration) {
        self.taken.to = offset.next();
        self.bytes += bytes;
        self.opened.get_or_insert(now);
    }

    /// The row of an event, added if there is room.
    fn row_of(&mut self, event: &Event<'_>) -> Option<u32> {
        let (name, subject, member) = (&event.counter, event.subject(), event.member());
        let hash = hash_of(name, subject, member);
        let rows = &mut self.taken.rows;
        let same = |row: &u32| {
            let Row { counter, user } = &rows[*row as usize];
            counter.post.as_str() == subject && user.as_deref() == member && counter.name == *name
        };
        if let Some(row) = self.index.0.find(hash, same) {
            return Some(*row);
        }
        if rows.len() >= self.limits.rows {
            return None;
        }
        let row = u32::try_from(rows.len()).expect("a batch has at most 99 rows");
        let counter = CounterId { post: PostId::checked(subject), name: name.clone() };
        rows.push(Row { counter, user: member.map(UserId::checked) });
        self.index.0.insert_unique(hash, row, |row| {
            let Row { counter, user } = &rows[*row as usize];
            hash_of(&counter.name, &counter.post, user.as_deref())
        });
        Some(row)
    }
}

fn hash_of(name: &CounterName, subject: &str, member: Option<&str>) -> u64 {
    let mut state = FixedState::default().build_hasher();
    name.hash(&mut state);
    subject.hash(&mut state);
    // No mark of whether there is one: a cell and a member whose rows meet here are told apart when they are compared.
    if let Some(member) = member {
        member.hash(&mut state);
    }
    state.finish()
}

/// One row of a batch: a member's, or the partition's cell of a sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    counter: CounterId,
    /// `None` of a cell.
    user: Option<UserId>,
}

/// One event, and which row of its batch it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RowEvent {
    offset: Offset,
    row: u32,
    deed: RowDeed,
    at: UnixMillis,
    region: Option<Region>,
}

/// What an event does to its row: its [`Deed`] without the member's id, which the row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RowDeed {
    /// The member's row is to be there, or gone.
    Member(bool),
    /// The cell gains so much.
    Amount(i64),
}

/// All of a partition from one offset to another, ready to be written in one transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SealedBatch {
    from: Offset,
    to: Offset,
    rows: Vec<Row>,
    events: Vec<RowEvent>,
}

impl SealedBatch {
    fn starting(from: Offset, rows: usize) -> Self {
        Self { from, to: from, rows: Vec::with_capacity(rows), events: Vec::with_capacity(rows) }
    }

    /// The first offset.
    pub fn from(&self) -> Offset {
        self.from
    }

    /// The offset after the last one.
    pub fn to(&self) -> Offset {
        self.to
    }

    /// How many events there are before they are collapsed.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// How many rows they are about. A half counts the rows of the whole.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row changes. The fence may still move past rejected records.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The last event of each member and the sum of each cell, in the order in which the rows first appeared.
    pub fn changes(&self) -> Vec<Change<'_>> {
        self.changes_behind(&[], |_| self.from)
    }

    /// The same, where `homes` says of each row under which home it is, if any other than the deployment's is used, and `first`
    /// of a cell from which offset on events are to be added to it.
    pub fn changes_behind(
        &self,
        homes: &[Option<ShardCount>],
        first: impl Fn(&CounterId) -> Offset,
    ) -> Vec<Change<'_>> {
        let mut made: Vec<Option<Change<'_>>> = vec![None; self.rows.len()];
        let mut from: Vec<Option<Offset>> = Vec::new();
        for event in &self.events {
            let (index, Row { counter, user }) = (event.row as usize, &self.rows[event.row as usize]);
            match (event.deed, user) {
                (RowDeed::Member(present), Some(user)) => {
                    let home = homes.get(index).copied().flatten();
                    let (at, region) = (event.at, event.region.as_ref());
                    made[index] = Some(Change::Member { counter, user, present, at, home, region });
                }
                (RowDeed::Amount(n), _) => {
                    if from.is_empty() {
                        from.resize(self.rows.len(), None);
                    }
                    let from = *from[index].get_or_insert_with(|| first(counter).max(self.from));
                    if event.offset < from {
                        continue;
                    }
                    let before = if let Some(Change::Cell { add, .. }) = made[index] { add } else { 0 };
                    // A batch's events are far fewer than would leave 64 bits.
                    made[index] = Some(Change::Cell { counter, add: before.saturating_add(n), from });
                }
                (RowDeed::Member(_), None) => unreachable!("a member's event has a member's row"),
            }
        }
        made.into_iter().flatten().collect()
    }

    /// Two batches that follow each other and together are this one, each to be collapsed by itself; `None` where there
    /// is at most one event. Halving until one is left finds the event that the table does not take.
    pub fn halves(&self) -> Option<(Self, Self)> {
        let middle = self.events.get(self.events.len() / 2).filter(|_| self.events.len() > 1)?.offset;
        let (before, after) = self.events.iter().cloned().partition(|event| event.offset < middle);
        let first = Self { from: self.from, to: middle, rows: self.rows.clone(), events: before };
        let second = Self { from: middle, to: self.to, rows: self.rows.clone(), events: after };
        Some((first, second))
    }

    /// The offset of the only event; `None` unless there is exactly one.
    pub fn single(&self) -> Option<Offset> {
        if let [event] = &self.events[..] { Some(event.offset) } else { None }
    }

    /// The same offsets without events, once each event has a dead letter: only the fence moves.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self { from: self.from, to: self.to, rows: Vec::new(), events: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Action, LikeEvent};

    const LIMITS: BatchLimits = BatchLimits { rows: 3, bytes: 1000, age: Duration::from_millis(20) };
    const NOW: Duration = Duration::from_secs(5);

    fn offer(batch: &mut Batch, offset: u64, user: &str, action: Action) -> Taken {
        let (post, user) = (PostId::new("p").unwrap(), UserId::new(user).unwrap());
        let event = LikeEvent::new(&post, &user, action, UnixMillis(offset)).into();
        batch.accept(Offset(offset), &event, 100, NOW)
    }

    #[test]
    fn a_rejected_record_never_lets_the_fence_pass_it() {
        let mut batch = Batch::new(LIMITS, Offset(0));
        assert_eq!(offer(&mut batch, 0, "a", Action::Like), Taken::Taken);
        assert_eq!(batch.reject(Offset(1), 10, NOW), Taken::Taken);
        assert_eq!(offer(&mut batch, 2, "b", Action::Like), Taken::Taken);
        assert_eq!(batch.seal(), None);
        batch.dead_letter_acknowledged(Offset(1));
        let sealed = batch.seal().unwrap();
        assert_eq!((sealed.from(), sealed.to(), sealed.changes().len()), (Offset(0), Offset(3), 2));
    }

    #[test]
    fn a_batch_of_nothing_but_rejections_still_moves_the_fence() {
        let mut batch = Batch::new(LIMITS, Offset(4));
        assert_eq!(batch.reject(Offset(4), 10, NOW), Taken::Taken);
        batch.dead_letter_acknowledged(Offset(4));
        assert!(!batch.is_empty());
        let sealed = batch.seal().unwrap();
        assert_eq!((sealed.to(), sealed.is_empty()), (Offset(5), true));
        assert!(batch.is_empty());
    }

    #[test]
    fn a_full_batch_takes_another_event_of_a_row_it_has_and_nothing_behind_one_it_turned_away() {
        let mut batch = Batch::new(LIMITS, Offset(0));
        for (offset, user) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(offer(&mut batch, offset as u64, user, Action::Like), Taken::Taken);
        }
        assert_eq!(batch.due(NOW), Some(Trigger::Rows));
        assert_eq!(offer(&mut batch, 3, "a", Action::Unlike), Taken::Taken);
        assert_eq!(offer(&mut batch, 4, "d", Action::Like), Taken::Full);
        assert_eq!(offer(&mut batch, 5, "a", Action::Like), Taken::Full);
        assert_eq!(batch.reject(Offset(6), 1, NOW), Taken::Full);
        let sealed = batch.seal().unwrap();
        assert!(matches!((sealed.to(), sealed.changes()[0]), (Offset(4), Change::Member { present: false, .. })));
        assert_eq!(offer(&mut batch, 4, "d", Action::Like), Taken::Taken);
    }

    #[test]
    fn a_record_before_the_fence_is_stale() {
        let mut batch = Batch::new(LIMITS, Offset(10));
        assert_eq!(offer(&mut batch, 9, "a", Action::Like), Taken::Stale);
        assert_eq!(batch.reject(Offset(9), 1, NOW), Taken::Stale);
        assert_eq!(offer(&mut batch, 12, "a", Action::Like), Taken::Taken, "offsets may have holes");
        assert_eq!(offer(&mut batch, 12, "a", Action::Like), Taken::Stale);
        assert_eq!(batch.to(), Offset(13));
    }

    #[test]
    fn a_batch_is_due_by_bytes_and_by_age() {
        let mut batch = Batch::new(LIMITS, Offset(0));
        assert_eq!(batch.due(NOW * 2), None, "an empty batch never is");
        assert_eq!(offer(&mut batch, 0, "a", Action::Like), Taken::Taken);
        assert_eq!(batch.due(NOW), None);
        assert_eq!(batch.due(NOW + LIMITS.age), Some(Trigger::Age));
        for offset in 1..10 {
            assert_eq!(offer(&mut batch, offset, "a", Action::Like), Taken::Taken);
        }
        assert_eq!(batch.due(NOW), Some(Trigger::Bytes));
    }

    #[test]
    fn no_limit_makes_a_batch_larger_than_a_transaction() {
        let mut batch = Batch::new(BatchLimits { rows: 5000, ..LIMITS }, Offset(0));
        let taken = (0..200).filter(|n| offer(&mut batch, *n, &n.to_string(), Action::Like) == Taken::Taken).count();
        assert_eq!(taken, BatchLimits::MAX_ROWS);
    }

    #[test]
    fn halving_ends_at_the_one_event_that_is_refused() {
        let mut batch = Batch::new(BatchLimits { rows: 99, ..LIMITS }, Offset(0));
        for offset in 0..10 {
            assert_eq!(offer(&mut batch, offset, &(offset % 3).to_string(), Action::Like), Taken::Taken);
        }
        let mut part = batch.seal().unwrap();
        while let Some((first, second)) = part.halves() {
            assert_eq!((first.from(), first.to(), second.to()), (part.from(), second.from(), part.to()));
            part = if first.events.iter().any(|event| event.offset == Offset(6)) { first } else { second };
        }
        assert_eq!(part.single(), Some(Offset(6)));
    }
}
