//! The scan of the counters: totals that are not their sums, and counts that no row was met of.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::{AuditSegment, Outcome, Segment};

use super::Audit;
use super::follow_up::Doubt;
use super::look::Wrong;
use super::seen::Met;
use crate::totals::mend;

/// Row keys looked at together, and such batches at once.
const TOGETHER: usize = 1_000;
const BATCHES: usize = 4;

impl Audit {
    /// Checks one segment of the counts table. It is begun anew by whoever takes it over: what was repaired agrees then.
    pub(super) async fn counters(&self, segment: Segment, state: AuditSegment) -> anyhow::Result<AuditSegment> {
        let mut state = AuditSegment { unsettled: 0, ..state };
        let mut cursor = None;
        loop {
            let scan = || self.tools.ports.counts.scan(segment, cursor.as_ref());
            let page = self.tools.page("scan counters", scan).await?;
            state.unsettled += self.compared(page.items).await?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(state);
            }
        }
    }

    /// Checks the counters of one page; how many row keys this leaves unsettled, a total counted as one.
    async fn compared(&self, page: Vec<(CounterId, Outcome<Counter>)>) -> anyhow::Result<u64> {
        let (mut counters, mut doubts, mut unreadable) = (Vec::new(), Vec::new(), 0);
        for (id, counter) in page {
            match counter {
                Ok(counter) if self.is_meant(&counter) => {
                    doubts.extend(self.doubts(&id, &counter));
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
            .buffer_unordered(self.tools.rules.concurrency)
            .try_fold(0, sum)
            .await?;
        let batches: Vec<_> = doubts.chunks(TOGETHER).map(<[_]>::to_vec).collect();
        let keys = stream::iter(batches)
            .map(|doubts| self.follow_up(doubts).boxed())
            .buffer_unordered(BATCHES)
            .try_fold(0, sum)
            .await?;
        Ok(unreadable + totals + keys)
    }

    async fn total(&self, id: CounterId, counter: Counter) -> anyhow::Result<u64> {
        mend(&self.tools, &id, &counter, self.dry_run, &self.findings).await
    }

    fn is_meant(&self, counter: &Counter) -> bool {
        self.plan.since.is_none_or(|since| counter.updated_at >= since)
    }

    /// The row keys of a counter that the scan of the rows has not settled, and what is in doubt about each.
    fn doubts(&self, id: &CounterId, counter: &Counter) -> Vec<(RowKey, Doubt)> {
        let key = |shard| RowKey { counter: id.clone(), shard };
        if self.plan.since.is_some() {
            return self.tools.shards.all().map(|shard| (key(shard), Doubt::Changed(0))).collect();
        }
        let unchanged = self.began.horizon.covers(Some(counter));
        let doubt = |key: &RowKey| match self.seen.met(key, self.plan.rows) {
            Met::Yes => None,
            Met::No if unchanged => {
                let wrong = Wrong::with(key, 0, Some(counter));
                self.findings.proved(u64::from(wrong.is_none()));
                wrong.map(Doubt::Wrong)
            }
            Met::No | Met::Unknown => Some(Doubt::Changed(0)),
        };
        counter.shards.keys().map(|shard| key(*shard)).filter_map(|key| doubt(&key).map(|doubt| (key, doubt))).collect()
    }
}
