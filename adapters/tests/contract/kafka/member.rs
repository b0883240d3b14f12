//! A member of a Kafka consumer group for tests, which read its partitions and give them back.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, Outcome, OwnedPartition};
use tally_core::topic::Offset;

use super::engine::{Engine, PARTITIONS, PATIENCE};

/// A member and its partitions. It is only polled while a test waits for something.
pub(crate) struct Member {
    pub(crate) intake: Box<dyn Intake>,
    pub(crate) owned: BTreeMap<u32, Arc<dyn OwnedPartition>>,
}

impl Member {
    pub(crate) fn new(engine: &dyn Engine) -> Self {
        Self { intake: engine.join(), owned: BTreeMap::new() }
    }

    /// A member that owns every partition.
    pub(crate) async fn alone(engine: &dyn Engine) -> Self {
        let mut member = Self::new(engine);
        member.owns(PARTITIONS as usize).await;
        member
    }

    pub(crate) async fn step(&mut self) {
        match self.intake.next().await {
            Ok(Rebalance::Assigned(partitions)) => {
                self.owned.extend(partitions.into_iter().map(|owned| (owned.partition().index, owned)));
            }
            Ok(Rebalance::Revoked(_, partitions)) => {
                self.owned.retain(|index, _| !partitions.iter().any(|partition| partition.index == *index));
            }
            Ok(Rebalance::Foreign(why)) => panic!("{why}"),
            Err(fault) => assert!(fault.is_retryable(), "{fault}"),
        }
    }

    /// Waits until it owns this many partitions.
    pub(crate) async fn owns(&mut self, count: usize) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.owned.len() != count {
                self.step().await;
            }
        });
        waited.await.expect("a rebalance in time");
    }

    /// Runs `work`, and polls the membership meanwhile.
    pub(crate) async fn polled<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = self.step() => {}
                () = tokio::time::sleep(PATIENCE) => panic!("not in time"),
            }
        }
    }

    /// What the group has committed of a partition.
    pub(crate) async fn committed(&mut self, index: u32) -> Outcome<Option<Offset>> {
        let owned = Arc::clone(&self.owned[&index]);
        self.polled(async move { owned.committed().await }).await
    }

    /// Gives every partition back and leaves.
    pub(crate) async fn leave(mut self) {
        self.owned.clear();
        self.intake.leave().await;
    }

    /// The offsets of the next `count` records of a partition.
    pub(crate) async fn read(&mut self, index: u32, count: usize) -> Vec<u64> {
        let owned = Arc::clone(&self.owned[&index]);
        self.polled(async move {
            let mut offsets = Vec::new();
            while offsets.len() < count {
                let records = owned.records().await.unwrap();
                offsets.extend(records.iter().map(|record| record.offset.0));
            }
            offsets
        })
        .await
    }

    pub(crate) async fn start(&mut self, index: u32, at: u64) {
        let owned = Arc::clone(&self.owned[&index]);
        self.polled(async move { owned.start_at(Offset(at)).await }).await.unwrap();
    }
}
