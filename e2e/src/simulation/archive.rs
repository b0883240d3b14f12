//! The change stream as it was before anybody could lose a piece of it: what verdicts are held against.

use std::collections::{BTreeMap, BTreeSet};

use tally_core::ids::{RowKey, Sequence, StreamShardId};
use tally_core::ports::{ChangeStream, Position, StreamFault};
use tally_core::tally::{Record, RecordKind, read};
use tally_core::window::{Phase, WindowRun};

/// Every record of the stream so far, by shard.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    shards: BTreeMap<StreamShardId, Vec<Record>>,
    finished: BTreeSet<StreamShardId>,
}

impl Archive {
    /// Takes over whatever has become visible since.
    pub(crate) async fn follow(&mut self, stream: &dyn ChangeStream) -> Result<(), StreamFault> {
        let label = stream.info().await?.label;
        for listed in stream.shards(&label).await? {
            if self.finished.contains(&listed.id) {
                continue;
            }
            let kept = self.shards.entry(listed.id.clone()).or_default();
            let position = kept.last().map_or(Position::Oldest, |last| Position::After(last.sequence));
            let mut iterator = match stream.iterator(&label, &listed.id, position).await {
                // What was trimmed is kept here already.
                Err(StreamFault::Trimmed) => stream.iterator(&label, &listed.id, Position::Oldest).await?,
                found => found?,
            };
            loop {
                let page = stream.records(&iterator, 1_000).await?;
                let empty = page.records.is_empty();
                kept.extend(page.records.iter().filter_map(read));
                match page.next {
                    Some(next) if !empty => iterator = next,
                    Some(_) => break,
                    None => {
                        self.finished.insert(listed.id.clone());
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// The last record of each shard that is kept here.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&StreamShardId, Sequence)> {
        self.shards.iter().filter_map(|(id, records)| Some((id, records.last()?.sequence)))
    }

    /// Where the window of `run` on `key` was closed.
    pub(crate) fn closing(&self, key: &RowKey, run: WindowRun) -> Option<(&StreamShardId, Sequence)> {
        let closes = |record: &&Record| match &record.kind {
            RecordKind::Marker { key: at, marker } => at == key && marker.run == run && marker.phase == Phase::High,
            _ => false,
        };
        self.shards.iter().find_map(|(id, records)| Some((id, records.iter().find(closes)?.sequence)))
    }

    /// The rows of `key` at a place of the stream: sequences order all shards.
    pub(crate) fn rows_at(&self, key: &RowKey, end: Sequence) -> i64 {
        let of_key = |record: &&Record| matches!(&record.kind, RecordKind::Row { key: at, .. } if at == key);
        let before = self.shards.values().flatten().filter(|record| record.sequence < end);
        before.filter(of_key).map(Record::delta).sum()
    }
}
