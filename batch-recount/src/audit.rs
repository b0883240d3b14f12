//! The cheap pass over everything: rows are counted where they stand and compared with the counters; whatever this
//! cannot prove right is recounted by windows.
//!
//! Segments are claimed and report how far they have come, so any number of processes share one audit, and a dead one
//! is continued. What one process holds is bounded, whatever the table's size.

mod counters;
mod follow_up;
mod look;
mod plan;
mod rows;
mod seen;
mod view;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::ids::RowKey;
use tally_core::ports::{AuditSegment, Claimed};
use tally_core::recount::AuditRun;
use tally_core::time::UnixMillis;
use tokio::sync::{Semaphore, SemaphorePermit};

pub(crate) use plan::Plan;
use seen::Seen;
use view::{View, Views};

use crate::progress::Progress;
use crate::repair::with_heartbeat;
use crate::share::Share;
use crate::summary::Findings;
use crate::tools::Tools;

/// Row keys that wait to be compared, at once and in all.
const ROOM: usize = 200_000;

/// Row keys left that are remembered one by one.
const LEFT: usize = 10_000;

/// Between two looks at segments that others work on.
const OTHERS: Duration = Duration::from_secs(2);

/// One audit, as far as this process has a part in it.
pub(crate) struct Audit {
    tools: Tools,
    run: AuditRun,
    plan: Plan,
    dry_run: bool,
    share: Share,
    findings: Arc<Findings>,
    progress: Arc<Progress>,
    views: Views,
    seen: Seen,
    /// How far the stream was applied before the first row was read.
    began: Arc<View>,
    /// When the last page of rows was read here.
    read_until: AtomicU64,
    room: Semaphore,
    /// Row keys counted by a query at once, and row keys recounted by windows.
    counts: Semaphore,
    repairs: Semaphore,
    left: Mutex<Vec<RowKey>>,
}

impl Audit {
    /// Takes part in the audit `run`.
    pub(crate) async fn new(plan: Plan, dry_run: bool, share: Share, progress: Arc<Progress>) -> anyhow::Result<Self> {
        let tools = share.tools.clone();
        let views = Views::new(tools.clone());
        let began = views.recent().await?;
        let [counts, repairs] = [(); 2].map(|()| Semaphore::new(tools.rules.concurrency));
        let (run, findings) = (share.run, Arc::clone(&share.findings));
        let (seen, room, left) = (Seen::default(), Semaphore::new(ROOM), Mutex::default());
        let read_until = AtomicU64::default();
        Ok(Self {
            tools,
            run,
            plan,
            dry_run,
            share,
            findings,
            progress,
            views,
            seen,
            began,
            room,
            read_until,
            counts,
            repairs,
            left,
        })
    }

    /// The row keys that this process could not settle.
    pub(crate) fn left(&self) -> Vec<RowKey> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn leave(&self, key: RowKey) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < LEFT {
            left.push(key);
        }
    }

    /// Works until every segment is done, by whomever; the number of row keys that are neither proved nor repaired.
    pub(crate) async fn finish(&self) -> anyhow::Result<u64> {
        for index in self.plan.row_segments().chain(self.plan.counter_segments()) {
            self.progress.expect(index);
        }
        // Counters without rows can only be told once all rows were seen.
        self.pass(self.plan.row_segments()).await?;
        // What was taken away before its place was scanned is gone from the counters by then, too.
        self.views.past(self.scanned_by()).await?;
        self.pass(self.plan.counter_segments()).await?;
        Ok(self.segments().await?.iter().map(|segment| segment.unsettled).sum())
    }

    /// A time by which the rows had been read: what waited for its last page here need not wait again.
    fn scanned_by(&self) -> UnixMillis {
        let here = UnixMillis(self.read_until.load(Ordering::Relaxed));
        if self.seen.is_whole(self.plan.rows) { here } else { self.tools.moment() }
    }

    /// Works on `indices` until all of them are done.
    async fn pass(&self, indices: std::ops::Range<u32>) -> anyhow::Result<()> {
        loop {
            let done: Vec<u32> = self.segments().await?.iter().filter(|s| s.done).map(|s| s.index).collect();
            let mut left: Vec<u32> = indices.clone().filter(|index| !done.contains(index)).collect();
            if left.is_empty() {
                return Ok(());
            }
            // Every process begins elsewhere, so that they seldom meet.
            let turn = usize::try_from(self.tools.chance.token() % left.len() as u64).unwrap_or(0);
            left.rotate_left(turn);
            // Half of them at once, so that others who take part find something to do.
            let scans = Semaphore::new(indices.len().div_ceil(2));
            let worked = stream::iter(left)
                .map(|index| self.segment(index, &scans).boxed())
                .buffer_unordered(indices.len())
                .try_fold(false, |any, worked| std::future::ready(Ok(any | worked)))
                .await?;
            if !worked {
                self.tools.wait(OTHERS).await?;
            }
        }
    }

    /// Works on one segment, unless another process does; whether it did. Its turn in `scans` is given back once
    /// everything is read: what was read is settled beside the next.
    async fn segment(&self, index: u32, scans: &Semaphore) -> anyhow::Result<bool> {
        let scan = scans.acquire().await.expect("nobody closes the semaphore");
        let claim = format!("audit/{}/{index}", self.run);
        if self.tools.claim(&claim).await? != Claimed::Claimed {
            return Ok(false);
        }
        let known = self.segments().await?.into_iter().find(|segment| segment.index == index);
        let state = known.unwrap_or(AuditSegment { index, cursor: None, unsettled: 0, done: false });
        if !state.done {
            let state = with_heartbeat(&self.tools, &claim, Box::pin(self.work(state, scan))).await?;
            // Before it is done: whoever finds everything done sums the shares up.
            self.share.put().await?;
            self.save(&AuditSegment { cursor: None, done: true, ..state }).await?;
        }
        self.progress.done(index);
        self.tools.settle(&claim, true).await?;
        Ok(true)
    }

    async fn work(&self, state: AuditSegment, scan: SemaphorePermit<'_>) -> anyhow::Result<AuditSegment> {
        match self.plan.part(state.index) {
            plan::Part::Rows(segment) => self.rows(segment, state, scan).await,
            plan::Part::Counters(segment) => self.counters(segment, state).await,
        }
    }

    async fn segments(&self) -> anyhow::Result<Vec<AuditSegment>> {
        let recounts = &self.tools.ports.recounts;
        let segments = self.tools.persist("read an audit's segments", || recounts.segments(self.run)).await?;
        self.tools.read_items(segments.len().div_ceil(8));
        Ok(segments)
    }

    async fn save(&self, segment: &AuditSegment) -> anyhow::Result<()> {
        let recounts = &self.tools.ports.recounts;
        let now = self.tools.clock.now();
        self.tools.persist("keep how far a segment has come", || recounts.put_segment(self.run, segment, now)).await?;
        self.tools.spent.wrote(1);
        Ok(())
    }
}
