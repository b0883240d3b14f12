//! The scan of the rows: counted per row key as they come, compared with the counters once the stream's readers have
//! come past them.
//!
//! The order is what makes agreement a proof: the checkpoints are read, then the rows, then the checkpoints are waited
//! for, then the counter is read, once. A counter within the first reading has not changed since before its rows were
//! read, and nothing written before they were is missing from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tally_core::counter::Counter;
use tally_core::ids::{ReservedKey, RowKey};
use tally_core::ports::{AuditSegment, Cursor, Outcome, ScannedRow, Segment};
use tally_core::recount::{RowKeyCount, RowTally};
use tally_core::time::UnixMillis;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::follow_up::Doubt;
use super::look::Wrong;
use super::view::View;
use super::{Audit, ROOM};

/// Pages of one segment whose keys wait to be compared; the room they share bounds them further.
const BATCHES: usize = 256;
/// How often it is written down how far a segment has come.
const SAVE: std::time::Duration = std::time::Duration::from_secs(5);

/// The row keys that one page completed.
struct Batch<'a> {
    keys: Vec<Counted>,
    /// When the page was read.
    ended: UnixMillis,
    /// Where the page began: everything before it is in earlier batches.
    begin: Option<Cursor>,
    _room: SemaphorePermit<'a>,
}

/// A row key and its rows.
struct Counted {
    count: RowKeyCount,
    /// What the checkpoints said before the first of them was read.
    before: Arc<View>,
    /// The segment was continued here: rows before may be missing.
    partial: bool,
}

/// The scan of one segment, page by page.
struct Scan<'a> {
    audit: &'a Audit,
    /// Held while there is something to read.
    turn: Option<SemaphorePermit<'a>>,
    segment: Segment,
    cursor: Option<Cursor>,
    over: bool,
    tally: RowTally,
    current: Option<Current>,
    /// Whether the next key's first rows may have been passed over.
    partial: bool,
}

/// The row key whose rows are being counted.
struct Current {
    pk: String,
    key: Option<RowKey>,
    before: Arc<View>,
    partial: bool,
}

impl Audit {
    /// Counts and compares one segment of the likes table.
    pub(super) async fn rows(
        &self,
        segment: Segment,
        state: AuditSegment,
        turn: SemaphorePermit<'_>,
    ) -> anyhow::Result<AuditSegment> {
        let is_whole = state.cursor.is_none();
        let scan = Scan {
            audit: self,
            turn: Some(turn),
            segment,
            partial: state.cursor.is_some(),
            cursor: state.cursor.clone(),
            over: false,
            tally: RowTally::default(),
            current: None,
        };
        let (mut state, mut saved) = (state, Instant::now());
        let mut settled = self.settled(scan);
        while let Some((unsettled, begin)) = settled.try_next().await? {
            state.unsettled += unsettled;
            state.cursor = begin;
            // What is unsettled beyond the cursor would be counted twice by whoever goes on.
            if saved.elapsed() >= SAVE && unsettled == 0 {
                self.save(&state).await?;
                saved = Instant::now();
            }
        }
        if is_whole {
            self.seen.whole_segment();
        }
        Ok(state)
    }

    /// The batches of a scan in order, each once it is settled; those behind are worked on meanwhile.
    fn settled<'a>(&'a self, scan: Scan<'a>) -> BoxStream<'a, anyhow::Result<(u64, Option<Cursor>)>> {
        stream::try_unfold(scan, Scan::next).map_ok(|batch| self.settle(batch)).try_buffered(BATCHES).boxed()
    }

    /// Compares a batch; how many of its keys are left unsettled, and where its page began.
    async fn settle(&self, batch: Batch<'_>) -> anyhow::Result<(u64, Option<Cursor>)> {
        self.views.past(batch.ended).await?;
        let keys: Vec<RowKey> = batch.keys.iter().map(|counted| counted.count.key.clone()).collect();
        let doubts = self.with_counters(&keys, |at, counter| doubt(&batch.keys[at], counter)).await?;
        let doubts: Vec<(RowKey, Doubt)> =
            keys.into_iter().zip(doubts).filter_map(|(key, doubt)| Some((key, doubt?))).collect();
        self.findings.proved((batch.keys.len() - doubts.len()) as u64);
        Ok((self.follow_up(doubts).await?, batch.begin))
    }
}

/// What remains in doubt about a row key once its counter is read.
fn doubt(counted: &Counted, counter: Outcome<Option<&Counter>>) -> Option<Doubt> {
    let RowKeyCount { key, rows, weight } = &counted.count;
    match counter {
        Err(fault) => {
            tracing::error!(%key, error = %fault, "a counter cannot be read");
            Some(Doubt::Unreadable)
        }
        Ok(counter) if counted.partial || !counted.before.horizon.covers(counter) => Some(Doubt::Changed(*rows)),
        Ok(counter) => Wrong::with(key, *weight, counter).map(Doubt::Wrong),
    }
}

impl<'a> Scan<'a> {
    /// The next batch, and the scan behind it.
    async fn next(mut self) -> anyhow::Result<Option<(Batch<'a>, Self)>> {
        Ok(self.batch().await?.map(|batch| (batch, self)))
    }

    /// The next batch; pages that complete no key are passed over, so that nobody goes on in the midst of one.
    async fn batch(&mut self) -> anyhow::Result<Option<Batch<'a>>> {
        let mut keys = Vec::new();
        while !self.over {
            let begin = self.cursor.clone();
            let ended = self.page(&mut keys).await?;
            if self.over {
                keys.extend(std::mem::take(&mut self.tally).finish().and_then(|count| self.counted(count)));
            }
            if !keys.is_empty() {
                let permits = u32::try_from(keys.len().min(ROOM)).unwrap_or(u32::MAX);
                let _room = self.audit.room.acquire_many(permits).await.expect("nobody closes the semaphore");
                return Ok(Some(Batch { keys, ended, begin, _room }));
            }
        }
        Ok(None)
    }

    /// Reads a page; the keys completed by it, and when it was read.
    async fn page(&mut self, keys: &mut Vec<Counted>) -> anyhow::Result<UnixMillis> {
        let before = self.audit.views.recent().await?;
        let tools = &self.audit.tools;
        let scan = || tools.ports.rows.scan(self.segment, self.cursor.as_ref());
        let page = tools.page("scan rows", scan).await?;
        let ended = tools.moment();
        self.audit.read_until.fetch_max(ended.0, Ordering::Relaxed);
        self.audit.findings.scanned(page.items.len() as u64);
        self.audit.progress.rows(page.items.len() as u64);
        for row in &page.items {
            self.row(row, &before, keys);
        }
        self.over = page.next.is_none();
        if self.over {
            self.turn = None;
        }
        self.cursor = page.next;
        Ok(ended)
    }

    fn row(&mut self, row: &ScannedRow, before: &Arc<View>, keys: &mut Vec<Counted>) {
        if self.current.as_ref().is_none_or(|current| current.pk != row.pk) {
            let done = std::mem::take(&mut self.tally).finish();
            keys.extend(done.and_then(|count| self.counted(count)));
            let key = row.pk.parse().ok();
            let partial = std::mem::take(&mut self.partial);
            self.current = Some(Current { pk: row.pk.clone(), key, before: Arc::clone(before), partial });
        }
        let shards = self.audit.tools.shards;
        let key = self.current.as_ref().and_then(|current| current.key.as_ref());
        let weight = row.weight();
        let home = match ReservedKey::read(&row.sort) {
            Some(ReservedKey::Cell { partition, .. }) => shards.shard_of_cell(partition),
            _ => shards.shard_of(&row.sort),
        };
        // As the fold has it: a row counts for the key it stands under, wherever it belongs; one of no weight does not.
        if let (Some(key), Some(weight)) = (key, weight) {
            let done = self.tally.push(key, weight);
            debug_assert!(done.is_none(), "the tally is emptied at every new key");
        }
        if weight.is_none() || key.is_none_or(|key| key.shard != home) {
            self.audit.findings.misplaced(|| format!("{:?} in {:?}", row.sort, row.pk));
        }
    }

    fn counted(&mut self, count: RowKeyCount) -> Option<Counted> {
        let current = self.current.as_ref()?;
        self.audit.seen.add(&count.key);
        Some(Counted { count, before: Arc::clone(&current.before), partial: current.partial })
    }
}
