//! Stands between one simulated process and the Kafka topics that it reads. While the process is frozen, every call and
//! every answer is held back. When it resumes, it sends its requests under way before it hears what the group has
//! decided meanwhile. It hears late that a partition of the log `changes` was revoked, and a mutant (a pipeline with
//! one rule broken) reads by other rules.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tally_adapters::memory;
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Rebalance, Records, Revocation, Written};
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer, TopicReader, Transactions};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::{Chance, Standstill};
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::instance::Process;
use crate::simulation::rewrite::Rewriter;

/// How long, in milliseconds, it may take until a process hears that a partition of the log was revoked.
const UNHEARD: u64 = 800;

/// What stands between a process and a topic that it reads: a gate, and what a mutant changes. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct Interceptor {
    pub(crate) gate: Standstill,
    /// What a mutant commits instead of the finished offset.
    pub(crate) beyond: Option<Beyond>,
    pub(crate) rewriter: Option<Rewriter>,
}

/// A membership in a group, behind a gate.
pub(crate) struct ProcessIntake {
    pub(crate) inner: Box<dyn Intake>,
    pub(crate) interceptor: Interceptor,
    pub(crate) held: Option<Outcome<Rebalance>>,
    /// Draws the delay of revocations for a process that reads the log `changes`.
    pub(crate) late: Option<Chance>,
}

/// How far a process has read each partition, and what a mutant has stored as done. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beyond(Arc<Mutex<BTreeMap<u32, [Offset; 2]>>>);

impl Beyond {
    /// The offset to store as done, which is beyond `safe` if more was read.
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
impl Intake for ProcessIntake {
    async fn next(&mut self) -> Outcome<Rebalance> {
        loop {
            self.interceptor.gate.pass().await;
            if let Some(held) = self.held.take() {
                return held.map(|rebalance| self.behind(rebalance));
            }
            self.held = Some(self.inner.next().await);
        }
    }

    async fn leave(self: Box<Self>) {
        self.inner.leave().await;
    }
}

impl ProcessIntake {
    fn behind(&self, rebalance: Rebalance) -> Rebalance {
        let Rebalance::Assigned(partitions) = rebalance else { return rebalance };
        let behind = |inner| {
            let unheard = self.late.as_ref().map(|late| late.millis(0, UNHEARD));
            let (interceptor, revoked) = (self.interceptor.clone(), OnceLock::new());
            Arc::new(ProcessPartition { inner, interceptor, unheard, revoked }) as Arc<dyn OwnedPartition>
        };
        Rebalance::Assigned(partitions.into_iter().map(behind).collect())
    }
}

#[derive(Debug)]
struct ProcessPartition {
    inner: Arc<dyn OwnedPartition>,
    interceptor: Interceptor,
    unheard: Option<Duration>,
    /// When the process hears of the revocation.
    revoked: OnceLock<Instant>,
}

#[async_trait]
impl OwnedPartition for ProcessPartition {
    fn partition(&self) -> &Partition {
        self.inner.partition()
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.interceptor.gate.pass().await;
        self.inner.partitions().await
    }

    async fn log(&self) -> Outcome<Log> {
        self.interceptor.gate.pass().await;
        self.inner.log().await
    }

    async fn committed(&self) -> Outcome<Option<Offset>> {
        self.interceptor.gate.pass().await;
        self.inner.committed().await
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        self.interceptor.gate.pass().await;
        self.inner.start_at(offset).await?;
        self.interceptor.rewriter.iter().for_each(|rewriter| rewriter.begin(self.partition().index));
        Ok(())
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        self.interceptor.gate.pass().await;
        let records = self.inner.records().await?;
        let index = self.partition().index;
        if let (Some(beyond), Some(last)) = (&self.interceptor.beyond, records.last_offset()) {
            beyond.0.lock().entry(index).or_default()[0] = last.next();
        }
        let rewritten =
            self.interceptor.rewriter.as_ref().map(|rewriter| Arc::new(rewriter.rewritten(index, &records)));
        Ok(rewritten.unwrap_or(records))
    }

    async fn revoked(&self) -> Revocation {
        let over = self.inner.revoked().await;
        self.interceptor.gate.pass().await;
        if let Some(unheard) = self.unheard {
            let heard = *self.revoked.get_or_init(|| Instant::now() + unheard);
            tokio::time::sleep_until(heard).await;
        }
        over
    }

    fn finished(&self, offset: Offset) {
        let index = self.partition().index;
        self.inner.finished(self.interceptor.beyond.as_ref().map_or(offset, |beyond| beyond.committed(index, offset)));
    }
}

/// A producer behind a gate that loses some acknowledgements.
pub(crate) struct GatedProducer {
    pub(crate) process: Process,
    pub(crate) chance: Chance,
}

#[async_trait]
impl Producer for GatedProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.process.log.pass().await;
        let written = self.process.world.broker.send(record).await;
        if self.chance.happens(5) {
            self.process.world.coverage.fired("acknowledgement_lost");
            return Err(Fault::Transient("the acknowledgement was lost".to_owned()));
        }
        written
    }
}

/// Transactions behind a gate. One may end without an answer, carried out or not.
pub(crate) struct FaultyTransactions {
    pub(crate) inner: memory::log::Transactions,
    pub(crate) process: Process,
    pub(crate) chance: Chance,
}

#[async_trait]
impl Transactions for FaultyTransactions {
    async fn take_over(&self) -> Outcome<()> {
        self.process.log.pass().await;
        self.inner.take_over().await
    }

    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()> {
        self.process.log.pass().await;
        let drawn = self.chance.below(100);
        if drawn > 0 {
            self.inner.write(records).await?;
        }
        if drawn > 1 {
            return Ok(());
        }
        self.process.world.coverage.fired("transaction_unknown");
        Err(Fault::Transient("a transaction was not answered".to_owned()))
    }
}

/// A reader of the log behind a gate.
pub(crate) struct FaultyReader {
    pub(crate) inner: Arc<dyn TopicReader>,
    pub(crate) interceptor: Interceptor,
}

#[async_trait]
impl TopicReader for FaultyReader {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        self.interceptor.gate.pass().await;
        self.inner.logs().await
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        self.interceptor.gate.pass().await;
        let records = self.inner.read(partition, from, to).await?;
        Ok(match &self.interceptor.rewriter {
            Some(rewriter) => rewriter.rewritten(partition.index, &records),
            None => records,
        })
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        self.interceptor.gate.pass().await;
        self.inner.offset_at(partition, at).await
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        self.inner.bookmark(partition).await
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        self.inner.mark(partition, at).await
    }
}
