//! How a process reads the log `changes`: as a member of a group that hears late that a partition was taken from it, or
//! outside of any group; and in a mutant's hands by other rules.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tally_core::ports::log::{Rebalance, Records, Revocation};
use tally_core::ports::{Intake, Outcome, OwnedPartition, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Chance;
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::gate::Gate;
use super::rewrite::Rewriter;

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
