//! The scan of the counters: totals that are not their sums, and counts that no row was met of.

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::counter::Counter;
use tally_core::ids::{PostId, RowKey};
use tally_core::ports::{AuditSegment, Segment};

use super::Audit;
use super::follow_up::Doubt;
use super::look::Wrong;
use super::seen::Met;
use crate::totals::mend;

impl Audit {
    /// Checks one segment of the counts table. It is begun anew by whoever takes it over: what was repaired agrees then.
    pub(super) async fn counters(&self, segment: Segment, state: AuditSegment) -> anyhow::Result<AuditSegment> {
        // A row that was not there when its place was scanned is in the counters by then, if it has been written since.
        self.views.past(self.tools.clock.now()).await?;
        let mut state = AuditSegment { unsettled: 0, ..state };
        let mut cursor = None;
        loop {
            let scan = || self.tools.ports.counts.scan(segment, cursor.as_ref());
            let page = self.tools.page("scan counters", scan).await?;
            let mut changed = page.items;
            changed.retain(|(_, counter)| self.is_meant(counter));
            state.unsettled += stream::iter(changed)
                .map(|(post, counter)| self.counter(post, counter).boxed())
                .buffer_unordered(self.tools.rules.concurrency)
                .try_fold(0, |sum, unsettled| std::future::ready(Ok(sum + unsettled)))
                .await?;
            cursor = page.next;
            if cursor.is_none() {
                return Ok(state);
            }
        }
    }

    fn is_meant(&self, counter: &Counter) -> bool {
        self.plan.since.is_none_or(|since| counter.updated_at >= since)
    }

    /// Checks one post; how many of its row keys are left unsettled, its total counted as one.
    async fn counter(&self, post: PostId, counter: Counter) -> anyhow::Result<u64> {
        self.findings.counters(1);
        let mut unsettled = mend(&self.tools, &post, &counter, self.dry_run, &self.findings).await?;
        for (key, doubt) in self.doubts(&post, &counter) {
            unsettled += match doubt {
                Some(doubt) => self.follow_up(key, doubt).await?,
                None => {
                    self.findings.proved(1);
                    0
                }
            };
        }
        Ok(unsettled)
    }

    /// The row keys of a post that the scan of the rows has not settled, and what is in doubt about each.
    fn doubts(&self, post: &PostId, counter: &Counter) -> Vec<(RowKey, Option<Doubt>)> {
        let key = |shard| RowKey { post: post.clone(), shard };
        if self.plan.since.is_some() {
            return self.tools.shards.all().map(|shard| (key(shard), Some(Doubt::Changed(0)))).collect();
        }
        let unchanged = self.began.horizon.covers(Some(counter));
        let doubt = |key: &RowKey| match self.seen.met(key, self.plan.rows) {
            Met::Yes => None,
            Met::No if unchanged => Some(Wrong::with(key, 0, Some(counter)).map(Doubt::Wrong)),
            Met::No | Met::Unknown => Some(Some(Doubt::Changed(0))),
        };
        counter.shards.keys().map(|shard| key(*shard)).filter_map(|key| Some((key.clone(), doubt(&key)?))).collect()
    }
}
