//! Scans segments of the rows: carries out what [`Scanner`] asks for, and has each batch compared while the next is read.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tally_core::audit::{Batch, MetKeys, Plan, ScanEffect, ScanInput, Scanner};
use tally_core::homes::Homes;
use tally_core::ids::{CounterId, CounterKind, ReservedKey, RowKey, ShardCount};
use tally_core::ports::{AuditSegment, Cursor, ScannedRow, Segment};
use tally_core::time::UnixMillis;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::follow_ups::FollowUps;
use super::proofs::Proofs;
use crate::findings::Findings;
use crate::progress::Progress;
use crate::recounter::Recounter;

/// Row keys that wait to be compared, at once and in all.
const WAITING: usize = 200_000;
/// Batches of one segment that wait to be compared; the row keys that may wait bound them further.
const BATCHES: usize = 256;
/// How often it is written down how far a segment has come.
const SAVE: Duration = Duration::from_secs(5);

/// The scans of one audit's rows.
pub(super) struct RowScans {
    of: Recounter,
    plan: Plan,
    findings: Arc<Findings>,
    progress: Arc<Progress>,
    proofs: Proofs,
    follow_ups: Arc<FollowUps>,
    met: Arc<Mutex<MetKeys>>,
    /// When the last page of rows was read here.
    read_until: AtomicU64,
    waiting: Semaphore,
}

/// The scan of one segment, batch by batch.
struct Scan<'a> {
    of: &'a RowScans,
    segment: Segment,
    scanner: Scanner,
    effects: VecDeque<ScanEffect>,
    /// Held while there is something to read.
    turn: Option<SemaphorePermit<'a>>,
    /// The homes of the set that was looked at last.
    homes: Option<(CounterId, Homes)>,
}

/// A batch, and the permission for its row keys to wait.
struct Waiting<'a>(Batch, SemaphorePermit<'a>);

impl RowScans {
    pub(super) fn new(
        of: &Recounter,
        plan: Plan,
        findings: &Arc<Findings>,
        progress: &Arc<Progress>,
        proofs: Proofs,
        follow_ups: Arc<FollowUps>,
    ) -> Self {
        let (findings, progress) = (Arc::clone(findings), Arc::clone(progress));
        let (met, read_until, waiting) = (Arc::default(), AtomicU64::default(), Semaphore::new(WAITING));
        Self { of: of.clone(), plan, findings, progress, proofs, follow_ups, met, read_until, waiting }
    }

    /// The row keys met here.
    pub(super) fn met(&self) -> Arc<Mutex<MetKeys>> {
        Arc::clone(&self.met)
    }

    /// When the last page of rows was read, where all of them were read here.
    pub(super) fn whole_until(&self) -> Option<UnixMillis> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.is_whole(self.plan.rows).then(|| UnixMillis(self.read_until.load(Ordering::Relaxed)))
    }

    /// Weighs and compares one segment of the likes table; `turn` is given back when its last page is read.
    pub(super) async fn segment<Saved: Future<Output = anyhow::Result<()>>>(
        &self,
        segment: Segment,
        mut state: AuditSegment,
        turn: SemaphorePermit<'_>,
        save: impl Fn(AuditSegment) -> Saved,
    ) -> anyhow::Result<AuditSegment> {
        let is_whole = state.cursor.is_none();
        let at = || self.of.store.calls.clock().reading().at;
        let mut saved = at();
        let scan = Scan::new(self, segment, state.cursor.clone(), turn);
        let mut settled = self.settled(scan);
        while let Some((unsettled, begin)) = settled.try_next().await? {
            state.unsettled += unsettled;
            state.cursor = begin;
            // What is unsettled beyond the cursor would be counted twice by a process that goes on there.
            if at().saturating_sub(saved) >= SAVE && unsettled == 0 {
                save(state.clone()).await?;
                saved = at();
            }
        }
        if is_whole {
            self.met.lock().unwrap_or_else(PoisonError::into_inner).whole_segment();
        }
        Ok(state)
    }

    /// The batches of a scan in order, each once it is settled; those behind are worked on meanwhile.
    fn settled<'a>(&'a self, scan: Scan<'a>) -> BoxStream<'a, anyhow::Result<(u64, Option<Cursor>)>> {
        stream::try_unfold(scan, Scan::next).map_ok(|batch| self.settle(batch)).try_buffered(BATCHES).boxed()
    }

    /// Compares a batch and follows up what that leaves in doubt; how many of its row keys stay unsettled, and where its
    /// page began.
    async fn settle(&self, Waiting(batch, _waiting): Waiting<'_>) -> anyhow::Result<(u64, Option<Cursor>)> {
        let begin = batch.begin.clone();
        let doubts = self.proofs.compare(batch).await?;
        Ok((self.follow_ups.follow_up(doubts).await?, begin))
    }
}

impl<'a> Scan<'a> {
    fn new(of: &'a RowScans, segment: Segment, begin: Option<Cursor>, turn: SemaphorePermit<'a>) -> Self {
        let scanner = Scanner::new(of.of.store.shards, begin);
        let mut scan = Self { of, segment, scanner, effects: VecDeque::new(), turn: Some(turn), homes: None };
        scan.tell(ScanInput::Begin);
        scan
    }

    fn tell(&mut self, input: ScanInput) {
        let mut effects = Vec::new();
        self.scanner.step(self.of.of.stream.now(), input, &mut effects);
        self.effects.extend(effects);
    }

    /// The next batch, and the scan behind it.
    async fn next(mut self) -> anyhow::Result<Option<(Waiting<'a>, Self)>> {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                ScanEffect::ReadHorizon => {
                    let applied = self.of.of.stream.recent().await?;
                    self.tell(ScanInput::Horizon(Arc::clone(&applied.horizon)));
                }
                ScanEffect::ReadPage(begin) => self.page(begin).await?,
                ScanEffect::Misplaced(row) => {
                    if !self.is_at_home(&row).await? {
                        self.of.findings.misplaced(|| format!("{:?} in {:?}", row.sort, row.pk));
                    }
                }
                // Before the audit closes what it found open: a record that was lost has not said it.
                ScanEffect::Doubtful(key) if !self.of.follow_ups.is_dry_run() => self.of.of.store.disown(&key).await?,
                ScanEffect::Doubtful(_) => {}
                ScanEffect::Compare(batch) => {
                    self.of.meet(&batch);
                    let keys = u32::try_from(batch.keys.len().min(WAITING)).unwrap_or(u32::MAX);
                    let waiting = self.of.waiting.acquire_many(keys).await.expect("the semaphore is never closed");
                    return Ok(Some((Waiting(batch, waiting), self)));
                }
                ScanEffect::End => {}
            }
        }
        Ok(None)
    }

    /// Whether `row` is of a member, and stands under a home of its set. The set's map is read where some number of shards puts
    /// the row there.
    async fn is_at_home(&mut self, row: &ScannedRow) -> anyhow::Result<bool> {
        let (Ok(key), Some(_)) = (row.pk.parse::<RowKey>(), row.weight()) else { return Ok(false) };
        let is_member = key.counter.name.kind() == CounterKind::Set && ReservedKey::read(&row.sort).is_none();
        if !is_member || !ShardCount::each().any(|shards| shards.shard_of(&row.sort) == key.shard) {
            return Ok(false);
        }
        let admit = |homes: Homes| homes.admit(&row.sort, key.shard);
        if self.homes.as_ref().is_some_and(|(counter, homes)| *counter == key.counter && admit(*homes)) {
            return Ok(true);
        }
        let maps = self.of.of.store.maps(std::slice::from_ref(&key.counter)).await?;
        let Some(map) = maps.into_iter().flatten().next() else { return Ok(false) };
        self.homes = Some((key.counter, map.homes()));
        Ok(admit(map.homes()))
    }

    async fn page(&mut self, begin: Option<Cursor>) -> anyhow::Result<()> {
        let store = &self.of.of.store;
        let page = store.page("scan rows", || store.ports.rows.scan(self.segment, begin.as_ref())).await?;
        self.of.read_until.fetch_max(self.of.of.stream.now().wall.0, Ordering::Relaxed);
        self.of.findings.scanned(page.items.len() as u64);
        self.of.progress.rows(page.items.len() as u64);
        if page.next.is_none() {
            self.turn = None;
            self.of.progress.read(self.segment.index);
        }
        self.tell(ScanInput::Page(page.items, page.next));
        Ok(())
    }
}

impl RowScans {
    fn meet(&self, batch: &Batch) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        batch.keys.iter().for_each(|weighed| met.add(&weighed.key));
    }
}
