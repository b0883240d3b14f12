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

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::ports::{AuditSegment, Claimed};
use tally_core::recount::RunId;
use tokio::sync::Semaphore;

pub(crate) use plan::Plan;
use seen::Seen;
use view::{View, Views};

use crate::progress::Progress;
use crate::repair::with_heartbeat;
use crate::summary::Findings;
use crate::tools::Tools;

/// Row keys that wait to be compared, at once and in all.
const ROOM: usize = 200_000;

/// Between two looks at segments that others work on.
const OTHERS: Duration = Duration::from_secs(2);

/// One audit, as far as this process has a part in it.
pub(crate) struct Audit {
    tools: Tools,
    run: RunId,
    plan: Plan,
    dry_run: bool,
    findings: Arc<Findings>,
    progress: Arc<Progress>,
    views: Views,
    seen: Seen,
    /// How far the stream was applied before the first row was read.
    began: Arc<View>,
    room: Semaphore,
    repairs: Semaphore,
}

impl Audit {
    /// Takes part in the audit `run`.
    pub(crate) async fn new(
        tools: &Tools,
        run: RunId,
        plan: Plan,
        dry_run: bool,
        findings: Arc<Findings>,
        progress: Arc<Progress>,
    ) -> anyhow::Result<Self> {
        let views = Views::new(tools.clone());
        let began = views.recent().await?;
        let repairs = Semaphore::new(tools.rules.concurrency);
        let tools = tools.clone();
        let (seen, room) = (Seen::default(), Semaphore::new(ROOM));
        Ok(Self { tools, run, plan, dry_run, findings, progress, views, seen, began, room, repairs })
    }

    /// Works until every segment is done, by whomever; the number of row keys that are neither proved nor repaired.
    pub(crate) async fn finish(&self) -> anyhow::Result<u64> {
        for index in self.plan.row_segments().chain(self.plan.counter_segments()) {
            self.progress.expect(index);
        }
        // Counters without rows can only be told once all rows were seen.
        self.pass(self.plan.row_segments()).await?;
        self.pass(self.plan.counter_segments()).await?;
        Ok(self.segments().await?.iter().map(|segment| segment.unsettled).sum())
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
            let worked = stream::iter(left)
                .map(|index| self.segment(index).boxed())
                .buffer_unordered(self.plan.at_once())
                .try_fold(false, |any, worked| std::future::ready(Ok(any | worked)))
                .await?;
            if !worked {
                self.tools.wait(OTHERS).await?;
            }
        }
    }

    /// Works on one segment, unless another process does; whether it did.
    async fn segment(&self, index: u32) -> anyhow::Result<bool> {
        let claim = format!("audit/{}/{index}", self.run);
        if self.tools.claim(&claim).await? != Claimed::Claimed {
            return Ok(false);
        }
        let known = self.segments().await?.into_iter().find(|segment| segment.index == index);
        let state = known.unwrap_or(AuditSegment { index, cursor: None, unsettled: 0, done: false });
        if !state.done {
            let state = with_heartbeat(&self.tools, &claim, Box::pin(self.work(state))).await?;
            self.save(&AuditSegment { cursor: None, done: true, ..state }).await?;
        }
        self.progress.done(index);
        self.tools.settle(&claim, true).await?;
        Ok(true)
    }

    async fn work(&self, state: AuditSegment) -> anyhow::Result<AuditSegment> {
        match self.plan.part(state.index) {
            plan::Part::Rows(segment) => self.rows(segment, state).await,
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
        self.tools.persist("keep how far a segment has come", || recounts.put_segment(self.run, segment)).await?;
        self.tools.spent.wrote(1);
        Ok(())
    }
}
