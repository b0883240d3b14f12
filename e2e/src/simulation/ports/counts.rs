//! Counters in a mutant's hands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tally_core::counter::{Counter, Update};
use tally_core::ids::{CounterId, Ordinal, RowKey, Shard};
use tally_core::milestone::Bound;
use tally_core::ports::{Applied, Counts, Cursor, Judged, LedgerEntry, Mended, Outcome, Page, Segment};
use tally_core::time::UnixMillis;
use tally_core::window::{Verdict, WindowRun};
use tally_service::{Host, Stage};
use tokio::time::Instant;

use super::super::mutant::Mutant;
use super::super::world::Tamper;

/// How long two updates of one post may lie apart and still be of one prefix.
const ONE_PREFIX: Duration = Duration::from_millis(500);

/// How long after the reply a record comes.
const LATE: Duration = Duration::from_millis(1_500);

/// The counts table, but for one rule.
pub(crate) struct MutatedCounts {
    pub(crate) inner: Arc<dyn Counts>,
    pub(crate) mutant: Mutant,
    /// Where an update goes on whose answer is not waited for.
    pub(crate) host: Host,
    pub(crate) tamper: Tamper,
    pub(crate) earlier: Mutex<BTreeMap<CounterId, Earlier>>,
}

/// The rows of a post's shards before its latest update.
pub(crate) struct Earlier {
    at: Instant,
    rows: Vec<(Shard, i64)>,
}

impl MutatedCounts {
    /// Sends `update` without waiting for the answer.
    async fn send(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        let known = self.inner.counter(id).await?.unwrap_or_default();
        let (inner, id, update) = (Arc::clone(&self.inner), id.clone(), update.clone());
        self.host.worker(Stage::Output, "unanswered", move |_| async move {
            while inner.apply(&id, &update).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        });
        Ok(Applied::Taken(known))
    }

    /// Puts the rows from before the prefix into the token that `update` has just left in `counter`.
    async fn backdate(&self, id: &CounterId, update: &Update) {
        let earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        let Some(earlier) = earlier.filter(|earlier| earlier.at.elapsed() < ONE_PREFIX) else { return };
        for touch in &update.touched {
            let rows = earlier.rows.iter().find(|(shard, _)| *shard == touch.shard);
            if let (Some(run), Some((shard, rows))) = (touch.window, rows) {
                self.tamper.set_token_rows(id, *shard, run, *rows).await;
            }
        }
    }

    /// Applies `update` with a rule about milestones broken.
    async fn record(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        let mut broken = update.clone();
        let Some(guard) = &mut broken.guard else { return self.inner.apply(id, update).await };
        let mut late = Vec::new();
        match (self.mutant, &mut guard.bound) {
            (Mutant::Blind, bound @ Bound::Below(_)) => *bound = Bound::Free,
            (Mutant::NoVersion, Bound::Crossing { version, .. }) => {
                *version = self.inner.counter(id).await?.map_or(0, |counter| counter.version);
            }
            (Mutant::LateRecord, Bound::Crossing { reached, .. }) => late = std::mem::take(reached),
            _ => {}
        }
        let mut applied = self.inner.apply(id, &broken).await?;
        match &mut applied {
            Applied::Taken(counter) | Applied::Refused(Some(counter)) if self.mutant == Mutant::Overwrite => {
                counter.recorded = None;
            }
            Applied::Taken(_) if !late.is_empty() => {
                let (tamper, id) = (self.tamper.clone(), id.clone());
                self.host.worker(Stage::Output, "late", move |_| async move {
                    tokio::time::sleep(LATE).await;
                    for milestone in late {
                        tamper.record(&id, &milestone).await;
                    }
                    Ok(())
                });
            }
            _ => {}
        }
        Ok(applied)
    }

    fn remember(&self, id: &CounterId, update: &Update, counter: &Counter) {
        let rows = update.touched.iter().map(|touch| {
            let after = counter.shards.get(&touch.shard).map_or(0, |tally| tally.rows);
            (touch.shard, after - touch.delta)
        });
        let earlier = Earlier { at: Instant::now(), rows: rows.collect() };
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), earlier);
    }
}

fn window_of(update: &Update) -> Option<WindowRun> {
    update.touched.iter().find_map(|touch| touch.window)
}

#[async_trait]
impl Counts for MutatedCounts {
    async fn apply(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        match self.mutant {
            Mutant::Pipelined => self.send(id, update).await,
            Mutant::NoFloor => {
                let mut floorless = update.clone();
                if let Some(prune) = &mut floorless.prune {
                    prune.floor = Ordinal(0);
                }
                self.inner.apply(id, &floorless).await
            }
            Mutant::NoBoundary => {
                let applied = self.inner.apply(id, update).await?;
                match (&applied, window_of(update)) {
                    (Applied::Taken(_), Some(_)) => self.backdate(id, update).await,
                    (Applied::Taken(counter), None) => self.remember(id, update, counter),
                    (Applied::Refused(_) | Applied::Standing(_), _) => {}
                }
                Ok(applied)
            }
            Mutant::Blind | Mutant::LateRecord | Mutant::NoVersion | Mutant::Overwrite => self.record(id, update).await,
            _ => self.inner.apply(id, update).await,
        }
    }

    async fn counter(&self, id: &CounterId) -> Outcome<Option<Counter>> {
        self.inner.counter(id).await
    }

    async fn counters(&self, ids: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        self.inner.counters(ids).await
    }

    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        if self.mutant == Mutant::SilentZero && verdict.correction == 0 {
            return Ok(Judged::Stands);
        }
        self.inner.judge(verdict, entry).await
    }

    async fn mend_total(&self, id: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        self.inner.mend_total(id, version, sum, entry).await
    }

    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()> {
        self.inner.suspect(key, now).await
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        self.inner.scan(segment, after).await
    }
}
