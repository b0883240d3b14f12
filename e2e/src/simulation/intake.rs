//! How a process reads its topics. It may stand still: then every call that it makes, and every answer that it waits for, is held.
//! One that wakes up sends what it had under way before it hears what the group decided without it. Of the log `changes` it hears
//! late that a partition was taken from it; and a mutant reads by other rules.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_adapters::memory::log::Broker;
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Rebalance, Records, Revocation, Written};
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Chance;
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::faults::Coverage;
use crate::simulation::rewrite::Rewriter;

/// A gate; clones are the same one. Those that wait are let through in the order of waiting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    shut: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    /// Lets nothing through any more.
    pub(crate) fn shut(&self) {
        self.0.shut.store(true, Ordering::Relaxed);
    }

    /// Lets everything through.
    pub(crate) fn open(&self) {
        self.0.shut.store(false, Ordering::Relaxed);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Completes while the gate is open.
    pub(crate) async fn pass(&self) {
        poll_fn(|context| {
            if !self.0.shut.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.0.waiting.lock().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A membership behind a gate.
pub(crate) struct GatedIntake {
    pub(crate) inner: Box<dyn Intake>,
    pub(crate) gate: Gate,
    pub(crate) held: Option<Outcome<Rebalance>>,
    /// What a mutant commits in the place of what is finished.
    pub(crate) beyond: Option<Beyond>,
}

/// How far a process has read each partition, and what of that a mutant has stored as done; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beyond(Arc<Mutex<BTreeMap<u32, [Offset; 2]>>>);

impl Beyond {
    fn read(&self, partition: u32, to: Offset) {
        self.0.lock().entry(partition).or_default()[0] = to;
    }

    /// What of a partition is stored as done, where that was read further than `safe`.
    pub(crate) fn stored(&self, partition: u32, safe: Offset) -> Offset {
        let mut places = self.0.lock();
        let [read, stored] = places.entry(partition).or_default();
        *stored = safe.max(*read);
        *stored
    }

    fn committed(&self, partition: u32, safe: Offset) -> Offset {
        self.0.lock().get(&partition).map_or(safe, |[_, stored]| safe.max(*stored))
    }
}

#[async_trait]
impl Intake for GatedIntake {
    async fn next(&mut self) -> Outcome<Rebalance> {
        loop {
            self.gate.pass().await;
            if let Some(held) = self.held.take() {
                return held.map(|rebalance| gated(rebalance, &self.gate, self.beyond.as_ref()));
            }
            self.held = Some(self.inner.next().await);
        }
    }

    async fn leave(self: Box<Self>) {
        self.inner.leave().await;
    }
}

fn gated(rebalance: Rebalance, gate: &Gate, beyond: Option<&Beyond>) -> Rebalance {
    match rebalance {
        Rebalance::Assigned(partitions) => {
            let behind = |inner| {
                let (gate, beyond) = (gate.clone(), beyond.cloned());
                Arc::new(GatedPartition { inner, gate, beyond }) as Arc<dyn OwnedPartition>
            };
            Rebalance::Assigned(partitions.into_iter().map(behind).collect())
        }
        ended @ (Rebalance::Revoked(..) | Rebalance::Foreign(_)) => ended,
    }
}

#[derive(Debug)]
struct GatedPartition {
    inner: Arc<dyn OwnedPartition>,
    gate: Gate,
    beyond: Option<Beyond>,
}

#[async_trait]
impl OwnedPartition for GatedPartition {
    fn partition(&self) -> &Partition {
        self.inner.partition()
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.gate.pass().await;
        self.inner.partitions().await
    }

    async fn log(&self) -> Outcome<Log> {
        self.gate.pass().await;
        self.inner.log().await
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        self.gate.pass().await;
        self.inner.committed().await
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        self.gate.pass().await;
        self.inner.start_at(offset).await
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        self.gate.pass().await;
        let records = self.inner.records().await?;
        if let (Some(beyond), Some(last)) = (&self.beyond, records.last_offset()) {
            beyond.read(self.partition().index, last.next());
        }
        Ok(records)
    }

    async fn revoked(&self) -> Revocation {
        let over = self.inner.revoked().await;
        self.gate.pass().await;
        over
    }

    fn finished(&self, offset: Offset) {
        let index = self.partition().index;
        self.inner.finished(self.beyond.as_ref().map_or(offset, |beyond| beyond.committed(index, offset)));
    }
}

/// A producer behind a gate that loses some acknowledgements.
pub(crate) struct GatedProducer {
    pub(crate) broker: Broker,
    pub(crate) gate: Gate,
    pub(crate) chance: Chance,
    pub(crate) lossy: bool,
    pub(crate) coverage: Coverage,
}

#[async_trait]
impl Producer for GatedProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.gate.pass().await;
        let written = self.broker.send(record).await;
        if self.lossy && self.chance.happens(5) {
            self.coverage.fired("acknowledgement_lost");
            return Err(Fault::Transient("the acknowledgement was lost".to_owned()));
        }
        written
    }
}

/// How long it may be until a process hears that a partition was taken from it, in milliseconds.
const UNHEARD: u64 = 800;

/// A membership of a group that reads the log.
pub(crate) struct FaultyIntake {
    pub(crate) inner: Box<dyn Intake>,
    pub(crate) chance: Chance,
    pub(crate) rewriter: Option<Rewriter>,
}

#[async_trait]
impl Intake for FaultyIntake {
    async fn next(&mut self) -> Outcome<Rebalance> {
        Ok(match self.inner.next().await? {
            Rebalance::Assigned(partitions) => {
                let read = |inner| Arc::new(self.log(inner)) as Arc<dyn OwnedPartition>;
                Rebalance::Assigned(partitions.into_iter().map(read).collect())
            }
            other => other,
        })
    }

    async fn leave(self: Box<Self>) {
        self.inner.leave().await;
    }
}

impl FaultyIntake {
    fn log(&self, inner: Arc<dyn OwnedPartition>) -> FaultyPartition {
        let (unheard, rewriter) = (self.chance.millis(0, UNHEARD), self.rewriter.clone());
        FaultyPartition { inner, rewriter, unheard, revoked: OnceLock::new() }
    }
}

/// One partition of the log.
#[derive(Debug)]
struct FaultyPartition {
    inner: Arc<dyn OwnedPartition>,
    rewriter: Option<Rewriter>,
    unheard: Duration,
    /// When the process hears that the partition is taken from it.
    revoked: OnceLock<Instant>,
}

#[async_trait]
impl OwnedPartition for FaultyPartition {
    fn partition(&self) -> &Partition {
        self.inner.partition()
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.inner.partitions().await
    }

    async fn log(&self) -> Outcome<Log> {
        self.inner.log().await
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        self.inner.committed().await
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        self.inner.start_at(offset).await?;
        self.rewriter.iter().for_each(|rewriter| rewriter.begin(self.partition().index));
        Ok(())
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        let records = self.inner.records().await?;
        let Some(rewriter) = &self.rewriter else { return Ok(records) };
        Ok(Arc::new(rewriter.rewritten(self.partition().index, &records)))
    }

    async fn revoked(&self) -> Revocation {
        let over = self.inner.revoked().await;
        let heard = *self.revoked.get_or_init(|| Instant::now() + self.unheard);
        tokio::time::sleep_until(heard).await;
        over
    }

    fn finished(&self, offset: Offset) {
        self.inner.finished(offset);
    }
}

/// A reader of the log behind a gate.
pub(crate) struct FaultyReader {
    pub(crate) inner: Arc<dyn TopicReader>,
    pub(crate) gate: Gate,
    pub(crate) rewriter: Option<Rewriter>,
}

#[async_trait]
impl TopicReader for FaultyReader {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        self.gate.pass().await;
        self.inner.logs().await
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        self.gate.pass().await;
        let records = self.inner.read(partition, from, to).await?;
        Ok(match &self.rewriter {
            Some(rewriter) => rewriter.rewritten(partition.index, &records),
            None => records,
        })
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        self.gate.pass().await;
        self.inner.offset_at(partition, at).await
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        self.inner.bookmark(partition).await
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        self.inner.mark(partition, at).await
    }
}
