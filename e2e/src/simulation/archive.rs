//! The change stream with every record it ever showed, those among them that were lost since: what verdicts are held
//! against.

use std::collections::{BTreeMap, BTreeSet};

use tally_core::ids::{RowKey, Sequence, StreamLabel, StreamShardId};
use tally_core::ports::{ChangeStream, LedgerEntry, Position, StreamFault};
use tally_core::tally::{Record, RecordKind, read};
use tally_core::window::{Phase, WindowRun};

/// Every record so far, by the lives of the stream: each ends when the stream is switched off.
#[derive(Debug)]
pub(crate) struct Archive(Vec<Life>);

/// One life of the stream.
#[derive(Debug, Default)]
struct Life {
    label: Option<StreamLabel>,
    /// The rows that there were when it began, which it does not show.
    rows: BTreeMap<RowKey, i64>,
    shards: BTreeMap<StreamShardId, Vec<Record>>,
    finished: BTreeSet<StreamShardId>,
}

impl Default for Archive {
    fn default() -> Self {
        Self(vec![Life::default()])
    }
}

impl Archive {
    /// Takes over what has become visible of the running stream since.
    pub(crate) async fn follow(&mut self, stream: &dyn ChangeStream) -> Result<(), StreamFault> {
        let label = stream.info().await?.label;
        self.last().label = Some(label);
        self.last().follow(stream).await
    }

    /// Takes over what is left of a stream that was just switched off.
    pub(crate) async fn finish(&mut self, stream: &dyn ChangeStream) -> Result<(), StreamFault> {
        self.last().follow(stream).await
    }

    /// The stream was just switched on again, where there were these rows.
    pub(crate) fn begin(&mut self, rows: BTreeMap<RowKey, i64>) {
        self.0.push(Life { rows, ..Life::default() });
    }

    fn last(&mut self) -> &mut Life {
        self.0.last_mut().expect("the first life begins with the archive")
    }

    /// The last record of each shard of the running stream.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&StreamShardId, Sequence)> {
        let shards = self.0.last().into_iter().flat_map(|life| &life.shards);
        shards.filter_map(|(id, records)| Some((id, records.last()?.sequence)))
    }

    /// Every record of a shard of the stream that it ever showed.
    pub(crate) fn records(&self, shard: &StreamShardId) -> &[Record] {
        self.0.iter().find_map(|life| life.shards.get(shard)).map_or(&[], Vec::as_slice)
    }

    /// Where the window of `run` on `key` was closed.
    pub(crate) fn closing(&self, key: &RowKey, run: WindowRun) -> Option<(&StreamShardId, Sequence)> {
        let closes = |record: &&Record| match &record.kind {
            RecordKind::Marker { key: at, marker } => at == key && marker.run == run && marker.phase == Phase::High,
            _ => false,
        };
        let mut shards = self.0.iter().flat_map(|life| &life.shards);
        shards.find_map(|(id, records)| Some((id, records.iter().find(closes)?.sequence)))
    }

    /// The rows of `key` at a place of a stream shard: sequences order all shards of one life.
    pub(crate) fn rows_at(&self, key: &RowKey, shard: &StreamShardId, end: Sequence) -> i64 {
        let Some(life) = self.0.iter().find(|life| life.shards.contains_key(shard)) else { return 0 };
        let of_key = |record: &&Record| matches!(&record.kind, RecordKind::Row { key: at, .. } if at == key);
        let before = life.shards.values().flatten().filter(|record| record.sequence < end);
        let began = life.rows.get(key).copied().unwrap_or(0);
        began + before.filter(of_key).map(Record::delta).sum::<i64>()
    }
}

impl Life {
    async fn follow(&mut self, stream: &dyn ChangeStream) -> Result<(), StreamFault> {
        let Some(label) = self.label.clone() else { return Ok(()) };
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
}

/// Every line that was ever seen in the ledger, which deletes verdicts that corrected nothing after a while.
#[derive(Debug, Default)]
pub(crate) struct LedgerLines(Vec<LedgerEntry>);

impl LedgerLines {
    /// Adds those of `lines` that are new.
    pub(crate) fn see(&mut self, lines: Vec<LedgerEntry>) {
        for line in lines {
            if !self.0.contains(&line) {
                self.0.push(line);
            }
        }
    }

    /// All of them, each once.
    pub(crate) fn all(&self) -> &[LedgerEntry] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterId, PostId};
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn a_line_that_the_ledger_has_since_deleted_is_kept_and_one_that_it_still_has_is_kept_once() {
        let line = |run: u128| LedgerEntry {
            counter: CounterId::likes(PostId::new("p").expect("an id")),
            shard: None,
            at: UnixMillis(7),
            run: run.into(),
            by: "recount".to_owned(),
            before: 3,
            after: 3,
            why: "asked for".to_owned(),
        };
        let mut lines = LedgerLines::default();
        lines.see(vec![line(1), line(2)]);
        lines.see(vec![line(2), line(3)]);
        lines.see(vec![]);
        assert_eq!(lines.all(), [line(1), line(2), line(3)]);
    }
}
