//! The twin's part of the ledger of changes.

use async_trait::async_trait;
use tally_core::ids::{Ordinal, Sequence, StreamLabel, StreamShardId};
use tally_core::ledger::{Fed, Lapse};
use tally_core::lineage::Checkpoint;
use tally_core::ports::{ChangesLedger, ChangesTerms, Outcome};
use tally_core::time::UnixMillis;

use super::Checkpoints;

#[async_trait]
impl ChangesLedger for Checkpoints {
    async fn changes(&self) -> Outcome<Option<ChangesTerms>> {
        Ok(self.memory.state().checkpoints.changes)
    }

    async fn begin_changes(&self, partitions: u32, from: Ordinal) -> Outcome<ChangesTerms> {
        let mut state = self.memory.state();
        Ok(*state.checkpoints.changes.get_or_insert(ChangesTerms { partitions, from, since: None }))
    }

    async fn changes_complete(&self, at: UnixMillis) -> Outcome<()> {
        if let Some(terms) = &mut self.memory.state().checkpoints.changes {
            terms.since.get_or_insert(at);
        }
        Ok(())
    }

    async fn adopt(&self, label: &StreamLabel, checkpoint: &Checkpoint) -> Outcome<()> {
        let mut state = self.memory.state();
        let key = (label.clone(), checkpoint.id.clone());
        if let Some(kept) = state.checkpoints.shards.get_mut(&key)
            && kept.fed.sequence.is_none()
            && kept.fed.at.is_none()
        {
            kept.fed =
                Fed { sequence: checkpoint.sequence, at: Some(checkpoint.at), end: kept.fed.end || checkpoint.closed };
        }
        Ok(())
    }

    async fn fed(&self, label: &StreamLabel, shard: &StreamShardId, to: Sequence, at: UnixMillis) -> Outcome<()> {
        self.change(label, shard, |kept| {
            if kept.fed.sequence < Some(to) {
                kept.fed.sequence = Some(to);
                kept.fed.at = kept.fed.at.max(Some(at));
            }
        })
    }

    async fn fed_at(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.change(label, shard, |kept| kept.fed.at = kept.fed.at.max(Some(at)))
    }

    async fn fed_end(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        if let Some(kept) = self.memory.state().checkpoints.shards.get_mut(&(label.clone(), shard.clone())) {
            kept.fed = Fed { at: Some(at), end: true, ..kept.fed };
        }
        Ok(())
    }

    async fn put_lapse(&self, lapse: Lapse) -> Outcome<()> {
        let mut state = self.memory.state();
        let kept = state.checkpoints.lapses.entry(lapse.shard).or_insert(lapse);
        kept.seconds = kept.seconds.and(lapse.seconds);
        Ok(())
    }

    async fn lapses(&self) -> Outcome<Vec<Lapse>> {
        Ok(self.memory.state().checkpoints.lapses.values().copied().collect())
    }

    async fn drop_lapse(&self, lapse: Lapse) -> Outcome<()> {
        let mut state = self.memory.state();
        if state.checkpoints.lapses.get(&lapse.shard).is_some_and(|kept| kept.seconds.last == lapse.seconds.last) {
            state.checkpoints.lapses.remove(&lapse.shard);
        }
        Ok(())
    }
}
