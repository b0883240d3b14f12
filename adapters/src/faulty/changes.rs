//! The ledger of changes, made to fail.

use async_trait::async_trait;
use tally_core::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use tally_core::ledger::Lapse;
use tally_core::lineage::Checkpoint;
use tally_core::ports::{ChangesLedger, ChangesTerms, Outcome};
use tally_core::time::UnixMillis;

use super::Faulty;

#[async_trait]
impl<P: ChangesLedger> ChangesLedger for Faulty<P> {
    async fn changes(&self) -> Outcome<Option<ChangesTerms>> {
        self.call("changes", self.port.changes()).await
    }

    async fn begin_changes(&self, partitions: u32, from: Ordinal) -> Outcome<ChangesTerms> {
        self.call("begin_changes", self.port.begin_changes(partitions, from)).await
    }

    async fn changes_complete(&self, at: UnixMillis) -> Outcome<()> {
        self.call("changes_complete", self.port.changes_complete(at)).await
    }

    async fn adopt(&self, label: &StreamLabel, checkpoint: &Checkpoint) -> Outcome<()> {
        self.call("adopt", self.port.adopt(label, checkpoint)).await
    }

    async fn fed(&self, label: &StreamLabel, shard: &StreamShardId, to: Sequence, at: UnixMillis) -> Outcome<()> {
        self.call("fed", self.port.fed(label, shard, to, at)).await
    }

    async fn fed_at(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.call("fed_at", self.port.fed_at(label, shard, at)).await
    }

    async fn fed_end(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.call("fed_end", self.port.fed_end(label, shard, at)).await
    }

    async fn put_lapse(&self, lapse: Lapse) -> Outcome<()> {
        self.call("put_lapse", self.port.put_lapse(lapse)).await
    }

    async fn lapses(&self) -> Outcome<Vec<Lapse>> {
        self.call("lapses", self.port.lapses()).await
    }

    async fn drop_lapse(&self, lapse: Lapse) -> Outcome<()> {
        self.call("drop_lapse", self.port.drop_lapse(lapse)).await
    }
}
