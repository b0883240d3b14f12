//! From a prefix of one stream shard to counters: one conditional update per counter, repeated until each is answered.

mod concern;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, TryStreamExt};
use tally_core::counter::{Counter, Retry, Update, after_refusal};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, Ordinal, RowKey, Sequence, Shard};
use tally_core::lineage::{Loss, Picture};
use tally_core::ports::{Applied, Counts, Outcome, QueueReason, Recounts};
use tally_core::recount::Report;
use tally_core::served::Served;
use tally_core::tally::{CounterRecords, Prefix, UpdateContext};
use tally_service::{Patience, Stop, Until};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::gaps::Gaps;
use crate::metrics;
use crate::outlet::Outlet;
use crate::seen::Seen;
use crate::shard::StreamShard;
use crate::view::View;

/// Ancestors that an update names. Feeders further away are found by asking again, and so are their watermarks.
const ANCESTORS: usize = 6;

/// Counters with watermarks to be pruned that are remembered, in each of two generations.
const REMEMBERED: usize = 50_000;

/// How long a window's report is worth writing: the run that waits for it begins anew after that.
const REPORT_PATIENCE: Duration = Duration::from_secs(30);

/// What became of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Every update was answered, and all records are in the counters.
    Done,
    /// The stream shard was finished by others: whoever works on it has to stop.
    Finished,
}

/// Writes prefixes for every stream shard of the process.
pub(crate) struct Flush {
    counts: Arc<dyn Counts>,
    recounts: Arc<dyn Recounts>,
    gaps: Gaps,
    view: View,
    patience: Patience,
    permits: Semaphore,
    concurrency: usize,
    seen: Mutex<Seen>,
    outlets: Vec<Outlet>,
}

/// One flush under way.
struct Sending<'a> {
    shard: &'a StreamShard,
    picture: &'a Picture,
    ancestors: Vec<Ordinal>,
    stop: &'a Stop,
    finished: AtomicBool,
}

impl Flush {
    /// At most `concurrency` updates are under way at once, whatever shards they come from; new counts go to `outlets`.
    pub(crate) fn new(
        counts: Arc<dyn Counts>,
        recounts: Arc<dyn Recounts>,
        gaps: Gaps,
        concurrency: usize,
        outlets: Vec<Outlet>,
    ) -> Self {
        let (view, patience) = (gaps.view.clone(), gaps.patience.clone());
        let (permits, seen) = (Semaphore::new(concurrency), Mutex::new(Seen::new(REMEMBERED)));
        Self { counts, recounts, gaps, view, patience, permits, concurrency, seen, outlets }
    }

    /// Brings `prefix` into the counters and returns when every update is answered: counters side by side, each by one
    /// update at a time; then the closing marker's own update, and its report if the window is complete.
    ///
    /// Repeating a prefix is safe: each update's condition is the watermark that it sets.
    ///
    /// # Errors
    /// A store that will not go on; [`Stopped`](tally_service::Stopped) at the last call. Updates under way are not waited
    /// for then: after either the process ends, and whoever reads on repeats them.
    pub(crate) async fn flush(
        &self,
        shard: &StreamShard,
        prefix: &Prefix,
        report: Option<&Report>,
        stop: &Stop,
    ) -> anyhow::Result<Flushed> {
        let picture = self.view.now();
        let ancestors = picture.lineage.closed_ancestors(&shard.id, ANCESTORS);
        let sending = Sending { shard, picture: &picture, ancestors, stop, finished: AtomicBool::new(false) };
        let mut updates = FuturesUnordered::new();
        for (id, records) in &prefix.counters {
            if updates.len() >= self.concurrency {
                updates.try_next().await?;
            }
            updates.push(self.counter(&sending, id, records));
        }
        while updates.try_next().await?.is_some() {}
        if let Some(boundary) = &prefix.boundary {
            let update = self.update(&sending, &boundary.key.counter, |context| Some(boundary.update(context)));
            if let Some(update) = update {
                self.settle(&sending, &boundary.key.counter, update, |_| None).await?;
            }
        }
        if sending.finished.load(Ordering::Relaxed) {
            return Ok(Flushed::Finished);
        }
        if prefix.boundary.is_some() {
            self.report(report, stop).await?;
        }
        Ok(Flushed::Done)
    }

    /// Brings one counter's records into it.
    async fn counter(&self, sending: &Sending<'_>, id: &CounterId, records: &CounterRecords) -> anyhow::Result<()> {
        let Some(update) = self.update(sending, id, |context| records.update(context)) else { return Ok(()) };
        let left = |applied| self.update(sending, id, |context| records.after(applied).update(context));
        self.settle(sending, id, update, left).await
    }

    /// Sends `update`, or what is `left` of it once a part turns out to be in the counter, until it is answered for good.
    async fn settle(
        &self,
        sending: &Sending<'_>,
        id: &CounterId,
        mut update: Update,
        left: impl Fn(Sequence) -> Option<Update>,
    ) -> anyhow::Result<()> {
        let mut tries = 0;
        loop {
            let answer = {
                let _permit = self.permits.acquire().await.expect("nobody closes the semaphore");
                self.counts.apply(id, &update).await
            };
            let counter = match answer {
                Ok(Applied::Taken(counter)) => {
                    metrics::updated();
                    self.taken(sending, id, &update, &counter);
                    let concerns = concern::after_update(&update, &counter);
                    return self.enqueue(id, &concerns, sending.stop).await;
                }
                Ok(Applied::Refused(counter)) => counter,
                Err(Fault::Poison(reason)) => return self.quarantine(sending, id, &update, &reason).await,
                // Unknown outcomes are among these: the same update again finds out what is so.
                Err(fault) => {
                    self.patience.pause("update a counter", fault, &mut tries, Until::LastCall(sending.stop)).await?;
                    continue;
                }
            };
            let retry = after_refusal(&update, counter.as_ref(), &sending.picture.lineage);
            metrics::refused(concern::cause(&update, &retry));
            match retry {
                Retry::After(applied) => match left(applied) {
                    Some(rest) => update = rest,
                    None => return self.known(sending, id, &update, counter.as_ref()).await,
                },
                Retry::Changed(changed) => update = changed,
                Retry::Finished => {
                    sending.finished.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Retry::Unexplained => {
                    let fault = Fault::Transient("an update was refused without a reason".to_owned());
                    self.patience.pause("update a counter", fault, &mut tries, Until::LastCall(sending.stop)).await?;
                }
            }
        }
    }

    /// An update was taken.
    fn taken(&self, sending: &Sending<'_>, id: &CounterId, update: &Update, counter: &Counter) {
        tracing::trace!(counter = %id, shard = %update.shard, version = counter.version, "updated");
        self.seen().put(id, &counter.watermarks, sending.picture.closed_through);
        self.offer(sending, id, counter);
    }

    /// Puts a counter as it stands on its way out of the process.
    fn offer(&self, sending: &Sending<'_>, id: &CounterId, counter: &Counter) {
        let served = Served::new(Some(counter), sending.picture.open_gaps, sending.picture.as_of);
        for outlet in &self.outlets {
            outlet.put([(id.clone(), served)]);
        }
    }

    /// Everything turned out to be in the counter already: by another worker, or by a copy whose reply was lost.
    async fn known(
        &self,
        sending: &Sending<'_>,
        id: &CounterId,
        update: &Update,
        counter: Option<&Counter>,
    ) -> anyhow::Result<()> {
        let Some(counter) = counter else { return Ok(()) };
        self.taken(sending, id, update, counter);
        self.enqueue(id, &concern::standing(update, counter), sending.stop).await
    }

    /// The store will never take this update: no answer calls what it would have changed exact any more, a recount is
    /// to repair it, and the shard goes on.
    async fn quarantine(
        &self,
        sending: &Sending<'_>,
        id: &CounterId,
        update: &Update,
        reason: &str,
    ) -> anyhow::Result<()> {
        tracing::error!(counter = %id, stream_shard = %update.shard, reason, "the store refuses a counter for good");
        metrics::update_quarantined();
        for touch in &update.touched {
            self.disown(&RowKey { counter: id.clone(), shard: touch.shard }, sending.stop).await?;
        }
        let read = || async { unless_poison(self.counts.counter(id).await) };
        if let Some(Some(counter)) =
            self.patience.persist("read a counter", Until::LastCall(sending.stop), read).await?
        {
            self.offer(sending, id, &counter);
        }
        let touched: Vec<_> = update.touched.iter().map(|touch| (touch.shard, QueueReason::Drift)).collect();
        self.enqueue(id, &touched, sending.stop).await
    }

    /// Marks the count of `key` as one that lacks records. Where the store refuses that as well, nothing is exact until
    /// an audit has been there. Safe to repeat.
    async fn disown(&self, key: &RowKey, stop: &Stop) -> anyhow::Result<()> {
        let mark = || async { unless_poison(self.counts.suspect(key, self.patience.clock().now()).await) };
        match self.patience.persist("mark a count that lacks records", Until::LastCall(stop), mark).await? {
            Some(()) => Ok(()),
            None => self.gaps.hold(&Loss::Refused(key.clone()), Until::LastCall(stop)).await,
        }
    }

    /// Queues row keys for a recount. Safe to repeat: a key is queued once.
    async fn enqueue(&self, id: &CounterId, concerns: &[(Shard, QueueReason)], stop: &Stop) -> anyhow::Result<()> {
        for (shard, reason) in concerns {
            let key = RowKey { counter: id.clone(), shard: *shard };
            tracing::warn!(%key, ?reason, "queued for a recount");
            metrics::queued(*reason);
            let enqueue = || self.recounts.enqueue(&key, *reason, self.patience.clock().now());
            self.patience.persist("queue a recount", Until::LastCall(stop), enqueue).await?;
        }
        Ok(())
    }

    /// Writes the report of a window that ended here. Safe to repeat, by any worker.
    async fn report(&self, report: Option<&Report>, stop: &Stop) -> anyhow::Result<()> {
        let Some(report) = report else {
            metrics::window("incomplete");
            return Ok(());
        };
        let began = Instant::now();
        let mut tries = 0;
        loop {
            match self.recounts.put_report(report, self.patience.clock().now()).await {
                Ok(()) => {
                    metrics::window("reported");
                    return Ok(());
                }
                Err(fault) if fault.is_retryable() && began.elapsed() < REPORT_PATIENCE => {
                    self.patience.pause("write a window's report", fault, &mut tries, Until::LastCall(stop)).await?;
                }
                Err(fault @ Fault::Fatal(_)) => {
                    return Err(anyhow::anyhow!(fault).context("cannot write a window's report"));
                }
                Err(fault) => {
                    tracing::warn!(key = %report.key, error = %fault, "a window's report was not written; its run begins anew");
                    metrics::window("failed");
                    return Ok(());
                }
            }
        }
    }

    fn update(
        &self,
        sending: &Sending<'_>,
        id: &CounterId,
        update: impl FnOnce(&UpdateContext<'_>) -> Option<Update>,
    ) -> Option<Update> {
        let seen = self.seen().get(id);
        update(&UpdateContext {
            shard: sending.shard.ordinal,
            now: self.patience.clock().now(),
            ancestors: &sending.ancestors,
            closed_through: sending.picture.closed_through,
            seen: seen.as_ref(),
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `answer` says, `None` where the store will never give one.
fn unless_poison<T>(answer: Outcome<T>) -> Outcome<Option<T>> {
    match answer {
        Err(Fault::Poison(_)) => Ok(None),
        answer => answer.map(Some),
    }
}
