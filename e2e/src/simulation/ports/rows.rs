//! Rows in a mutant's hands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tally_core::batch::Change;
use tally_core::fence::{Advance, Commit, Fence, Fences, Partition, Reached};
use tally_core::ids::CounterId;
use tally_core::ports::{FencedRows, Outcome};

/// How long it is until a batch is sent again.
const AGAIN: Duration = Duration::from_millis(100);

/// Rows that move under whatever fence stands: an unknown outcome is taken for a failure.
pub(crate) struct MutatedRows(pub(crate) Arc<dyn FencedRows>);

#[async_trait]
impl FencedRows for MutatedRows {
    async fn fence(&self, partition: &Partition) -> Outcome<Option<Fence>> {
        self.0.fence(partition).await
    }

    async fn lanes(&self, partition: &Partition) -> Outcome<Option<Fences>> {
        self.0.lanes(partition).await
    }

    async fn first_seen(&self, topic: &str, partitions: u32) -> Outcome<u32> {
        self.0.first_seen(topic, partitions).await
    }

    async fn create_fence(&self, partition: &Partition, fence: &Fence) -> Outcome<()> {
        self.0.create_fence(partition, fence).await
    }

    async fn cells(&self, partition: &Partition, counters: &[CounterId]) -> Outcome<Vec<Option<Reached>>> {
        self.0.cells(partition, counters).await
    }

    async fn commit(&self, partition: &Partition, advance: &Advance, changes: &[Change<'_>]) -> Commit {
        let mut advance = advance.clone();
        loop {
            let outcome = self.0.commit(partition, &advance, changes).await;
            if !matches!(outcome, Commit::Unknown(_)) {
                return outcome;
            }
            tokio::time::sleep(AGAIN).await;
            if let Ok(Some(fences)) = self.0.lanes(partition).await
                && let Some(fence) = fences.get(advance.from.lane)
            {
                advance.from = fence.clone();
            }
        }
    }

    async fn fences(&self, topic: &str) -> Outcome<Vec<(Partition, Fence)>> {
        self.0.fences(topic).await
    }

    async fn replace_fences(&self, partition: &Partition, seen: &Fences, to: &Fences) -> Outcome<bool> {
        self.0.replace_fences(partition, seen, to).await
    }
}
