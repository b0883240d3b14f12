//! What the stream says of row keys since one moment: with it, rows that were read while they changed are held against a
//! counter that moves.
//!
//! A counter names by its watermarks the records it contains. Take the rows as they were read, put in their place what
//! these records say of the members they touched, and they are the rows where the counter stands:
//!
//! - a member touched by a record in the counter weighs what the last of them says;
//! - a member touched by none was the same all along: its row was read after the moment the trail begins at, and before a
//!   time that the stream's readers had passed when the counter was read, so no later record can have changed it.
//!
//! Nothing has to stand still for that. It needs every record between the moment and the watermarks, so a trail that was
//! not read so far, or that does not know a stream shard the counter was fed by, says nothing.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::Map;
use crate::ids::{MemberKey, Ordinal, RowKey, Sequence, StreamShardId};
use crate::lineage::Lineage;
use crate::ports::Position;
use crate::tally::{RawRecord, RecordKind, read};
use crate::watermark::{Reach, Watermarks};
use crate::weight::Weight;

/// The members of a row key that records touched, and what each weighs after the last of them.
pub type Touched = Map<MemberKey, Weight>;

/// The records of every stream shard that was open at one moment, from what was applied then, as far as they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trail {
    open: BTreeMap<Ordinal, Reading>,
    /// Stream shards all of which was applied.
    closed: BTreeSet<Ordinal>,
    closed_through: Option<Ordinal>,
    changes: Map<RowKey, Vec<Change>>,
    held: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    id: StreamShardId,
    /// Everything up to this record was applied at first, or is read.
    through: Sequence,
    ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    shard: Ordinal,
    sequence: Sequence,
    member: MemberKey,
    /// `None` where it is not readable.
    weight: Option<Weight>,
}

/// What is missing of a trail before it can be held against a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// These stream shards have to be read on.
    Unread(Vec<Ordinal>),
    /// The counter was fed by a stream shard that the trail does not know: only a later trail will do.
    Unknown,
}

/// A record's position is unreadable, so nothing can be ordered behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a record's position is not readable")]
pub struct Broken;

impl Trail {
    /// A trail that begins where the checkpoints stand. A stream shard of which nothing is applied yet is none of it: of
    /// its oldest record no one can say that there was none before.
    pub fn begin(lineage: &Lineage) -> Self {
        let open = lineage.checkpoints().filter(|shard| !shard.closed);
        let reading = |id: &StreamShardId, through| Reading { id: id.clone(), through, ended: false };
        let open = open.filter_map(|shard| Some((shard.ordinal, reading(&shard.id, shard.sequence?))));
        let closed = lineage.checkpoints().filter(|shard| shard.closed);
        Self {
            open: open.collect(),
            closed: closed.map(|shard| shard.ordinal).collect(),
            closed_through: lineage.closed_through(),
            changes: Map::default(),
            held: 0,
        }
    }

    /// How many changes it holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// A stream shard to be read, and where to go on.
    pub fn position(&self, shard: Ordinal) -> Option<(&StreamShardId, Position)> {
        let reading = self.open.get(&shard)?;
        Some((&reading.id, Position::After(reading.through)))
    }

    /// Takes the records that follow in `shard`; those it has are passed over.
    ///
    /// # Errors
    /// A record whose position is unreadable: the trail says nothing of what lies behind.
    pub fn take(&mut self, shard: Ordinal, records: &[RawRecord]) -> Result<(), Broken> {
        let Some(reading) = self.open.get_mut(&shard) else { return Ok(()) };
        for raw in records {
            let record = read(raw).ok_or(Broken)?;
            if record.sequence <= reading.through {
                continue;
            }
            reading.through = record.sequence;
            let (key, member, weight) = match record.kind {
                RecordKind::Row { key, member, after, .. } => (key, member, Some(after)),
                RecordKind::Unreadable { key, member } => (key, member, None),
                RecordKind::Marker { .. } | RecordKind::Reserved | RecordKind::Foreign(_) => continue,
            };
            let change = Change { shard, sequence: record.sequence, member, weight };
            self.changes.entry(key).or_default().push(change);
            self.held += 1;
        }
        Ok(())
    }

    /// All of `shard` was read.
    pub fn end(&mut self, shard: Ordinal) {
        if let Some(reading) = self.open.get_mut(&shard) {
            reading.ended = true;
        }
    }

    /// What has to be read before the trail can be held against a counter with these watermarks.
    ///
    /// # Errors
    /// What is missing.
    pub fn covers(&self, marks: &Watermarks) -> Result<(), Missing> {
        let mut unread = Vec::new();
        let first = self.closed_through.map_or(1, |through| through.0 + 1);
        // A floor stands for watermarks that are gone: nothing says how far they were but that the shards are finished.
        let finished = (first..=marks.floor().map_or(0, |floor| floor.0)).map(Ordinal);
        for shard in finished.chain(marks.marks().keys().copied()) {
            match (self.open.get(&shard), marks.reach(shard)) {
                (None, _) if self.was_closed(shard) => {}
                (None, _) => return Err(Missing::Unknown),
                (Some(reading), reach) if !reading.covers(reach) => unread.push(shard),
                (Some(_), _) => {}
            }
        }
        if unread.is_empty() { Ok(()) } else { Err(Missing::Unread(unread)) }
    }

    /// The members of `key` touched by records that a counter with these watermarks contains, since the trail began;
    /// `None` where that cannot be told.
    pub fn touched(&self, key: &RowKey, marks: &Watermarks) -> Option<Touched> {
        self.covers(marks).ok()?;
        let (mut touched, mut feeder) = (Touched::default(), None);
        for Change { shard, sequence, member, weight } in self.changes.get(key).into_iter().flatten() {
            let is_counted = match marks.reach(*shard) {
                Reach::Untouched => false,
                Reach::Through(mark) => *sequence <= mark,
                Reach::Finished => true,
            };
            if !is_counted {
                continue;
            }
            // Which of two stream shards' records is the later one is not known here.
            if feeder.replace(*shard).is_some_and(|other| other != *shard) {
                return None;
            }
            touched.insert(member.clone(), (*weight)?);
        }
        Some(touched)
    }

    fn was_closed(&self, shard: Ordinal) -> bool {
        self.closed.contains(&shard) || self.closed_through.is_some_and(|through| shard <= through)
    }
}

impl Reading {
    fn covers(&self, reach: Reach) -> bool {
        self.ended
            || match reach {
                Reach::Untouched => true,
                Reach::Through(mark) => mark <= self.through,
                Reach::Finished => false,
            }
    }
}

#[cfg(test)]
mod tests;
