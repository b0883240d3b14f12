//! The twin of the change stream: shards by a hash of the row key, that split, close and are trimmed on command.

use async_trait::async_trait;
use tally_core::ids::{Sequence, StreamLabel, StreamShardId};
use tally_core::lineage::Listed;
use tally_core::ports::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};
use tally_core::tally::{Image, RawRecord};
use tally_core::time::UnixMillis;

use super::{Memory, part_of};

/// How finely row keys are told apart by the shards' ranges.
const SLOTS: u32 = 1 << 16;
/// The number before a stream's first record: as long as the service's.
const FIRST: u128 = 100_000_000_000_000_000_000;
/// How long an iterator can be used.
const ITERATOR_MILLIS: u64 = 15 * 60 * 1000;
/// The one stream there is.
const LABEL: &str = "2026-01-01T00:00:00.000";

/// The twin of the change stream.
#[derive(Clone, Debug)]
pub struct Streams {
    memory: Memory,
}

#[derive(Debug)]
pub(super) struct Log {
    shards: Vec<Shard>,
    last: u128,
}

#[derive(Debug)]
struct Shard {
    id: StreamShardId,
    parent: Option<StreamShardId>,
    /// The slots of row keys it takes, the end left out.
    slots: (u32, u32),
    closed: bool,
    records: Vec<RawRecord>,
    /// How many of them can be read no more.
    trimmed: usize,
}

impl Log {
    pub(super) fn new(shards: u16) -> Self {
        let mut log = Self { shards: Vec::new(), last: FIRST };
        let of = u32::from(shards.max(1));
        for n in 0..of {
            log.open(None, (n * SLOTS / of, (n + 1) * SLOTS / of));
        }
        log
    }

    pub(super) fn append(
        &mut self,
        (pk, sort): &(String, String),
        before: Option<Image>,
        after: Option<Image>,
        now: UnixMillis,
    ) {
        self.last += 1;
        let record = RawRecord {
            sequence: self.last.to_string(),
            written: UnixMillis(now.0 / 1000 * 1000),
            pk: Some(pk.clone()),
            sort: Some(sort.clone()),
            before,
            after,
        };
        let slot = part_of(pk, SLOTS);
        let takes = |shard: &&mut Shard| !shard.closed && (shard.slots.0..shard.slots.1).contains(&slot);
        let shard = self.shards.iter_mut().find(takes).expect("the open shards' ranges cover every slot");
        shard.records.push(record);
    }

    fn open(&mut self, parent: Option<StreamShardId>, slots: (u32, u32)) {
        let id = StreamShardId::from(format!("shardId-{:08}", self.shards.len()).as_str());
        self.shards.push(Shard { id, parent, slots, closed: false, records: Vec::new(), trimmed: 0 });
    }

    fn find(&self, id: &StreamShardId) -> Result<(usize, &Shard), StreamFault> {
        self.shards.iter().enumerate().find(|(_, shard)| shard.id == *id).ok_or(StreamFault::Gone)
    }
}

impl Shard {
    fn listed(&self) -> Listed {
        Listed { id: self.id.clone(), parent: self.parent.clone(), ended: self.closed }
    }

    /// Where the record behind `sequence` stands; trimmed where the position itself is.
    fn behind(&self, sequence: Sequence) -> Result<usize, StreamFault> {
        let is_behind = |record: &RawRecord| record.sequence.parse::<Sequence>().is_ok_and(|at| at > sequence);
        let position = self.records.iter().position(is_behind).unwrap_or(self.records.len());
        if self.trimmed > 0 && position <= self.trimmed { Err(StreamFault::Trimmed) } else { Ok(position) }
    }
}

impl Streams {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// Closes an open shard and continues it in `children` shards, one or two.
    pub fn close(&self, shard: &StreamShardId, children: u32) {
        let mut state = self.memory.state();
        let Some(found) = state.stream.shards.iter_mut().find(|found| found.id == *shard && !found.closed) else {
            return;
        };
        found.closed = true;
        let (parent, (from, to)) = (found.id.clone(), found.slots);
        let middle = if children < 2 { to } else { from.midpoint(to) };
        state.stream.open(Some(parent.clone()), (from, middle));
        if middle < to {
            state.stream.open(Some(parent), (middle, to));
        }
    }

    /// Makes every record written so far unreadable.
    pub fn trim(&self) {
        for shard in &mut self.memory.state().stream.shards {
            shard.trimmed = shard.records.len();
        }
    }
}

#[async_trait]
impl ChangeStream for Streams {
    async fn info(&self) -> Result<StreamInfo, StreamFault> {
        let created = self.memory.began;
        Ok(StreamInfo { label: LABEL.into(), created, table_created: created })
    }

    async fn shards(&self, label: &StreamLabel) -> Result<Vec<Listed>, StreamFault> {
        known(label)?;
        Ok(self.memory.state().stream.shards.iter().map(Shard::listed).collect())
    }

    async fn children(&self, label: &StreamLabel, parent: &StreamShardId) -> Result<Option<Vec<Listed>>, StreamFault> {
        let shards = self.shards(label).await?;
        Ok(Some(shards.into_iter().filter(|shard| shard.parent.as_ref() == Some(parent)).collect()))
    }

    async fn iterator(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        position: Position,
    ) -> Result<Iterator, StreamFault> {
        known(label)?;
        let state = self.memory.state();
        let (index, shard) = state.stream.find(shard)?;
        let position = match position {
            Position::Oldest => shard.trimmed,
            Position::After(sequence) => shard.behind(sequence)?,
        };
        Ok(iterator(index, position, self.memory.now()))
    }

    async fn records(&self, at: &Iterator, limit: u32) -> Result<Records, StreamFault> {
        let now = self.memory.now();
        let parts: Vec<u64> = at.0.split(':').filter_map(|part| part.parse().ok()).collect();
        let [index, position, issued] = parts[..] else { return Err(StreamFault::Expired) };
        if now.0.saturating_sub(issued) > ITERATOR_MILLIS {
            return Err(StreamFault::Expired);
        }
        let state = self.memory.state();
        let (index, position) = (narrow(index), narrow(position));
        let shard = state.stream.shards.get(index).ok_or(StreamFault::Gone)?;
        if position < shard.trimmed {
            return Err(StreamFault::Trimmed);
        }
        let records: Vec<RawRecord> = shard.records.iter().skip(position).take(limit as usize).cloned().collect();
        let next = position + records.len();
        let ended = shard.closed && next >= shard.records.len();
        Ok(Records { records, next: (!ended).then(|| iterator(index, next, now)) })
    }
}

fn known(label: &StreamLabel) -> Result<(), StreamFault> {
    if label.as_str() == LABEL { Ok(()) } else { Err(StreamFault::Gone) }
}

fn iterator(shard: usize, position: usize, issued: UnixMillis) -> Iterator {
    Iterator(format!("{shard}:{position}:{issued}"))
}

fn narrow(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
