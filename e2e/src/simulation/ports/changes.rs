//! The ledger of changes in a mutant's hands: a streamer that does not look at it, one that is ahead of what Kafka has
//! acknowledged, and a reader that forgets what is missing.

use async_trait::async_trait;
use tally_core::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use tally_core::ledger::Lapse;
use tally_core::lineage::Checkpoint;
use tally_core::ports::{ChangesLedger, ChangesTerms, Outcome};
use tally_core::time::UnixMillis;

use super::super::mutant::Mutant;
use super::checkpoints::MutatedCheckpoints;

#[async_trait]
impl ChangesLedger for MutatedCheckpoints {
    async fn changes(&self) -> Outcome<Option<ChangesTerms>> {
        if self.mutant == Mutant::FedByOthers {
            return Ok(None);
        }
        self.inner.changes().await
    }

    async fn begin_changes(&self, partitions: u32, from: Ordinal) -> Outcome<ChangesTerms> {
        self.inner.begin_changes(partitions, from).await
    }

    async fn changes_complete(&self, at: UnixMillis) -> Outcome<()> {
        self.inner.changes_complete(at).await
    }

    async fn adopt(&self, label: &StreamLabel, checkpoint: &Checkpoint) -> Outcome<()> {
        self.inner.adopt(label, checkpoint).await
    }

    async fn fed(&self, label: &StreamLabel, shard: &StreamShardId, to: Sequence, at: UnixMillis) -> Outcome<()> {
        self.under_way.landed().await;
        self.inner.fed(label, shard, to, at).await
    }

    async fn fed_at(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.under_way.landed().await;
        self.inner.fed_at(label, shard, at).await
    }

    async fn fed_end(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.under_way.landed().await;
        self.inner.fed_end(label, shard, at).await
    }

    async fn put_lapse(&self, lapse: Lapse) -> Outcome<()> {
        self.inner.put_lapse(lapse).await
    }

    async fn lapses(&self) -> Outcome<Vec<Lapse>> {
        if self.mutant == Mutant::LossForgotten {
            return Ok(Vec::new());
        }
        self.inner.lapses().await
    }

    async fn drop_lapse(&self, lapse: Lapse) -> Outcome<()> {
        self.inner.drop_lapse(lapse).await
    }
}
