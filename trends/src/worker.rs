//! Makes the lists of what is trending for one Kafka partition of `changes`: waits for the next event, passes it to the
//! state in `partition.rs`, and does what the state asks for: opens the log, or writes lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use tally_adapters::dynamodb::changes::Changes;
use tally_core::changes::{BadMessage, DeploymentId};
use tally_core::fault::Fault;
use tally_core::ports::log::{DEPLOYMENT, Outgoing, Records};
use tally_core::ports::{Outcome, OwnedPartition, Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_service::metrics::OneMore;
use tally_service::{Host, Patience, Stop, Task};

use crate::Partition;
use crate::args::Rules;
use crate::metrics::{self, Held};
use crate::partition::{Begun, Looked, Note, Publication, Setup};
use crate::wire::Writer;

/// The fault while no change-streamer has created the log.
pub(crate) const NOT_SET_UP: &str = "the log of changes is not set up yet";

/// How many boards of one partition are sent concurrently.
const AT_ONCE: usize = 64;

/// The pause before another look.
const AGAIN: Duration = Duration::from_secs(1);

/// The number of moments after which an offset is committed to Kafka, for tools that show lag.
const TELL_KAFKA: u64 = 30;

/// The state that all partitions share.
pub(crate) struct Shared {
    pub(crate) host: Host,
    pub(crate) rules: Rules,
    pub(crate) boards_topic: String,
    pub(crate) changes: Arc<dyn TopicReader>,
    pub(crate) producer: Arc<dyn Producer>,
    /// The deployment that the log belongs to.
    pub(crate) deployment: DeploymentId,
    /// The name of the deployment that boards carry, where the store says it.
    pub(crate) name: Option<String>,
    /// What is stored about the log.
    pub(crate) store: Arc<Changes>,
    /// The number of partitions of the log.
    pub(crate) partitions: u32,
    /// The number of partitions of the topic of boards.
    pub(crate) boards: u32,
    pub(crate) patience: Patience,
    /// The number of assigned partitions, which share the limit of keys.
    pub(crate) held: AtomicUsize,
}

/// Runs one partition from its assignment to its revocation.
pub(crate) struct Worker {
    pub(crate) log: Arc<dyn OwnedPartition>,
    pub(crate) shared: Arc<Shared>,
}

/// A call under way.
type Call<T> = BoxFuture<'static, anyhow::Result<T>>;

struct Runner {
    partition: Partition,
    log: Arc<dyn OwnedPartition>,
    shared: Arc<Shared>,
    /// Finds where to read, and opens the log there.
    beginning: Option<Call<Begun>>,
    publishing: Option<Call<()>>,
    state: OneMore,
    keys: Held,
}

/// Returns the name of the readiness condition of a partition of the log of changes.
fn condition(log: &Arc<dyn OwnedPartition>) -> String {
    format!("changes/{}", log.partition().index)
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.host.readiness().forget(&condition(&self.log));
        self.shared.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Runner {
    fn new(Worker { log, shared }: Worker) -> Self {
        let setup = Setup {
            deployment: shared.deployment.clone(),
            partition: log.partition().index,
            of: shared.partitions,
            writer: Writer(format!("{:016x}", shared.host.chance().token()).into()),
            rules: shared.rules.clone(),
        };
        shared.held.fetch_add(1, Ordering::Relaxed);
        let (beginning, publishing, state) = (None, None, metrics::PARTITIONS.one_more(&["reading"]));
        Self { partition: Partition::new(setup), log, shared, beginning, publishing, state, keys: Held::default() }
    }

    /// Finds where to read and opens the log there, after a pause if that was done `again`.
    fn begin(&mut self, mut again: bool) {
        let (log, shared, here) = (Arc::clone(&self.log), Arc::clone(&self.shared), self.partition.here());
        self.beginning = Some(Box::pin(async move {
            let (patience, partition) = (&shared.patience, log.partition());
            loop {
                if std::mem::replace(&mut again, true) {
                    shared.host.clock().sleep(AGAIN).await;
                }
                let looked = patience.answer("look at the log", || shared.look(&*log)).await;
                let find = async |at| {
                    let found = patience.answer("find a time", || shared.changes.offset_at(partition, at)).await;
                    found.context("cannot search the log by time")
                };
                let looked = looked.context("cannot look at the log")?;
                let Some(begun) = looked.begin(here.clone(), &shared.rules.windows, find).await? else { continue };
                let opened = patience.answer("open the log", || log.start_at(begun.at)).await;
                opened.context("cannot open the log")?;
                tracing::info!(partition = partition.index, from = %begun.at, "replaying");
                return Ok(begun);
            }
        }));
    }

    fn read(&mut self, records: Outcome<Arc<Records>>) {
        match records {
            Ok(records) => {
                if let Err(bad) = self.partition.read(&records) {
                    self.halt(&bad);
                }
            }
            Err(fault) => {
                tracing::warn!(partition = self.log.partition().index, error = %fault, "reading the log again from the start of the windows");
                self.partition.pause();
                self.begin(true);
            }
        }
    }

    /// Begins what follows from what has come.
    fn go_on(&mut self) {
        let held = self.shared.held.load(Ordering::Relaxed).max(1);
        self.partition.allow(self.shared.rules.keys / held);
        if let Some(publication) = self.partition.publication() {
            self.publishing = Some(self.publish(publication));
        }
        self.partition.notes().into_iter().for_each(|note| self.tell(note));
        self.keys.set(self.partition.keys());
    }

    fn publish(&self, publication: Publication) -> Call<()> {
        let (log, shared) = (Arc::clone(&self.log), Arc::clone(&self.shared));
        let position = self.partition.position();
        Box::pin(async move {
            let Publication { boards, gone, tick } = publication;
            let count = boards.len();
            let written = boards.iter().map(|board| (board.key(), Some(board.value())));
            let messages: Vec<_> = written.chain(gone.into_iter().map(|key| (key, None))).collect();
            // A partition of the log always goes to the same partition of boards, so that its tick comes after its
            // boards.
            let to = tick.partition % shared.boards;
            let sends = stream::iter(messages).map(|(key, value)| shared.send(to, key, value));
            sends.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            shared.send(to, tick.key(), Some(tick.value())).await?;
            metrics::written(tick.partition, count, shared.host.clock().now().since(UnixMillis(tick.moment * 1000)));
            if tick.moment.is_multiple_of(TELL_KAFKA) {
                log.finished(position);
            }
            Ok(())
        })
    }

    fn halt(&mut self, bad: &BadMessage) {
        let (partition, position) = (self.log.partition().index, self.partition.position());
        tracing::error!(partition, offset = %position, alarm = ?bad, "the partition is halted");
        let name = metrics::halted(bad);
        let why = format!(
            "{} is halted at offset {position}, at a message that cannot be read: {name}",
            self.log.partition()
        );
        self.shared.host.readiness().not_ready(&condition(&self.log), why);
        self.state = metrics::PARTITIONS.one_more(&["halted"]);
    }

    fn tell(&self, note: Note) {
        let partition = self.log.partition().index;
        match note {
            Note::Read { taken, copies } => {
                metrics::CHANGES.counter(&["counted"]).increment(taken as u64);
                metrics::CHANGES.counter(&["copy"]).increment(copies as u64);
            }
            Note::Late => {
                metrics::LATE.counter(&[]).increment(1);
                tracing::warn!(
                    partition,
                    "a change came after its moment was published: lists are inexact for one window"
                );
            }
            Note::Loss => {
                metrics::LOSSES.counter(&[]).increment(1);
                tracing::warn!(partition, "changes were lost: lists are inexact for one window");
            }
            Note::Anew => metrics::REPLAYS.counter(&[]).increment(1),
            Note::Shed(keys) => metrics::SHED.counter(&[]).increment(keys),
        }
    }
}

impl Shared {
    /// Returns the log of a partition, and what is stored of it. The stored position is read first, so that it is never
    /// beyond the end of the log.
    async fn look(&self, log: &dyn OwnedPartition) -> Outcome<Looked> {
        let config = self.store.config().await?.ok_or_else(|| Fault::Transient(NOT_SET_UP.to_owned()))?;
        let position = self.store.position(log.partition().index).await?;
        let log = log.log().await?;
        if log.topic != config.topic {
            return Err(Fault::Transient("no change-streamer uses the new topic of changes yet".to_owned()));
        }
        Ok(Looked { log, generation: config.generation, position })
    }

    /// Writes one message. Safe to repeat: a second copy changes nothing for readers.
    async fn send(&self, partition: u32, key: String, value: Option<Vec<u8>>) -> anyhow::Result<()> {
        let headers = self.name.as_deref().map(|name| (DEPLOYMENT, Some(name.as_bytes())));
        let record = || Outgoing {
            topic: &self.boards_topic,
            partition: Some(partition),
            key: Some(key.as_bytes()),
            value: value.as_deref(),
            headers: headers.as_slice(),
        };
        let send = || self.producer.send_at(record(), self.patience.clock().now());
        let sent = self.patience.answer("write a board", send).await;
        sent.map(|_| ()).context("cannot write a board")
    }
}

/// Waits for the answer to a call, or forever if there is no call.
async fn answer<T>(call: &mut Option<Call<T>>) -> anyhow::Result<T> {
    let Some(under_way) = call else { return std::future::pending().await };
    let answered = under_way.await;
    *call = None;
    answered
}

impl Task for Worker {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut runner = Runner::new(self);
        runner.begin(false);
        loop {
            // When the partition is revoked or the process stops, there is nothing to store.
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                _ = runner.log.revoked() => return Ok(()),
                begun = answer(&mut runner.beginning) => runner.partition.begin(begun?),
                published = answer(&mut runner.publishing) => {
                    published?;
                    runner.partition.acknowledged();
                }
                records = runner.log.records(), if runner.partition.reads() => runner.read(records),
            }
            runner.go_on();
        }
    }
}
