//! Membership of a group: the one task that polls librdkafka, hands records to their partitions' queues, and carries
//! out what workers ask for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::fence::{Offset, Partition};
use tally_core::ports::Outcome;
use tally_core::ports::log::{Intake, Over, OwnedPartition, Rebalance, Records};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::context::{Change, Context};
use super::fault::fault_of;
use super::owned::{Command, Handle, Tenure, list_of, push, raw};
use super::settings::Settings;

/// How many messages are taken before the queues are filled and commands are looked at.
const BURST: usize = 1024;

/// How long workers may take to finish what they have under way when their partitions are asked back.
const HANDOVER: Duration = Duration::from_secs(10);

/// A member of a group that reads one topic.
pub struct Source {
    topic: Box<str>,
    /// `None` once it has left.
    consumer: Option<Arc<StreamConsumer<Context>>>,
    changes: UnboundedReceiver<Change>,
    commands: UnboundedReceiver<Command>,
    asked: UnboundedSender<Command>,
    held: BTreeMap<i32, Held>,
    handover: Option<Handover>,
}

/// A partition of ours as the poller sees it.
struct Held {
    tenure: Arc<Tenure>,
    /// What was read and not handed over yet.
    read: Records,
    started: bool,
}

/// Partitions asked back whose workers are not through yet.
struct Handover {
    partitions: Vec<i32>,
    deadline: Instant,
}

impl Source {
    /// Joins `group` to read `topic`; connects when it is first polled.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn new(settings: &Settings, group: &str, topic: &str) -> Outcome<Self> {
        let mut config = settings.client();
        config
            .set("group.id", group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("session.timeout.ms", "10000")
            .set("heartbeat.interval.ms", "1000")
            // Besides the bounded queue of a partition, librdkafka holds at most this much of it.
            .set("queued.max.messages.kbytes", "2048")
            .set("fetch.message.max.bytes", "524288");
        let (changed, changes) = unbounded_channel();
        let context = Context::new(settings).reporting(changed);
        let consumer: KafkaResult<StreamConsumer<Context>> = config.create_with_context(context);
        let consumer = consumer.map_err(|error| fault_of("creating a consumer", &error))?;
        let subscribed = consumer.subscribe(&[topic]);
        subscribed.map_err(|error| fault_of(&format!("subscribing to `{topic}`"), &error))?;
        let (asked, commands) = unbounded_channel();
        Ok(Self {
            topic: topic.into(),
            consumer: Some(Arc::new(consumer)),
            changes,
            commands,
            asked,
            held: BTreeMap::new(),
            handover: None,
        })
    }

    fn consumer(&self) -> Outcome<Arc<StreamConsumer<Context>>> {
        self.consumer.clone().ok_or_else(|| Fault::Fatal("the group has been left".to_owned()))
    }

    fn name(&self, index: i32) -> Partition {
        Partition { topic: self.topic.clone(), index: u32::try_from(index).unwrap_or(0) }
    }

    fn list(&self, partitions: impl Iterator<Item = i32>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        partitions.for_each(|index| _ = list.add_partition(&self.topic, index));
        list
    }

    fn changed(&mut self, change: Change, consumer: &Arc<StreamConsumer<Context>>) -> Rebalance {
        match change {
            Change::Assigned(partitions) => {
                let handles = partitions.into_iter().map(|index| {
                    let tenure = Tenure::new(self.name(index));
                    let handle = Handle::new(&tenure, &self.asked, consumer);
                    self.held.insert(index, Held { tenure, read: Records::default(), started: false });
                    Arc::new(handle) as Arc<dyn OwnedPartition>
                });
                Rebalance::Assigned(handles.collect())
            }
            Change::Lost(partitions) => {
                let ended = self.end(Over::Lost, &partitions);
                partitions.iter().for_each(|index| _ = self.held.remove(index));
                ended
            }
            Change::Revoked(partitions) => {
                let ended = self.end(Over::Revoked, &partitions);
                let deadline = Instant::now() + HANDOVER;
                let handover = self.handover.get_or_insert(Handover { partitions: Vec::new(), deadline });
                handover.partitions.extend(partitions);
                ended
            }
        }
    }

    fn end(&self, over: Over, partitions: &[i32]) -> Rebalance {
        partitions.iter().filter_map(|index| self.held.get(index)).for_each(|held| held.tenure.end(over));
        Rebalance::Ended(over, partitions.iter().map(|index| self.name(*index)).collect())
    }

    fn obey(&mut self, command: Command, consumer: &StreamConsumer<Context>) {
        match command {
            Command::Start(tenure, offset, done) => self.start(&tenure, offset, done, consumer),
            Command::Resume(tenure) => {
                if self.held_by(&tenure).is_some_and(|(_, held)| held.started) {
                    let resumed = list_of(&tenure.partition, At::Invalid).map(|list| consumer.resume(&list));
                    settled("resuming a partition", resumed);
                }
            }
            Command::Release(tenure) => {
                if let Some((index, _)) = self.held_by(&tenure) {
                    let started = self.held.remove(&index).is_some_and(|held| held.started);
                    // One that is being handed over is unassigned together with the others.
                    if started && self.handover.as_ref().is_none_or(|handover| !handover.partitions.contains(&index)) {
                        settled(
                            "releasing a partition",
                            Ok(consumer.incremental_unassign(&self.list([index].into_iter()))),
                        );
                    }
                }
            }
        }
    }

    /// What is held of a tenure that still is ours.
    fn held_by(&mut self, tenure: &Arc<Tenure>) -> Option<(i32, &mut Held)> {
        let index = i32::try_from(tenure.partition.index).ok()?;
        self.held.get_mut(&index).filter(|held| Arc::ptr_eq(&held.tenure, tenure)).map(|held| (index, held))
    }

    fn start(
        &mut self,
        tenure: &Arc<Tenure>,
        offset: Offset,
        done: oneshot::Sender<Outcome<()>>,
        consumer: &StreamConsumer<Context>,
    ) {
        let started = match self.held_by(tenure) {
            None => Err(Fault::Transient(format!("{} is no longer ours", tenure.partition))),
            Some((_, held)) => {
                held.read = Records::default();
                let doing = |error| fault_of(&format!("starting {} at {offset}", tenure.partition), &error);
                let started = restart(consumer, tenure, offset, held.started).map(|done| done.map_err(doing));
                let started = started.and_then(|done| done);
                held.started = started.is_ok();
                started
            }
        };
        // A worker that does not wait any more will start anew.
        let _ = done.send(started);
    }

    /// Takes `first` and whatever else has been fetched already, and hands it to the partitions.
    fn take<'m>(
        &mut self,
        first: KafkaResult<BorrowedMessage<'m>>,
        more: impl Iterator<Item = KafkaResult<BorrowedMessage<'m>>>,
        consumer: &StreamConsumer<Context>,
    ) -> Outcome<()> {
        let mut taken = Ok(());
        for message in std::iter::once(first).chain(more) {
            match message {
                Ok(message) => {
                    if let Some(held) = self.held.get_mut(&message.partition()).filter(|held| held.started) {
                        push(&mut held.read, &message);
                    }
                }
                Err(error) => {
                    taken = self.failed(&error);
                    break;
                }
            }
        }
        self.hand_over_records(consumer);
        taken
    }

    fn hand_over_records(&mut self, consumer: &StreamConsumer<Context>) {
        for held in self.held.values_mut().filter(|held| !held.read.is_empty()) {
            if held.tenure.deliver(std::mem::take(&mut held.read)) {
                let paused = list_of(&held.tenure.partition, At::Invalid).map(|list| consumer.pause(&list));
                settled("pausing a partition", paused);
            }
        }
    }

    fn failed(&self, error: &KafkaError) -> Outcome<()> {
        let fault = fault_of(&format!("reading `{}`", self.topic), error);
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AutoOffsetReset) {
            // It does not say which partition.
            self.held.values().filter(|held| held.started).for_each(|held| held.tenure.doubt(fault.clone()));
            return Ok(());
        }
        Err(fault)
    }

    /// Whether everybody is through with the partitions that are asked back, or time is up.
    fn handed_over(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| {
            let waiting = handover.partitions.iter().any(|index| self.held.contains_key(index));
            !waiting || Instant::now() >= handover.deadline
        })
    }

    fn finish_handover(&mut self, consumer: &StreamConsumer<Context>) {
        let Some(handover) = self.handover.take() else { return };
        handover.partitions.iter().for_each(|index| _ = self.held.remove(index));
        let answered = consumer.assignment().and_then(|assigned| {
            let asked = |index: &i32| assigned.find_partition(&self.topic, *index).is_some();
            consumer.incremental_unassign(&self.list(handover.partitions.iter().copied().filter(asked)))
        });
        settled("handing partitions over", Ok(answered));
    }
}

fn settled(doing: &str, result: Outcome<KafkaResult<()>>) {
    let fault = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => fault_of(doing, &error),
        Err(fault) => fault,
    };
    tracing::warn!(error = %fault, "kafka client");
}

/// Assigns the partition at `offset`, unassigning it first where it is being read from elsewhere.
fn restart(
    consumer: &StreamConsumer<Context>,
    tenure: &Tenure,
    offset: Offset,
    started: bool,
) -> Outcome<KafkaResult<()>> {
    let list = list_of(&tenure.partition, raw(offset))?;
    if started && let Err(error) = consumer.incremental_unassign(&list) {
        return Ok(Err(error));
    }
    tenure.clear();
    Ok(consumer.incremental_assign(&list).and_then(|()| consumer.resume(&list)))
}

/// What became ready while the poller waited.
enum Woken<'a> {
    Change(Option<Change>),
    Command(Option<Command>),
    Message(KafkaResult<BorrowedMessage<'a>>),
    Deadline,
}

#[async_trait]
impl Intake for Source {
    async fn rebalance(&mut self) -> Outcome<Rebalance> {
        let consumer = self.consumer()?;
        let mut stream = consumer.stream();
        loop {
            if self.handed_over() {
                self.finish_handover(&consumer);
            }
            let deadline = self.handover.as_ref().map(|handover| handover.deadline);
            let woken = tokio::select! {
                biased;
                change = self.changes.recv() => Woken::Change(change),
                command = self.commands.recv() => Woken::Command(command),
                message = stream.next() => match message {
                    Some(message) => Woken::Message(message),
                    None => return Err(Fault::Fatal("the stream of messages ended".to_owned())),
                },
                () = until(deadline) => Woken::Deadline,
            };
            match woken {
                Woken::Change(Some(change)) => return Ok(self.changed(change, &consumer)),
                Woken::Command(Some(command)) => self.obey(command, &consumer),
                Woken::Change(None) | Woken::Command(None) => {
                    return Err(Fault::Fatal("the client's callbacks are gone".to_owned()));
                }
                Woken::Message(first) => {
                    let more = std::iter::from_fn(|| stream.next().now_or_never().flatten()).take(BURST);
                    self.take(first, more, &consumer)?;
                    tokio::task::yield_now().await;
                }
                Woken::Deadline => {}
            }
        }
    }

    async fn leave(mut self: Box<Self>) {
        let Some(consumer) = self.consumer.take() else { return };
        // From here on the hook answers by itself.
        self.changes.close();
        let left = tokio::task::spawn_blocking(move || drop(consumer)).await;
        if let Err(error) = left {
            tracing::warn!(%error, "cannot leave the group");
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.held.values().for_each(|held| held.tenure.end(Over::Lost));
        self.changes.close();
        if let (Some(consumer), Ok(runtime)) = (self.consumer.take(), Runtime::try_current()) {
            runtime.spawn_blocking(move || drop(consumer));
        }
    }
}
