//! Membership of a group: the one task that polls librdkafka, hands records to their partitions' queues, and carries
//! out what workers ask for.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientConfig, Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::fence::{Offset, Partition};
use tally_core::ports::Outcome;
use tally_core::ports::log::{Intake, Over, OwnedPartition, Rebalance, Records};
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::context::{Change, Context};
use super::fault::{explained, fault_of};
use super::holdings::Holdings;
use super::owned::{Command, Handle, Tenure, list_of, push, raw};
use super::settings::Settings;

/// How many messages are taken before the queues are filled and commands are looked at.
const BURST: usize = 1024;

/// How much of one partition is taken before it is handed over, so that a pause does not come late.
const RUN_WEIGHT: usize = 512 << 10;

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
    holdings: Holdings,
}

impl Source {
    /// Joins `group` to read `topic`; connects when it is first polled.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn new(settings: &Settings, group: &str, topic: &str) -> Outcome<Self> {
        Self::configured(&config(settings, group), Context::new(settings), topic)
    }

    fn configured(config: &ClientConfig, context: Context, topic: &str) -> Outcome<Self> {
        let (changed, changes) = unbounded_channel();
        let consumer: KafkaResult<StreamConsumer<Context>> = config.create_with_context(context.reporting(changed));
        let consumer = consumer.map_err(|error| fault_of("creating a consumer", &error))?;
        let subscribed = consumer.subscribe(&[topic]);
        subscribed.map_err(|error| fault_of(&format!("subscribing to `{topic}`"), &error))?;
        let (asked, commands) = unbounded_channel();
        let (consumer, holdings) = (Some(Arc::new(consumer)), Holdings::default());
        Ok(Self { topic: topic.into(), consumer, changes, commands, asked, holdings })
    }

    fn consumer(&self) -> Arc<StreamConsumer<Context>> {
        self.consumer.clone().expect("the group is left by consuming the source")
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
                    self.holdings.begin(index, tenure);
                    Arc::new(handle) as Arc<dyn OwnedPartition>
                });
                Rebalance::Assigned(handles.collect())
            }
            Change::Lost(partitions) => {
                self.holdings.lose(&partitions);
                self.ended(Over::Lost, &partitions)
            }
            Change::Revoked(partitions) => {
                self.holdings.ask_back(&partitions, Instant::now() + HANDOVER);
                self.ended(Over::Revoked, &partitions)
            }
        }
    }

    fn ended(&self, over: Over, partitions: &[i32]) -> Rebalance {
        Rebalance::Ended(over, partitions.iter().map(|index| self.name(*index)).collect())
    }

    fn obey(&mut self, command: Command, consumer: &StreamConsumer<Context>) {
        match command {
            Command::Start(tenure, offset, done) => self.start(&tenure, offset, done, consumer),
            Command::Resume(tenure) => {
                if self.holdings.held_by(&tenure).is_some_and(|(_, held)| held.started) {
                    let resumed = list_of(&tenure.partition, At::Invalid).map(|list| consumer.resume(&list));
                    settled("resuming a partition", resumed);
                }
            }
            Command::Release(tenure) => {
                if let Some(index) = self.holdings.release(&tenure) {
                    settled("releasing a partition", Ok(self.stop_reading(&[index], consumer)));
                }
            }
        }
    }

    fn start(
        &mut self,
        tenure: &Arc<Tenure>,
        offset: Offset,
        done: oneshot::Sender<Outcome<()>>,
        consumer: &StreamConsumer<Context>,
    ) {
        let started = match self.holdings.held_by(tenure) {
            None => Err(Fault::Transient(format!("{} is no longer ours", tenure.partition))),
            Some((_, held)) => {
                held.read = Records::default();
                let doing = |error| fault_of(&format!("starting {} at {offset}", tenure.partition), &error);
                let started = restart(consumer, tenure, offset).map(|done| done.map_err(doing));
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
                    if let Some(held) = self.holdings.reading(message.partition()) {
                        push(&mut held.read, &message);
                        if held.read.weight() >= RUN_WEIGHT {
                            break;
                        }
                    }
                }
                Err(error) => {
                    taken = self.failed(&error, &consumer.context().take_reason());
                    break;
                }
            }
        }
        self.hand_over_records(consumer);
        taken
    }

    fn hand_over_records(&mut self, consumer: &StreamConsumer<Context>) {
        for held in self.holdings.all_reading().filter(|held| !held.read.is_empty()) {
            if held.tenure.deliver(std::mem::take(&mut held.read)) {
                let paused = list_of(&held.tenure.partition, At::Invalid).map(|list| consumer.pause(&list));
                settled("pausing a partition", paused);
            }
        }
    }

    fn failed(&mut self, error: &KafkaError, reason: &str) -> Outcome<()> {
        let fault = explained(&format!("reading `{}`", self.topic), error, reason);
        let Some(code) = error.rdkafka_error_code() else { return Err(fault) };
        if concerns_the_log(code) {
            self.holdings.all_reading().for_each(|held| held.tenure.doubt(fault.clone()));
        }
        if code == Code::AutoOffsetReset { Ok(()) } else { Err(fault) }
    }

    /// Answers what was asked back, as far as that is still read.
    fn finish_handover(&mut self, consumer: &StreamConsumer<Context>) {
        if let Some(partitions) = self.holdings.finish_handover() {
            settled("handing partitions over", Ok(self.stop_reading(&partitions, consumer)));
        }
    }

    /// Unassigns these, less those that are not assigned, which would fail the whole call.
    fn stop_reading(&self, partitions: &[i32], consumer: &StreamConsumer<Context>) -> KafkaResult<()> {
        let assigned = consumer.assignment()?;
        let held = partitions.iter().copied().filter(|index| assigned.find_partition(&self.topic, *index).is_some());
        consumer.incremental_unassign(&self.list(held))
    }

    /// The client, to be dropped: nothing is ours any more, and nothing that it waits for is left unanswered, for then
    /// it would wait for ever.
    fn part(&mut self) -> Option<Arc<StreamConsumer<Context>>> {
        let consumer = self.consumer.take()?;
        // From here on the hook answers by itself.
        self.changes.close();
        while let Ok(change) = self.changes.try_recv() {
            if let Change::Revoked(partitions) = change {
                self.holdings.ask_back(&partitions, Instant::now());
            }
        }
        self.finish_handover(&consumer);
        self.holdings.lose_all();
        Some(consumer)
    }
}

fn config(settings: &Settings, group: &str) -> ClientConfig {
    let mut config = settings.client();
    config
        .set("group.id", group)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        // As short as brokers allow unless told otherwise: until then nobody reads on where a member died. To be wrong about
        // a slow one costs a rebalance, and no row.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "1000")
        // A broker answers as soon as there is something; the one inside this process does not, and waits this long first.
        .set("fetch.wait.max.ms", "50")
        // Besides the bounded queue of a partition, librdkafka asks for more of it while it holds less than this...
        .set("queued.max.messages.kbytes", "2048")
        // Looking again a second later, as it does by default, would leave a worker without records meanwhile.
        .set("fetch.queue.backoff.ms", "10")
        // ... and then for so much, as it lies in the log: compressed by the producer, and several times as large here.
        .set("fetch.message.max.bytes", "131072");
    config
}

/// Whether what is read after such an error may be of another log. None of them says which partition it is about.
fn concerns_the_log(code: Code) -> bool {
    matches!(
        code,
        Code::AutoOffsetReset
            | Code::AllBrokersDown
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopicId
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed
    )
}

fn settled(doing: &str, result: Outcome<KafkaResult<()>>) {
    let fault = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => fault_of(doing, &error),
        Err(fault) => fault,
    };
    tracing::warn!(error = %fault, "kafka client");
}

/// Assigns the partition at `offset`, unassigning it first where it is being read from elsewhere. What is being read is
/// the client's to say: an earlier start may have failed half-way.
fn restart(consumer: &StreamConsumer<Context>, tenure: &Tenure, offset: Offset) -> Outcome<KafkaResult<()>> {
    let list = list_of(&tenure.partition, raw(offset))?;
    let positioned = || {
        let index = i32::try_from(tenure.partition.index).unwrap_or(i32::MAX);
        if consumer.assignment()?.find_partition(&tenure.partition.topic, index).is_some() {
            consumer.incremental_unassign(&list)?;
        }
        tenure.clear();
        consumer.incremental_assign(&list)?;
        consumer.resume(&list)
    };
    Ok(positioned())
}

/// Leaves the group, once nobody else is using the client: a call to the broker that is still under way, and that is
/// bounded, would leave in our place and unseen.
#[expect(clippy::disallowed_methods, reason = "on a thread of its own")]
fn close(mut consumer: Arc<StreamConsumer<Context>>) {
    loop {
        match Arc::try_unwrap(consumer) {
            Ok(consumer) => return drop(consumer),
            Err(shared) => consumer = shared,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What became ready while the poller waited.
enum Woken<'a> {
    Change(Change),
    Command(Command),
    Message(KafkaResult<BorrowedMessage<'a>>),
    Deadline,
}

#[async_trait]
impl Intake for Source {
    async fn rebalance(&mut self) -> Outcome<Rebalance> {
        let consumer = self.consumer();
        let mut stream = consumer.stream();
        loop {
            if self.holdings.handed_over() {
                self.finish_handover(&consumer);
            }
            let deadline = self.holdings.deadline();
            let woken = tokio::select! {
                biased;
                change = self.changes.recv() => Woken::Change(change.expect("the client that reports is held")),
                command = self.commands.recv() => Woken::Command(command.expect("a sender is held to make handles of")),
                message = stream.next() => Woken::Message(message.expect("a stream of messages never ends")),
                () = until(deadline) => Woken::Deadline,
            };
            match woken {
                Woken::Change(change) => return Ok(self.changed(change, &consumer)),
                Woken::Command(command) => self.obey(command, &consumer),
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
        let Some(consumer) = self.part() else { return };
        let left = tokio::task::spawn_blocking(move || close(consumer)).await;
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
        if let (Some(consumer), Ok(runtime)) = (self.part(), Runtime::try_current()) {
            runtime.spawn_blocking(move || close(consumer));
        }
    }
}

#[cfg(test)]
mod tests;
