//! A partition that this process owns as a member of a Kafka consumer group: the bounded queue between the task that
//! polls Kafka and the worker that takes the partition's records, and the worker's handle.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use rdkafka::Offset as At;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, StreamConsumer};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{OwnedPartition, Records, Revocation};
use tally_core::topic::{Log, Offset, Partition};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot, watch};

use super::context::Context;
use super::convert::{blocking, fault_of, list_of, offset_in, raw};
use super::reader;
use super::source::claim::sign;

/// A partition is paused once its queue weighs this much, and read on once it weighs half.
pub(super) const QUEUE_WEIGHT: usize = 2 << 20;

/// How long one call to the broker may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a worker asks of the task that polls.
pub(super) enum Command {
    /// Read from this offset on.
    Start(Arc<Assignment>, Offset, oneshot::Sender<Outcome<()>>),
    /// The queue has room again.
    Resume(Arc<Assignment>),
    /// The worker is done with the partition.
    Release(Arc<Assignment>),
}

/// One assignment of one partition, shared by the task that polls and the worker.
pub(super) struct Assignment {
    pub(super) partition: Partition,
    /// The partition's index, as the client has it.
    pub(super) index: i32,
    queue: Mutex<Queue>,
    arrived: Notify,
    /// How it was taken from this member; `None` while it is not.
    pub(super) revoked: watch::Sender<Option<Revocation>>,
}

#[derive(Default)]
pub(super) struct Queue {
    runs: VecDeque<Arc<Records>>,
    pub(super) weight: usize,
    paused: bool,
    fault: Option<Fault>,
}

impl Assignment {
    pub(super) fn new(partition: Partition) -> Arc<Self> {
        let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
        let (queue, arrived, revoked) = (Mutex::default(), Notify::new(), watch::Sender::new(None));
        Arc::new(Self { partition, index, queue, arrived, revoked })
    }

    /// Queues what was read. Returns `true` if the queue is so heavy now that the partition has to be paused.
    pub(super) fn deliver(&self, records: Records) -> bool {
        let mut queue = self.queue();
        queue.weight += records.weight();
        queue.runs.push_back(Arc::new(records));
        let pause = queue.weight >= QUEUE_WEIGHT && !queue.paused;
        queue.paused |= pause;
        drop(queue);
        self.arrived.notify_one();
        pause
    }

    /// Makes the next call for records return `fault`: the position may not be readable any more.
    pub(super) fn doubt(&self, fault: Fault) {
        self.queue().fault = Some(fault);
        self.arrived.notify_one();
    }

    /// Assigns the partition at `offset`, and unassigns it first where the client reads it elsewhere. Only the client
    /// knows that: an earlier start may have failed half-way.
    pub(super) fn restart(&self, consumer: &StreamConsumer<Context>, offset: Offset) -> Outcome<()> {
        let partition = &self.partition;
        let list = list_of(partition, raw(offset))?;
        let positioned = || {
            if consumer.assignment()?.find_partition(&partition.topic, self.index).is_some() {
                consumer.incremental_unassign(&list)?;
            }
            // Forgets what was read before, and whether the partition was paused.
            *self.queue() = Queue::default();
            consumer.incremental_assign(&list)?;
            consumer.resume(&list)
        };
        positioned().map_err(|error| fault_of(&format!("starting {partition} at {offset}"), &error))
    }

    /// Ends the assignment. The first reason counts, unless the partition is lost meanwhile.
    pub(super) fn end(&self, over: Revocation) {
        self.revoked.send_if_modified(|state| {
            let changes = state.is_none() || (over == Revocation::Lost && *state != Some(Revocation::Lost));
            if changes {
                *state = Some(over);
            }
            changes
        });
    }

    /// Takes the next run of records. Also returns whether the partition is paused and its queue has room again.
    fn take(&self) -> Outcome<Option<(Arc<Records>, bool)>> {
        let mut queue = self.queue();
        if let Some(fault) = queue.fault.take() {
            return Err(fault);
        }
        let Some(records) = queue.runs.pop_front() else { return Ok(None) };
        queue.weight -= records.weight();
        let resume = queue.paused && queue.weight <= QUEUE_WEIGHT / 2;
        if resume {
            queue.paused = false;
        }
        Ok(Some((records, resume)))
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}

/// The worker's handle. Dropping it gives the partition back.
pub(super) struct Handle {
    pub(super) assignment: Arc<Assignment>,
    pub(super) commands: UnboundedSender<Command>,
    /// Weak, so that the task that polls decides when the group is left.
    pub(super) consumer: Weak<StreamConsumer<Context>>,
    /// The client that is asked about the partition.
    pub(super) lookups: Arc<BaseConsumer<Context>>,
    /// The deployment in whose name it commits offsets.
    pub(super) deployment: Option<Arc<str>>,
}

impl Handle {
    /// Asks the brokers about the partition. After a call in vain the client of the member may not know any, either.
    async fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&BaseConsumer<Context>, &Partition) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let (lookups, partition) = (Arc::clone(&self.lookups), self.assignment.partition.clone());
        let asked = blocking(move || reader::ask(&lookups, |client| call(client, &partition))).await;
        if let (Err(_), Some(consumer)) = (&asked, self.consumer.upgrade()) {
            consumer.context().brokers.name_again(consumer.client());
        }
        asked
    }

    fn gone(&self) -> Fault {
        Fault::Transient(format!("{} is no longer read here", self.assignment.partition))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.assignment.partition).finish()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // If the task that polls has ended, the partition is given back already.
        let _ = self.commands.send(Command::Release(Arc::clone(&self.assignment)));
    }
}

#[async_trait]
impl OwnedPartition for Handle {
    fn partition(&self) -> &Partition {
        &self.assignment.partition
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.ask(|consumer, partition| {
            let metadata = consumer.fetch_metadata(Some(&partition.topic), TIMEOUT);
            let metadata = metadata.map_err(|error| fault_of(&format!("looking at `{}`", partition.topic), &error))?;
            let count: usize = metadata.topics().iter().map(|topic| topic.partitions().len()).sum();
            Ok(u32::try_from(count).unwrap_or(u32::MAX))
        })
        .await
    }

    async fn log(&self) -> Outcome<Log> {
        self.ask(reader::log_of).await
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        self.ask(|consumer, partition| {
            let committed = consumer.committed_offsets(list_of(partition, At::Invalid)?, TIMEOUT);
            offset_in(&format!("asking what is committed of {partition}"), committed)
        })
        .await
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        let (done, started) = oneshot::channel();
        let start = Command::Start(Arc::clone(&self.assignment), offset, done);
        self.commands.send(start).map_err(|_| self.gone())?;
        started.await.map_err(|_| self.gone())?
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        loop {
            match self.assignment.take()? {
                Some((records, resume)) => {
                    if resume {
                        // If the task that polls has ended, nothing is read any more.
                        let _ = self.commands.send(Command::Resume(Arc::clone(&self.assignment)));
                    }
                    return Ok(records);
                }
                None => self.assignment.arrived.notified().await,
            }
        }
    }

    async fn revoked(&self) -> Revocation {
        let mut over = self.assignment.revoked.subscribe();
        let ended = over.wait_for(Option::is_some).await;
        // The sender lives in the assignment that this handle holds.
        ended.ok().and_then(|over| *over).unwrap_or(Revocation::Lost)
    }

    fn finished(&self, offset: Offset) {
        let Some(consumer) = self.consumer.upgrade() else { return };
        let partition = &self.assignment.partition;
        let committed = list_of(partition, raw(offset)).and_then(|mut list| {
            if let Some(deployment) = &self.deployment {
                sign(&mut list, deployment);
            }
            let committed = consumer.commit(&list, CommitMode::Async);
            committed.map_err(|error| fault_of(&format!("committing {partition}"), &error))
        });
        if let Err(fault) = committed {
            tracing::debug!(error = %fault, "kafka client");
        }
    }
}
