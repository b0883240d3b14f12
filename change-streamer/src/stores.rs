//! Carries out what the appliers of one process ask of the stores, so many counter updates at once, and passes new counts
//! on to the publishers.

use std::sync::Arc;

use tally_core::apply::{Again, Answer, Input, Request, RequestId};
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::{Applied, Checkpoints, Counts, Outcome, Recounts};
use tally_core::served::Served;
use tally_service::{Clock, Patience, Stop, Until};
use tokio::sync::Semaphore;

use crate::latest::LatestCounts;
use crate::metrics;
use crate::reports::Reports;
use crate::shard::StreamShard;

/// The stores of one process.
pub(crate) struct Stores {
    counts: Arc<dyn Counts>,
    recounts: Arc<dyn Recounts>,
    checkpoints: Arc<dyn Checkpoints>,
    reports: Reports,
    patience: Patience,
    /// One for each counter update that may be under way, whatever stream shard it comes from.
    permits: Semaphore,
    /// One queue for the cache and one for the feed, if there are.
    publishing: Vec<LatestCounts>,
}

impl Stores {
    pub(crate) fn new(
        counts: Arc<dyn Counts>,
        recounts: Arc<dyn Recounts>,
        checkpoints: Arc<dyn Checkpoints>,
        reports: Reports,
        patience: Patience,
        concurrency: usize,
        publishing: Vec<LatestCounts>,
    ) -> Self {
        Self { counts, recounts, checkpoints, reports, patience, permits: Semaphore::new(concurrency), publishing }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.patience.clock()
    }

    /// Puts a new count in every queue.
    pub(crate) fn publish(&self, counter: &CounterId, served: Served) {
        for queue in &self.publishing {
            queue.put([(counter.clone(), served)]);
        }
    }

    /// Carries out `request`, and names it in the answer.
    ///
    /// # Errors
    /// A store that will not go on; [`Stopped`](tally_service::Stopped) at the last call.
    pub(crate) async fn ask(
        &self,
        shard: &StreamShard,
        id: RequestId,
        request: Request,
        stop: &Stop,
    ) -> anyhow::Result<Input> {
        Ok(Input::Answered(id, self.answer(shard, request, stop).await?))
    }

    async fn answer(
        &self,
        StreamShard { label, id, .. }: &StreamShard,
        request: Request,
        stop: &Stop,
    ) -> anyhow::Result<Answer> {
        let Self { counts, recounts, checkpoints, patience, .. } = self;
        let (until, clock) = (Until::LastCall(stop), patience.clock());
        match request {
            Request::Update { counter, update, again } => {
                self.pause("update a counter", again, until).await?;
                let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
                let outcome = counts.apply(&counter, &update).await;
                if let Ok(Applied::Taken(counter)) = &outcome {
                    metrics::updated();
                    tracing::trace!(stream_shard = %update.shard, version = counter.version, "updated");
                }
                return Ok(Answer::Updated(outcome));
            }
            Request::PutReport { report, again } => {
                self.pause("write a window's report", again, until).await?;
                return Ok(Answer::Reported(recounts.put_report(&report, clock.now()).await));
            }
            Request::ReadCounter(counter) => {
                let read = || async { unless_poison(counts.counter(&counter).await) };
                return Ok(Answer::Read(patience.persist("read a counter", until, read).await?.flatten()));
            }
            Request::ReadLadder => {
                let read = || checkpoints.ladder();
                return Ok(Answer::Ladder(patience.persist("read the ladder", until, read).await?));
            }
            Request::MarkSuspect(key) => {
                let mark = || async { unless_poison(counts.suspect(&key, clock.now()).await) };
                let marked = patience.persist("mark a count that lacks records", until, mark).await?;
                return Ok(Answer::Marked(marked.is_some()));
            }
            Request::OpenGap(loss) => self.reports.lost(loss, until).await?,
            Request::Queue(key, reason) => {
                tracing::warn!(%key, ?reason, "queued for a recount");
                metrics::queued(reason);
                let queue = || recounts.enqueue(&key, reason, clock.now());
                patience.persist("queue a recount", until, queue).await?;
            }
            Request::MoveCheckpoint { to, at } => {
                let advance = || checkpoints.advance(label, id, to, at);
                patience.persist("move a checkpoint", until, advance).await?;
            }
            Request::RefreshCheckpoint(at) => {
                let refresh = || checkpoints.refresh(label, id, at);
                patience.persist("refresh a checkpoint", until, refresh).await?;
            }
        }
        Ok(Answer::Done)
    }

    /// The wait before a request that is sent again.
    async fn pause(&self, what: &str, again: Option<Again>, until: Until<'_>) -> anyhow::Result<()> {
        let Some(Again { fault, mut tries }) = again else { return Ok(()) };
        self.patience.pause(what, fault, &mut tries, until).await
    }
}

/// What `answer` says, `None` where the store will never give one.
fn unless_poison<T>(answer: Outcome<T>) -> Outcome<Option<T>> {
    match answer {
        Err(Fault::Poison(_)) => Ok(None),
        answer => answer.map(Some),
    }
}
