//! The log's twin as one process has it: behind a gate of its own, for a process that wakes up sends what it had under
//! way before it hears what the group decided without it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tally_adapters::memory::log::Broker;
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Rebalance, Records, Revocation, Written};
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer};
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Chance;

use super::chance::Draws;
use super::coverage::Coverage;
use super::gate::Gate;

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
        self.places().entry(partition).or_default()[0] = to;
    }

    /// What of a partition is stored as done, where that was read further than `safe`.
    pub(crate) fn stored(&self, partition: u32, safe: Offset) -> Offset {
        let mut places = self.places();
        let [read, stored] = places.entry(partition).or_default();
        *stored = safe.max(*read);
        *stored
    }

    fn committed(&self, partition: u32, safe: Offset) -> Offset {
        self.places().get(&partition).map_or(safe, |[_, stored]| safe.max(*stored))
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, [Offset; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
