//! One process's part in an audit: carries out what [`Audit`] asks for.
//!
//! Segments are claimed and report how far they have come, so any number of processes share one audit, and a dead one
//! is continued. What one process holds is bounded, whatever the table's size.

mod counters;
mod follow_ups;
mod proofs;
mod rows;

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::audit::{Audit, AuditEffect, AuditInput, OpenAtStart, Plan, SegmentOf};
use tally_core::ids::RowKey;
use tally_core::ports::{AuditSegment, Claimed};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::findings::Share;
use crate::gaps;
use crate::progress::Progress;
use crate::recounter::Recounter;
use counters::CounterScans;
use follow_ups::FollowUps;
use proofs::Proofs;
use rows::RowScans;

/// Row keys left that are remembered one by one.
const LEFT: usize = 10_000;

/// This process's part in an audit.
pub(crate) struct AuditPart {
    of: Recounter,
    plan: Plan,
    share: Share,
    progress: Arc<Progress>,
    rows: RowScans,
    counters: CounterScans,
    left: Arc<Left>,
}

impl AuditPart {
    /// Takes part in the audit that `share` is a share of.
    pub(crate) async fn new(
        of: &Recounter,
        plan: Plan,
        dry_run: bool,
        share: Share,
        progress: Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let findings = &share.findings;
        // How far the stream was applied before the first row was read.
        let began = Arc::clone(&of.stream.recent().await?.horizon);
        let left = Arc::<Left>::default();
        let follow_ups = Arc::new(FollowUps::new(of, dry_run, findings, &left, &progress));
        let proofs = Proofs::new(of, findings);
        let rows = RowScans::new(of, plan, findings, &progress, proofs, Arc::clone(&follow_ups));
        let counters = CounterScans::new(of, plan, dry_run, findings, rows.met(), began, follow_ups);
        Ok(Self { of: of.clone(), plan, share, progress, rows, counters, left })
    }

    /// The row keys that this process could not settle, as far as they are remembered.
    pub(crate) fn left(&self) -> Vec<RowKey> {
        self.left.take()
    }

    /// Works until every segment is done, by this process or another, and closes what the audit found open; the number
    /// of row keys that are neither proved nor repaired.
    pub(crate) async fn finish(&self, open: Option<OpenAtStart>) -> anyhow::Result<u64> {
        for index in self.plan.row_segments().chain(self.plan.counter_segments()) {
            self.progress.expect(index);
        }
        let (mut audit, mut effects) = (Audit::new(self.plan, open, self.of.rules.guard), Vec::new());
        audit.step(self.of.stream.now(), AuditInput::Begin, &mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                if let AuditEffect::End(unsettled) = effect {
                    return Ok(unsettled);
                }
                if let Some(input) = self.carry_out(effect).await? {
                    audit.step(self.of.stream.now(), input, &mut effects);
                }
            }
        }
    }

    /// The answer to `effect`, where it has one.
    async fn carry_out(&self, effect: AuditEffect) -> anyhow::Result<Option<AuditInput>> {
        let store = &self.of.store;
        Ok(match effect {
            AuditEffect::ReadSegments => Some(AuditInput::Segments(self.segments().await?)),
            AuditEffect::Work(segments) => {
                let any = self.work(segments).await?;
                Some(AuditInput::Worked { any, whole: self.rows.whole_until() })
            }
            AuditEffect::WakeAt(at) => {
                store.calls.wait_until(at).await?;
                Some(AuditInput::Woke)
            }
            AuditEffect::AwaitApplied(past) => Some(AuditInput::Applied(Some(self.of.stream.passed(past).await?))),
            AuditEffect::ReadGaps => Some(AuditInput::Gaps(gaps::standing(store).await?)),
            AuditEffect::CloseGap(gap) => {
                gaps::close(store, &gap, &self.share.findings).await?;
                None
            }
            AuditEffect::TakeOffQueue(asked) => {
                gaps::take_off_queue(store, asked).await?;
                None
            }
            AuditEffect::End(_) => None,
        })
    }

    /// Works on `segments`; whether on any of them.
    async fn work(&self, mut segments: Vec<u32>) -> anyhow::Result<bool> {
        // Every process begins elsewhere, so that they seldom meet.
        let turn = usize::try_from(self.of.windows.chance.token() % segments.len() as u64).unwrap_or(0);
        segments.rotate_left(turn);
        let of_pass = if segments[0] < self.plan.rows { self.plan.rows } else { self.plan.counters };
        // Half of them at once, so that other processes that take part find something to do.
        let scans = Semaphore::new(of_pass.div_ceil(2) as usize);
        stream::iter(segments)
            .map(|index| self.segment(index, &scans).boxed())
            .buffer_unordered(of_pass as usize)
            .try_fold(false, |any, worked| std::future::ready(Ok(any | worked)))
            .await
    }

    /// Works on one segment, unless another process does; whether it did. Its turn in `scans` is given back once
    /// everything is read: what was read is settled beside the next.
    async fn segment(&self, index: u32, scans: &Semaphore) -> anyhow::Result<bool> {
        let scan = scans.acquire().await.expect("the semaphore is never closed");
        let claim = format!("audit/{}/{index}", self.share.run);
        if self.of.claims.claim(&claim).await? != Claimed::Claimed {
            return Ok(false);
        }
        let known = self.segments().await?.into_iter().find(|segment| segment.index == index);
        let state = known.unwrap_or(AuditSegment { index, cursor: None, unsettled: 0, done: false });
        if !state.done {
            let work = Box::pin(self.scan(state, scan));
            let state = self.of.claims.with_heartbeat(&claim, work).await?;
            // Before it is done: the process that finds every segment done adds the shares up.
            self.share.put().await?;
            self.save(AuditSegment { cursor: None, done: true, ..state }).await?;
        }
        self.progress.done(index);
        self.of.claims.settle(&claim, true).await?;
        Ok(true)
    }

    async fn scan(&self, state: AuditSegment, scan: SemaphorePermit<'_>) -> anyhow::Result<AuditSegment> {
        match self.plan.segment(state.index) {
            SegmentOf::Rows(segment) => self.rows.segment(segment, state, scan, |state| self.save(state)).await,
            SegmentOf::Counters(segment) => {
                let read = || self.progress.read(state.index);
                let unsettled = self.counters.segment(segment, read).await?;
                Ok(AuditSegment { unsettled, ..state })
            }
        }
    }

    async fn segments(&self) -> anyhow::Result<Vec<AuditSegment>> {
        let store = &self.of.store;
        let read = || store.ports.recounts.segments(self.share.run);
        let segments = store.persist("read an audit's segments", read).await?;
        store.read_items(segments.len().div_ceil(8));
        segments.iter().filter(|segment| segment.done).for_each(|segment| self.progress.done(segment.index));
        Ok(segments)
    }

    async fn save(&self, segment: AuditSegment) -> anyhow::Result<()> {
        let store = &self.of.store;
        let now = store.now();
        let put = || store.ports.recounts.put_segment(self.share.run, &segment, now);
        store.persist("keep how far a segment has come", put).await?;
        store.wrote(1);
        Ok(())
    }
}

/// Row keys that could not be settled.
#[derive(Debug, Default)]
struct Left(Mutex<Vec<RowKey>>);

impl Left {
    fn add(&self, key: RowKey) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < LEFT {
            left.push(key);
        }
    }

    fn take(&self) -> Vec<RowKey> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
