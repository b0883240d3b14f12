//! The consumer's task for one partition of its topic of events, from its assignment until it is left. It claims the
//! partition (`begin.rs`): the claim says which process writes its rows now, and how far they are. It decodes records
//! (`reading.rs`), writes rows and sums (`writing.rs`, `sums.rs`) and dead letters (`letters.rs`), many at a time, and
//! stores once a second how far it is (`keeping.rs`). What it commits is before every record that is not finished.

mod begin;
mod keeping;
mod letters;
mod reading;
mod shown;
mod sums;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::{Claims, Confirmed};
use tally_adapters::dynamodb::registers::Registers;
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::log::Revocation;
use tally_core::ports::{OwnedPartition, Producer, TopicReader};
use tally_core::register::{Ends, Kept, Progress, Standstill, Topic};
use tally_core::topic::{Offset, Partition};
use tally_service::{Host, Seldom, Stop, Task};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::keeping::Tail;
use self::reading::Reading;
use self::shown::Shown;
use self::writing::Writing;
use crate::args::ReadSettings;
use crate::metrics;
use crate::misrouted::Warning;

/// How long after a partition was given up it is claimed again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a partition stands still before it is looked at again.
const RECHECK: Duration = Duration::from_secs(10);
/// How long a revoked partition may still be drained.
const DRAIN: Duration = Duration::from_secs(5);
/// How often the task stores how far the rows are.
const EVERY: Duration = Duration::from_secs(1);
/// More than passes between the readings of two clocks: a greater difference means that the machine slept.
const ASLEEP: Duration = Duration::from_millis(500);

/// What the tasks of all partitions share.
pub(crate) struct Shared {
    pub(crate) registers: Registers,
    pub(crate) claims: Claims,
    pub(crate) changes: Changes,
    pub(crate) deployment: Checkpoints,
    /// The deployment's name in its dead letters, which tells it from others.
    pub(crate) name: Option<String>,
    /// Writes dead letters.
    pub(crate) producer: Arc<dyn Producer>,
    /// Reads the topic of likes outside of the group.
    pub(crate) reader: Arc<dyn TopicReader>,
    pub(crate) settings: ReadSettings,
    pub(crate) shards: ShardCount,
    /// One permit for each request that may be under way.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) host: Host,
    /// Warns about misrouted events.
    pub(crate) misrouted: Warning,
    /// When the log last named a row that the store refused.
    pub(crate) refused: Seldom,
}

impl Shared {
    /// Returns the wait before repeat `attempt`, drawn at random.
    fn pause(&self, attempt: u32) -> Duration {
        Backoff::STORE.wait(attempt, self.host.chance().fraction())
    }

    /// Returns how long the machine has slept.
    fn slept(&self) -> Duration {
        let clock = self.host.clock();
        clock.awake_or_asleep().saturating_sub(clock.reading().at)
    }

    /// Returns the time by the clock that does not go back.
    fn at(&self) -> Duration {
        self.host.clock().reading().at
    }
}

/// The task of one partition.
pub(crate) struct Worker {
    pub(crate) log: Arc<dyn OwnedPartition>,
    pub(crate) shared: Arc<Shared>,
}

/// Why a partition is not read any further.
enum End {
    /// The partition is given back.
    Left,
    /// The partition is claimed again in a second.
    Again(String),
    /// The partition stands still, with an alarm, until it is looked at again.
    Stands(Standstill),
}

/// What to do with an answer that was waited for. Returns the end, if one follows from it.
type Then = Box<dyn FnOnce(&mut Held) -> Option<End> + Send>;

/// The place in the queue for a permit to send a request.
type Permit = BoxFuture<'static, OwnedSemaphorePermit>;

/// A partition while this task has its claim.
struct Held {
    log: Arc<dyn OwnedPartition>,
    shared: Arc<Shared>,
    topic: Arc<Topic>,
    /// The number of the claim.
    n: u64,
    confirmed: Confirmed,
    kept: Kept,
    /// Records before this offset may have been in the rows when the partition was claimed.
    rereads_to: Offset,
    ends: Ends,
    progress: Progress,
    reading: Reading,
    writing: Writing,
    under_way: FuturesUnordered<BoxFuture<'static, Then>>,
    permit: Option<Permit>,
    /// When the task stores next how far the rows are.
    keep_at: Duration,
    keeps: bool,
    /// The next offset at the last look, if there was nothing to read although the log goes on.
    idle_at: Option<Offset>,
    looks_ahead: bool,
    /// How often in a row storing under the claim has failed.
    unkept: u32,
    asks: bool,
    tail: Tail,
    /// How long the machine had slept when the partition was claimed.
    slept: Duration,
    /// How many dead letters are under way.
    letters: usize,
    /// How many dead letters were acknowledged, and how many other records were counted as applied.
    rejected: u64,
    applied: u64,
    shown: Shown,
}

impl Held {
    /// Reads and writes until the partition is left or has to be claimed again.
    async fn run(&mut self, stop: &Stop) -> End {
        let log = Arc::clone(&self.log);
        loop {
            self.hand_out();
            let due = self.is_due();
            let wake_at = if due { self.keep_at } else { self.wake_at() };
            let done = tokio::select! {
                biased;
                leave = leave(&*log, stop) => return self.drain(leave, stop).await,
                Some(done) = self.under_way.next() => Some(done),
                () = sleep_until(&self.shared, wake_at) => None,
                permit = permit(&mut self.permit, &self.shared), if due => {
                    self.permit = None;
                    self.send(permit, false);
                    None
                }
                records = log.records(), if self.reads() => match records {
                    Ok(records) => {
                        self.reading.runs.push(records);
                        None
                    }
                    Err(fault) => return End::Again(format!("cannot read on: {fault}")),
                }
            };
            let ended = done.and_then(|then| self.done(then)).or_else(|| self.tick());
            if let Some(end) = ended {
                return end;
            }
        }
    }

    /// Does `work` beside everything else; `then` takes in its result.
    fn begin<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
        then: impl FnOnce(&mut Self, T) -> Option<End> + Send + 'static,
    ) {
        self.under_way.push(Box::pin(async move {
            let answer = work.await;
            Box::new(move |held: &mut Self| then(held, answer)) as Then
        }));
    }

    /// Takes in an answer that was waited for. Returns the end, if one follows.
    fn done(&mut self, then: Then) -> Option<End> {
        let end = then(self);
        if end.is_none() {
            let reached = self.progress.committable();
            self.reading.runs.release(reached);
            self.shown.reads(&self.shared, self.log.partition(), reached);
            self.count();
        }
        end
    }

    /// Finishes what is under way while there is time for it, and stores how far that came.
    async fn drain(&mut self, leave: Revocation, stop: &Stop) -> End {
        // Another member may own the partition, or the grace period is over: nothing is finished any more.
        if leave == Revocation::Lost {
            return End::Left;
        }
        let (log, clock) = (Arc::clone(&self.log), self.shared.host.clock());
        let over = async {
            // A partition that is asked back while the process stops is drained no longer than any other.
            match log.revoked().await {
                Revocation::Revoked => clock.sleep(DRAIN).await,
                Revocation::Lost => {}
            }
        };
        tokio::select! {
            biased;
            () = stop.last_call() => {}
            () = over => {}
            _ = self.finish() => {}
        }
        End::Left
    }

    /// Sends what is left, waits for every answer, and stores how far the rows are.
    async fn finish(&mut self) -> Option<End> {
        while self.progress.kept() > 0 {
            let due = self.has_ready();
            let done = tokio::select! {
                biased;
                Some(done) = self.under_way.next() => Some(done),
                permit = permit(&mut self.permit, &self.shared), if due => {
                    self.permit = None;
                    self.send(permit, true);
                    None
                }
                else => break,
            };
            if let Some(end) = done.and_then(|then| self.done(then)) {
                return Some(end);
            }
        }
        if let Some(end) = self.kept().await {
            return Some(end);
        }
        self.keep();
        self.kept().await
    }

    /// Waits until nothing is being stored under the claim. Returns the end, if one follows.
    async fn kept(&mut self) -> Option<End> {
        while self.keeps {
            let then = self.under_way.next().await?;
            if let Some(end) = self.done(then) {
                return Some(end);
            }
        }
        None
    }

    /// Counts records as applied once they and all before them are finished.
    fn count(&mut self) {
        let finished = self.reading.taken - self.progress.kept() as u64;
        let applied = finished.saturating_sub(self.rejected);
        if applied > self.applied {
            metrics::RECORDS.counter(&["applied"]).increment(applied - self.applied);
            self.applied = applied;
        }
    }

    /// Returns when something is to be done even if no answer comes.
    fn wake_at(&self) -> Duration {
        self.due_at().map_or(self.keep_at, |due| due.min(self.keep_at))
    }
}

impl Task for Worker {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let Self { log, shared } = self;
        let (partition, readiness) = (log.partition().clone(), shared.host.readiness().clone());
        let (mut shown, mut refusals) = (Shown::default(), 0);
        loop {
            let end = tokio::select! {
                biased;
                _ = leave(&*log, &stop) => End::Left,
                begun = begin::begin(&log, &shared, &mut shown, refusals) => match begun {
                    Ok(Ok(mut held)) => {
                        let end = held.run(&stop).await;
                        (refusals, shown) = (held.progress.refusals(), held.shown);
                        end
                    }
                    Ok(Err(end)) => end,
                    Err(fault) => End::Again(format!("cannot begin: {fault}")),
                }
            };
            let rest = match end {
                End::Left => break,
                End::Again(why) => {
                    tracing::warn!(%partition, why, "claiming it again");
                    shown.rests(&shared, &partition);
                    AGAIN
                }
                End::Stands(why) => {
                    shown.stands(&shared, &partition, why);
                    RECHECK
                }
            };
            let clock = shared.host.clock();
            tokio::select! {
                biased;
                _ = leave(&*log, &stop) => break,
                () = clock.sleep(rest) => {}
            }
        }
        for what in [PARTITION, TOPIC, SUMS, DEAD_LETTERS] {
            readiness.forget(&condition(what, &partition));
        }
        metrics::lag(partition.index, 0, Duration::ZERO);
        Ok(())
    }
}

/// The readiness conditions of a partition: itself, its topic, its sums and its dead letters.
const PARTITION: &str = "partition";
const TOPIC: &str = "topic";
const SUMS: &str = "sums";
const DEAD_LETTERS: &str = "dead-letters";

/// Returns the name of one of these conditions.
fn condition(what: &str, partition: &Partition) -> String {
    format!("{what}-{}", partition.index)
}

/// Returns when the partition has to be given back, and how: at once as if it were lost, or after what is under way. Cancel
/// safe.
async fn leave(log: &dyn OwnedPartition, stop: &Stop) -> Revocation {
    tokio::select! {
        biased;
        () = stop.last_call() => Revocation::Lost,
        revocation = log.revoked() => revocation,
        () = stop.requested() => Revocation::Revoked,
    }
}

/// Waits for the next permit to send a request. Cancel safe: its place in the queue is kept.
async fn permit(waiting: &mut Option<Permit>, shared: &Shared) -> OwnedSemaphorePermit {
    let permits = Arc::clone(&shared.permits);
    let acquire = async { permits.acquire_owned().await.expect("the semaphore is never closed") };
    waiting.get_or_insert_with(|| Box::pin(acquire)).await
}

/// Completes when the clock's monotonic time is `at`.
async fn sleep_until(shared: &Shared, at: Duration) {
    shared.host.clock().sleep(at.saturating_sub(shared.at())).await;
}
