//! Scans segments of the counters: totals that are not their sums, and counts that no row was met of.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::audit::{Doubt, Horizon, MetKeys, Plan, in_doubt};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::{Outcome, Segment};

use super::follow_ups::FollowUps;
use crate::findings::Findings;
use crate::recounter::Recounter;

/// Row keys followed up together, and such batches at once.
const TOGETHER: usize = 1_000;
const BATCHES: usize = 4;
/// Totals looked at at once.
const TOTALS: usize = 64;

/// The scans of one audit's counters.
pub(super) struct CounterScans {
    of: Recounter,
    plan: Plan,
    dry_run: bool,
    findings: Arc<Findings>,
    met: Arc<Mutex<MetKeys>>,
    /// How far the stream was applied before the first row was read.
    began: Arc<Horizon>,
    follow_ups: Arc<FollowUps>,
}

impl CounterScans {
    pub(super) fn new(
        of: &Recounter,
        plan: Plan,
        dry_run: bool,
        findings: &Arc<Findings>,
        met: Arc<Mutex<MetKeys>>,
        began: Arc<Horizon>,
        follow_ups: Arc<FollowUps>,
    ) -> Self {
        Self { of: of.clone(), plan, dry_run, findings: Arc::clone(findings), met, began, follow_ups }
    }

    /// Checks one segment of the counts table; how many row keys this leaves unsettled. Begun anew by a process that
    /// takes it over: what was repaired agrees then. Says when everything is `read`.
    pub(super) async fn segment(&self, segment: Segment, read: impl Fn()) -> anyhow::Result<u64> {
        let (store, mut unsettled, mut cursor) = (&self.of.store, 0, None);
        loop {
            let scan = || store.ports.counts.scan(segment, cursor.as_ref());
            let page = store.page("scan counters", scan).await?;
            if page.next.is_none() {
                read();
            }
            unsettled += self.page(page.items).await?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(unsettled);
            }
        }
    }

    /// Checks the counters of one page; how many row keys this leaves unsettled, a total counted as one.
    async fn page(&self, page: Vec<(CounterId, Outcome<Counter>)>) -> anyhow::Result<u64> {
        let (mut counters, mut doubts, mut unreadable) = (Vec::new(), Vec::new(), 0);
        for (id, counter) in page {
            match counter {
                Ok(counter) if self.is_meant(&counter) => {
                    doubts.extend(self.doubts(&id, &counter).await?);
                    counters.push((id, counter));
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
                    unreadable += 1;
                }
            }
        }
        self.findings.counters(counters.len() as u64);
        let sum = |sum, unsettled| std::future::ready(Ok(sum + unsettled));
        let totals = stream::iter(counters)
            .map(|(id, counter)| self.total(id, counter).boxed())
            .buffer_unordered(TOTALS)
            .try_fold(0, sum)
            .await?;
        let batches: Vec<_> = doubts.chunks(TOGETHER).map(<[_]>::to_vec).collect();
        let keys = stream::iter(batches)
            .map(|doubts| self.follow_ups.follow_up(doubts).boxed())
            .buffer_unordered(BATCHES)
            .try_fold(0, sum)
            .await?;
        Ok(unreadable + totals + keys)
    }

    async fn total(&self, id: CounterId, counter: Counter) -> anyhow::Result<u64> {
        self.of.windows.mend_total(&id, Some(counter), self.dry_run, &self.findings).await
    }

    fn is_meant(&self, counter: &Counter) -> bool {
        self.plan.since.is_none_or(|since| counter.updated_at >= since)
    }

    /// The row keys of a counter that the scan of the rows has not settled.
    async fn doubts(&self, id: &CounterId, counter: &Counter) -> anyhow::Result<Vec<(RowKey, Doubt)>> {
        if self.plan.since.is_some() {
            let keys = self.of.store.row_keys(id).await?;
            return Ok(keys.into_iter().map(|key| (key, Doubt::UNKNOWN)).collect());
        }
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let (proved, doubts) = in_doubt(id, counter, &met, self.plan.rows, &self.began);
        self.findings.proved(proved);
        Ok(doubts)
    }
}
