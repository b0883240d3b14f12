//! A member of a Kafka consumer group, which the task in `membership.rs` runs: polls librdkafka, delivers records to
//! their partitions' queues, and carries out what the partitions' workers ask for.

pub(super) mod claim;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use rdkafka::consumer::{BaseConsumer, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{ClientConfig, Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Intake, OwnedPartition, Rebalance, Records, Revocation};
use tally_core::topic::Partition;
use tokio::runtime::Handle as Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use self::claim::Claim;
use super::args::Settings;
use super::context::{Change, Context, PATIENCE, unassign_held};
use super::convert::{concerns_the_log, explained, fault_of, list_of, push, settled};
use super::holdings::Holdings;
use super::owned::{Assignment, Command, Handle};
use super::reader;
use crate::dynamodb::Connection;

/// How many messages are taken before they are delivered and commands are served.
const BURST: usize = 1024;

/// How heavy the records of one partition get before they are delivered, so that a pause does not come late.
const RUN_WEIGHT: usize = 512 << 10;

/// How long workers may take to finish what they have under way when their partitions are revoked.
const HANDOVER: Duration = Duration::from_secs(10);

/// A member of a group that reads one topic.
pub struct Source {
    /// The topic, the group, and the claim of the deployment that reads, if that is known.
    claim: Claim,
    /// Whether it has begun to join the group.
    entered: bool,
    /// `None` once it has left.
    consumer: Option<Arc<StreamConsumer<Context>>>,
    /// The client that is asked about partitions.
    lookups: Arc<BaseConsumer<Context>>,
    changes: UnboundedReceiver<Change>,
    commands: UnboundedReceiver<Command>,
    asked: UnboundedSender<Command>,
    holdings: Holdings,
    /// When to name the brokers again to the client, which cannot reach any; `None` while it can.
    without_brokers: Option<Instant>,
}

impl Source {
    /// Joins `group` to read `topic`; connects when it is first polled.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn new(settings: &Settings, group: &str, topic: &str) -> Outcome<Self> {
        Self::configured(settings, &config(settings, group), topic)
    }

    /// Makes it a member of `deployment`, if that is known. It joins no group in which another deployment has read the
    /// topic: each would miss what the other reads. The offsets that it commits name the deployment.
    #[must_use]
    pub fn of_deployment(mut self, deployment: Option<&str>) -> Self {
        self.claim.deployment = deployment.map(Into::into);
        self
    }

    fn configured(settings: &Settings, config: &ClientConfig, topic: &str) -> Outcome<Self> {
        let group = config.get("group.id").unwrap_or_default();
        // First: dropping a consumer blocks, so nothing may fail once there is one.
        let lookups = Arc::new(reader::client_for_lookups(settings, group)?);
        let ((changed, changes), (asked, commands)) = (unbounded_channel(), unbounded_channel());
        let consumer = config.create_with_context(Context::new(settings).reporting(changed));
        let consumer = consumer.map_err(|error| fault_of("creating a consumer", &error))?;
        Ok(Self {
            claim: Claim { topic: topic.into(), group: group.into(), ..Claim::default() },
            entered: false,
            consumer: Some(Arc::new(consumer)),
            lookups,
            changes,
            commands,
            asked,
            holdings: Holdings::default(),
            without_brokers: None,
        })
    }

    /// Joins the group, unless it is another deployment's. Cancel safe: it joins as its last step.
    async fn enter(&mut self, consumer: &Arc<StreamConsumer<Context>>) -> Outcome<()> {
        if self.claim.deployment.is_some() {
            // The client logs in only while it is polled.
            let mut stream = consumer.stream();
            tokio::select! {
                checked = self.claim.ask(consumer) => checked?,
                Some(Err(error)) = stream.next() => return self.failed(&error, &consumer.context().take_reason()),
            }
        }
        let topic = &self.claim.topic;
        let subscribed = consumer.subscribe(&[topic]);
        subscribed.map_err(|error| fault_of(&format!("subscribing to `{topic}`"), &error))?;
        self.entered = true;
        Ok(())
    }

    fn consumer(&self) -> Arc<StreamConsumer<Context>> {
        self.consumer.clone().expect("the group is left by consuming the source")
    }

    fn name(&self, index: i32) -> Partition {
        Partition { topic: self.claim.topic.clone(), index: u32::try_from(index).unwrap_or(0) }
    }

    fn changed(&mut self, change: Change, consumer: &Arc<StreamConsumer<Context>>) -> Rebalance {
        match change {
            Change::Assigned(partitions) => {
                self.without_brokers = None;
                self.claim.assigned();
                let handles = partitions.into_iter().map(|index| {
                    let assignment = Assignment::new(self.name(index));
                    self.holdings.begin(Arc::clone(&assignment));
                    let handle = Handle {
                        assignment,
                        commands: self.asked.clone(),
                        consumer: Arc::downgrade(consumer),
                        lookups: Arc::clone(&self.lookups),
                        deployment: self.claim.deployment.clone(),
                    };
                    Arc::new(handle) as Arc<dyn OwnedPartition>
                });
                Rebalance::Assigned(handles.collect())
            }
            Change::Lost(partitions) => {
                self.holdings.lose(&partitions);
                self.ended(Revocation::Lost, &partitions)
            }
            Change::Revoked(partitions) => {
                self.holdings.ask_back(&partitions, Instant::now() + HANDOVER);
                self.ended(Revocation::Revoked, &partitions)
            }
        }
    }

    fn ended(&self, over: Revocation, partitions: &[i32]) -> Rebalance {
        Rebalance::Revoked(over, partitions.iter().map(|index| self.name(*index)).collect())
    }

    fn obey(&mut self, command: Command, consumer: &StreamConsumer<Context>) {
        match command {
            Command::Start(assignment, offset, done) => {
                let started = match self.holdings.held_by(&assignment) {
                    None => Err(Fault::Transient(format!("{} is no longer assigned here", assignment.partition))),
                    Some(held) => {
                        held.read = Records::default();
                        let started = assignment.restart(consumer, offset);
                        held.started = started.is_ok();
                        started
                    }
                };
                // A worker that does not wait any more will start again.
                let _ = done.send(started);
            }
            Command::Resume(assignment) => {
                if self.holdings.held_by(&assignment).is_some_and(|held| held.started) {
                    let resumed = list_of(&assignment.partition, At::Invalid).map(|list| consumer.resume(&list));
                    settled("resuming a partition", resumed);
                }
            }
            Command::Release(assignment) => {
                if let Some(index) = self.holdings.release(&assignment) {
                    settled("releasing a partition", Ok(self.stop_reading(&[index], consumer)));
                }
            }
        }
    }

    /// Takes `first` and what else was fetched already, and delivers all to the partitions.
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
        self.deliver(consumer);
        taken
    }

    fn deliver(&mut self, consumer: &StreamConsumer<Context>) {
        for held in self.holdings.all_reading().filter(|held| !held.read.is_empty()) {
            if held.assignment.deliver(std::mem::take(&mut held.read)) {
                let paused = list_of(&held.assignment.partition, At::Invalid).map(|list| consumer.pause(&list));
                settled("pausing a partition", paused);
            }
        }
    }

    fn failed(&mut self, error: &KafkaError, reason: &str) -> Outcome<()> {
        let fault = explained(&format!("reading `{}`", self.claim.topic), error, reason);
        let Some(code) = error.rdkafka_error_code() else { return Err(fault) };
        if concerns_the_log(code) {
            self.holdings.all_reading().for_each(|held| held.assignment.doubt(fault.clone()));
        }
        if code == Code::AllBrokersDown {
            self.without_brokers.get_or_insert_with(|| Instant::now() + PATIENCE);
        }
        if code == Code::AutoOffsetReset { Ok(()) } else { Err(fault) }
    }

    /// Answers a revocation: stops reading what was revoked.
    fn finish_handover(&mut self, consumer: &StreamConsumer<Context>) {
        if let Some(partitions) = self.holdings.finish_handover() {
            settled("handing partitions over", Ok(self.stop_reading(&partitions, consumer)));
        }
    }

    /// Stops reading those of `partitions` that were started.
    fn stop_reading(&self, partitions: &[i32], consumer: &StreamConsumer<Context>) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        partitions.iter().for_each(|index| _ = list.add_partition(&self.claim.topic, *index));
        unassign_held(consumer, &list)
    }

    /// Takes the client out, to be dropped. Ends every assignment and answers every revocation, since dropping it would
    /// wait for the answer for ever.
    fn part(&mut self) -> Option<Arc<StreamConsumer<Context>>> {
        let consumer = self.consumer.take()?;
        // From here on the rebalance hook answers by itself.
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

/// Returns how to join `group`, which reads `topic`. Where there are `tables`, the member is one of their deployment: the
/// tables have been checked by the time it joins, so the connection knows the deployment.
pub fn joining(
    settings: &Settings,
    group: &str,
    topic: &str,
    tables: Option<&Connection>,
) -> impl Fn() -> Outcome<Box<dyn Intake>> + Send + Sync + use<> {
    let (settings, tables) = (settings.clone(), tables.cloned());
    let (group, topic) = (group.to_owned(), topic.to_owned());
    move || {
        let source = Source::new(&settings, &group, &topic)?;
        Ok(Box::new(source.of_deployment(tables.as_ref().and_then(Connection::deployment))))
    }
}

/// Configures the client of a member.
fn config(settings: &Settings, group: &str) -> ClientConfig {
    let mut config = settings.client.clone();
    config
        .set("group.id", group)
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        // As short as brokers allow by default: only then does another member read on where one died. A slow member
        // that is taken for dead costs a rebalance, and no row.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "1000")
        // A broker answers as soon as it has records. The one inside this process waits this long first.
        .set("fetch.wait.max.ms", "50")
        // Beside the bounded queue of a partition: librdkafka fetches more of it while it holds less than the first of
        // these, and the second is how much a fetch asks for, compressed as it is in the log.
        .set("queued.max.messages.kbytes", "2048")
        .set("fetch.message.max.bytes", "131072")
        // Partitions that are added are read within this, and not after minutes.
        .set("topic.metadata.refresh.interval.ms", "10000")
        // By default librdkafka looks again a second later, and a worker would have no records meanwhile.
        .set("fetch.queue.backoff.ms", "10");
    config
}

/// Leaves the group once no other call uses the client: a call under way would drop the client last, on another thread.
/// Such calls are bounded.
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

#[async_trait]
impl Intake for Source {
    async fn next(&mut self) -> Outcome<Rebalance> {
        let consumer = self.consumer();
        if !self.entered {
            self.enter(&consumer).await?;
        }
        let mut stream = consumer.stream();
        loop {
            if self.holdings.handed_over() {
                self.finish_handover(&consumer);
            }
            let deadline = self.holdings.deadline();
            tokio::select! {
                biased;
                change = self.changes.recv() => {
                    return Ok(self.changed(change.expect("the client that reports is held"), &consumer));
                }
                command = self.commands.recv() => {
                    self.obey(command.expect("a sender is held to make handles of"), &consumer);
                }
                first = stream.next() => {
                    let more = std::iter::from_fn(|| stream.next().now_or_never().flatten()).take(BURST);
                    self.without_brokers = self.without_brokers.filter(|_| first.as_ref().is_some_and(Result::is_err));
                    self.take(first.expect("a stream of messages never ends"), more, &consumer)?;
                    tokio::task::yield_now().await;
                }
                why = self.claim.lost(&consumer) => return Ok(Rebalance::Foreign(why)),
                () = until(deadline) => {}
                () = until(self.without_brokers) => {
                    consumer.context().brokers.name_again(consumer.client());
                    self.without_brokers = Some(Instant::now() + PATIENCE);
                }
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
