//! The chain of transactions from one fence on: gathers records into a batch, writes it, and goes on only after a plain
//! success.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tally_core::batch::{Batch, Change, Events, Taken, Trigger};
use tally_core::event::Rejection;
use tally_core::fence::{Advance, Commit, Fence, Next, Offset, Refused};
use tally_core::ids::{RowKey, ShardCount};
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tokio::time::Instant;
use tracing::Instrument;

use super::leave::Leave;
use super::letters::{Acknowledged, Letters};
use super::{Cause, End, Halt, Worker};
use crate::event;
use crate::metrics;
use crate::trace::Links;

/// How often Kafka is told how far we are.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Chain<'a> {
    worker: &'a Worker,
    leave: &'a Leave,
    fence: Fence,
    batch: Batch,
    /// What was read and is not behind the fence yet: a row the table refuses is put aside with its record.
    runs: VecDeque<Arc<Records>>,
    /// The next record to take: a run, and an index in it.
    next: (usize, usize),
    letters: Letters<'a>,
    links: Links,
    origin: Instant,
    committed: Instant,
}

/// What became of one transaction.
enum Written {
    /// The rows are there.
    Done,
    /// The store does not take one of the rows, in its words.
    Refused(String),
}

impl<'a> Chain<'a> {
    pub(super) fn new(worker: &'a Worker, leave: &'a Leave, fence: Fence, acknowledged: &'a mut Acknowledged) -> Self {
        let now = Instant::now();
        Self {
            worker,
            leave,
            batch: Batch::new(worker.shared.settings.limits, fence.offset),
            fence,
            runs: VecDeque::new(),
            next: (0, 0),
            letters: Letters::new(worker, acknowledged),
            links: Links::default(),
            origin: now,
            committed: now,
        }
    }

    /// How far the rows have come.
    pub(super) fn offset(&self) -> Offset {
        self.fence.offset
    }

    /// Writes batch after batch until something ends it.
    pub(super) async fn follow(&mut self) -> End {
        loop {
            let written = match self.gather().await {
                Ok(trigger) => self.flush(trigger).await,
                Err(end) => Err(end),
            };
            if let Err(end) = written {
                self.report(&end);
                return end;
            }
        }
    }

    /// Takes records until the batch is due.
    async fn gather(&mut self) -> Result<Trigger, End> {
        if self.batch.is_empty() && self.leave.is_asked() {
            return Err(End::Leave);
        }
        // Also where records are always there, so that nothing below is ever waited for.
        if self.worker.progress.doubted().now_or_never().is_some() {
            return Err(self.doubted());
        }
        loop {
            if let Some(trigger) = self.take() {
                return Ok(trigger);
            }
            tokio::select! {
                biased;
                () = self.leave.asked() => {
                    return if self.batch.is_empty() { Err(End::Leave) } else { Ok(Trigger::Shutdown) };
                }
                () = self.worker.progress.doubted() => return Err(self.doubted()),
                offset = self.letters.acknowledged() => self.batch.dead_letter_acknowledged(offset),
                records = self.worker.log.records() => match records {
                    Ok(records) => self.runs.push_back(records),
                    Err(fault) => {
                        tracing::warn!(partition = %self.worker.log.partition(), error = %fault, "cannot read on");
                        return Err(End::Reload(Cause::Position));
                    }
                },
                () = due(self.origin, self.batch.due_at()) => return Ok(Trigger::Age),
            }
        }
    }

    fn doubted(&self) -> End {
        tracing::warn!(partition = %self.worker.log.partition(), "the log no longer fits the fence");
        End::Reload(Cause::Position)
    }

    /// Takes what was read into the batch, until it is due or nothing is left.
    fn take(&mut self) -> Option<Trigger> {
        let (now, routing) = (self.origin.elapsed(), self.worker.routing());
        let index = self.worker.log.partition().index;
        let (mut stale, mut misrouted) = (0, 0);
        let mut oldest: Option<UnixMillis> = None;
        let due = loop {
            if let Some(trigger) = self.batch.due(now) {
                break Some(trigger);
            }
            let Some(run) = self.runs.get(self.next.0) else { break None };
            let Some(record) = run.get(self.next.1) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            let (offset, weight) = (record.offset, record.weight());
            let taken = if self.letters.has(offset) {
                let taken = self.batch.reject(offset, weight, now);
                self.batch.dead_letter_acknowledged(offset);
                taken
            } else {
                match event::of(record) {
                    Ok(event) => {
                        let taken = self.batch.accept(offset, &event, weight, now);
                        misrouted += u64::from(taken == Taken::Taken && !routing.fits(&event, index));
                        taken
                    }
                    Err(rejection) => {
                        let taken = self.batch.reject(offset, weight, now);
                        if taken == Taken::Taken {
                            self.letters.send(Arc::clone(run), offset, rejection);
                        }
                        taken
                    }
                }
            };
            match taken {
                Taken::Full => break Some(Trigger::Rows),
                Taken::Stale => stale += 1,
                Taken::Taken => {
                    self.links.follow(record);
                    oldest = Some(oldest.map_or(record.at, |oldest| oldest.min(record.at)));
                }
            }
            self.next.1 += 1;
        };
        if let Some(oldest) = oldest {
            self.worker.progress.waiting(oldest);
        }
        metrics::records("stale", stale);
        metrics::misrouted(misrouted);
        due
    }

    /// Writes the batch. Repeating any of it is safe: each transaction carries the fence's condition.
    async fn flush(&mut self, trigger: Trigger) -> Result<(), End> {
        let began = Instant::now();
        while self.batch.unacknowledged().next().is_some() {
            let offset = self.leave.unless_dropped(self.letters.acknowledged()).await?;
            self.batch.dead_letter_acknowledged(offset);
        }
        let events = self.batch.seal().expect("every dead letter is acknowledged");
        let links = self.links.take().to_string();
        let (from, to) = (events.from(), events.to());
        let partition = self.worker.log.partition();
        let span = tracing::info_span!("flush", %partition, %from, %to, trigger = trigger.label(), links);
        let (rows, written) = (events.changes().len(), events.clone());
        self.write_all(events).instrument(span).await?;
        metrics::flushed(partition.index, trigger, &written, rows, began.elapsed());
        self.advanced(trigger);
        Ok(())
    }

    /// Writes `events` in as many transactions as the store makes necessary.
    async fn write_all(&mut self, events: Events) -> Result<(), End> {
        let mut parts = vec![events];
        while let Some(part) = parts.pop() {
            let refused = match self.write(&part).await? {
                Written::Done => {
                    metrics::records("applied", part.len() as u64);
                    continue;
                }
                Written::Refused(text) => text,
            };
            if let Some((first, second)) = part.halves() {
                metrics::bisected();
                parts.extend([second, first]);
            } else if let Some(culprit) = part.single() {
                self.put_aside(culprit, refused).await?;
                parts.push(part.emptied());
            } else {
                // Nothing but the fence is left to blame.
                return Err(End::Halt(Halt::Refused(format!("the store refuses the fence: {refused}"))));
            }
        }
        Ok(())
    }

    /// One transaction, sent until it happened or something else has to be done.
    async fn write(&mut self, part: &Events) -> Result<Written, End> {
        let advance = Advance { from: self.fence.clone(), to: part.to() };
        let changes = part.changes();
        let (worker, leave) = (self.worker, self.leave);
        let partition = worker.log.partition();
        let mut tries = 0u32;
        loop {
            let outcome = leave.unless_dropped(async {
                let _permit = worker.shared.permits.acquire().await.expect("the semaphore is never closed");
                worker.shared.rows.commit(partition, &advance, &changes).await
            });
            let outcome = outcome.await?;
            match outcome.next() {
                Next::Go => {
                    self.fence = advance.reached();
                    return Ok(Written::Done);
                }
                Next::Again => {
                    metrics::retried("commit", class_of(&outcome));
                    tries = tries.saturating_add(1);
                    if tries.is_power_of_two() {
                        tracing::warn!(tries, outcome = ?summary(&outcome), "the store is busy: sending again");
                    }
                    leave.unless_dropped(worker.shared.host.clock().sleep(worker.pause(tries - 1))).await?;
                }
                Next::Reload => {
                    tracing::warn!(outcome = ?summary(&outcome), "reading the fence again");
                    return Err(End::Reload(cause_of(&outcome)));
                }
                Next::Bisect => return Ok(Written::Refused(summary(&outcome))),
                Next::Halt => {
                    return Err(End::Halt(Halt::Refused(refusal(&outcome, &changes, worker.shared.shards))));
                }
            }
        }
    }

    /// Puts the record of a row that the table does not take aside, and waits until that is acknowledged.
    async fn put_aside(&mut self, offset: Offset, refused: String) -> Result<(), End> {
        let run = self.runs.iter().find(|run| run.at(offset).is_some());
        let run = Arc::clone(run.expect("a run is kept until the fence has passed it"));
        self.letters.send(run, offset, Rejection::RefusedByStore(refused));
        self.leave.unless_dropped(self.letters.acknowledged()).await.map(drop)
    }

    /// The fence has moved: lets go of what lies behind it, and tells Kafka now and then.
    fn advanced(&mut self, trigger: Trigger) {
        while self.runs.front().and_then(|run| run.last_offset()).is_some_and(|last| last < self.fence.offset) {
            self.runs.pop_front();
            self.next = if self.next.0 == 0 { (0, 0) } else { (self.next.0 - 1, self.next.1) };
        }
        let waiting = self.runs.get(self.next.0).and_then(|run| run.get(self.next.1)).map(|record| record.at);
        self.worker.progress.reached(&self.fence, waiting);
        self.letters.prune(self.fence.offset);
        if trigger == Trigger::Shutdown || self.committed.elapsed() >= COMMIT_EVERY {
            self.committed = Instant::now();
            self.worker.log.finished(self.fence.offset);
        }
    }

    fn report(&self, end: &End) {
        let partition = self.worker.log.partition();
        let fence = self.fence.offset;
        if matches!(end, End::Leave) {
            self.worker.log.finished(fence);
            let unsent = !self.batch.is_empty() || !self.runs.is_empty();
            tracing::info!(%partition, %fence, unsent, "leaving; what was not sent is read again by whoever is next");
        }
    }
}

async fn due(origin: Instant, at: Option<Duration>) {
    match at {
        Some(at) => tokio::time::sleep_until(origin + at).await,
        None => std::future::pending().await,
    }
}

fn class_of(outcome: &Commit) -> &'static str {
    match outcome {
        Commit::Cancelled(reasons) if reasons.contains(&Refused::Throttled) => "throttled",
        _ => "conflict",
    }
}

fn cause_of(outcome: &Commit) -> Cause {
    match outcome {
        Commit::Cancelled(reasons) if reasons.contains(&Refused::Condition) => Cause::Condition,
        Commit::Cancelled(_) => Cause::Unclear,
        _ => Cause::Unknown,
    }
}

/// An outcome in a few words.
fn summary(outcome: &Commit) -> String {
    described(outcome, |item| format!("item {item}"))
}

/// An outcome for whoever has to act on it: the row keys by name, since it is one of those that is full.
fn refusal(outcome: &Commit, changes: &[Change<'_>], shards: ShardCount) -> String {
    described(outcome, |item| {
        let change = item.checked_sub(1).and_then(|row| changes.get(row));
        let key = change.map(|change| RowKey::of(change.counter, change.user.as_str(), shards));
        key.map_or("the fence".to_owned(), |key| format!("row key `{key}`"))
    })
}

/// A hundred reasons are mostly `Nothing`; item 0 is the fence.
fn described(outcome: &Commit, name: impl Fn(usize) -> String) -> String {
    match outcome {
        Commit::Done => "done".to_owned(),
        Commit::Invalid(text) | Commit::Fatal(text) | Commit::Unknown(text) => text.clone(),
        Commit::Cancelled(reasons) => {
            let named: Vec<String> = reasons
                .iter()
                .enumerate()
                .filter(|(_, reason)| **reason != Refused::Nothing)
                .take(3)
                .map(|(item, reason)| format!("{}: {reason:?}", name(item)))
                .collect();
            format!("cancelled: {}", named.join(", "))
        }
    }
}
