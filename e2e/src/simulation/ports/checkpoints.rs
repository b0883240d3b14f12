//! Checkpoints and gaps in a mutant's hands: read by an API that misjudges them, or recorded too late by a streamer; and how far
//! the ledger is, said by one that does not write it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::dynamodb;
use tally_core::definitions::Definitions;
use tally_core::format::Format;
use tally_core::ids::{Ordinal, Sequence, ShardCount, StreamLabel, StreamShardId};
use tally_core::lineage::{HOLD, Loss};
use tally_core::milestone::Ladder;
use tally_core::ports::{
    Checkpoints, DeploymentConfig, Gap, Gaps, Lease, LeaseTaken, Leases, Outcome, Positions, Registry, ShardState,
    Standing, StreamRegistry, Worker,
};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Host, Stage, Stop};
use tokio::time::Instant;

use super::super::mutant::Mutant;
use super::UnderWay;

/// How long it is until a loss is recorded again after a fault.
const AGAIN: Duration = Duration::from_millis(50);

/// The checkpoints, but for one rule.
pub(crate) struct MutatedCheckpoints {
    pub(crate) inner: Arc<dyn Checkpoints>,
    pub(crate) mutant: Mutant,
    /// The same tables by a way that lasts longer than the process.
    pub(crate) truth: dynamodb::Checkpoints,
    /// Where a loss is recorded late.
    pub(crate) host: Host,
    /// The gaps as the last reading of them found them.
    pub(crate) earlier: Mutex<Option<Vec<Gap>>>,
    /// Moves the process's clock to where it should be.
    pub(crate) watch: Option<Watch>,
    /// What is on its way to the ledger.
    pub(crate) under_way: UnderWay,
}

/// A process's clock that moves only when the process has read the gaps: what it knew before keeps its age until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    origin: Instant,
    stepped: &'static AtomicU64,
}

impl Watch {
    /// A clock that says `now`, and what moves it. Each life of a process leaks one number.
    pub(crate) fn starting_at(now: UnixMillis) -> (Clock, Self) {
        let stepped: &'static AtomicU64 = Box::leak(Box::default());
        (Clock::stepping(now, stepped), Self { origin: Instant::now(), stepped })
    }

    fn look(self) {
        let passed = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.stepped.store(passed, Ordering::Relaxed);
    }
}

impl MutatedCheckpoints {
    /// Records `loss` as late as it takes that a streamer which holds goes on at once behind the record.
    fn record_late(&self, loss: &Loss, now: UnixMillis) {
        let (truth, loss) = (self.truth.clone(), loss.clone());
        self.host.worker(Stage::Output, "late gap", move |_: Stop| async move {
            tokio::time::sleep(HOLD).await;
            while truth.open_gap(&loss, now.plus(HOLD)).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
            Ok(())
        });
    }

    fn look(&self) {
        self.watch.iter().for_each(|watch| watch.look());
    }

    fn earlier(&self) -> MutexGuard<'_, Option<Vec<Gap>>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StreamRegistry for MutatedCheckpoints {
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>> {
        self.inner.registry(label).await
    }

    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal> {
        self.inner.number(label, shard, parent, at).await
    }

    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()> {
        self.inner.raise_floor(label, floor).await
    }
}

#[async_trait]
impl Positions for MutatedCheckpoints {
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>> {
        let mut shards = self.inner.shards(label).await?;
        if self.mutant == Mutant::AsOfTooYoung {
            let youngest = shards.iter().map(|state| state.checkpoint.at).max().unwrap_or_default();
            shards.iter_mut().for_each(|state| state.checkpoint.at = youngest);
        }
        Ok(shards)
    }

    async fn advance(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        sequence: Sequence,
        at: UnixMillis,
    ) -> Outcome<()> {
        self.inner.advance(label, shard, sequence, at).await?;
        if self.mutant == Mutant::FedByOthers {
            self.inner.fed(label, shard, sequence, at).await?;
        }
        Ok(())
    }

    async fn refresh(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.inner.refresh(label, shard, at).await?;
        if self.mutant == Mutant::FedByOthers {
            self.inner.fed_at(label, shard, at).await?;
        }
        Ok(())
    }

    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.inner.close(label, shard, at).await?;
        if self.mutant == Mutant::FedByOthers {
            self.inner.fed_end(label, shard, at).await?;
        }
        Ok(())
    }

    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()> {
        self.inner.forget(label, shard).await
    }
}

#[async_trait]
impl Leases for MutatedCheckpoints {
    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        holder: &Worker,
        seen: Option<&Lease>,
    ) -> Outcome<LeaseTaken> {
        self.inner.lease(label, shard, holder, seen).await
    }

    async fn release(&self, label: &StreamLabel, shard: &StreamShardId, holder: &Worker) -> Outcome<()> {
        self.inner.release(label, shard, holder).await
    }
}

#[async_trait]
impl Gaps for MutatedCheckpoints {
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap> {
        if self.mutant == Mutant::NoHold {
            self.record_late(loss, now);
            return Ok(Gap::of(loss, now));
        }
        self.inner.open_gap(loss, now).await
    }

    async fn standing(&self) -> Outcome<Standing> {
        let standing = self.inner.standing().await;
        match self.mutant {
            Mutant::GapsIgnored => Ok(Standing { gaps: Vec::new(), ..standing? }),
            // It reads the stream shards itself.
            Mutant::AsOfTooYoung => Ok(Standing { told: None, ..standing? }),
            // Those that were read last are from before the shards.
            Mutant::GapsBeforeShards => {
                let standing = standing?;
                let gaps = self.earlier().replace(standing.gaps.clone()).unwrap_or(standing.gaps);
                Ok(Standing { gaps, told: standing.told })
            }
            Mutant::AgeByPoller => {
                self.look();
                standing
            }
            _ => standing,
        }
    }

    async fn tell(&self, as_of: UnixMillis, limit: UnixMillis) -> Outcome<()> {
        self.inner.tell(as_of, limit).await
    }

    async fn close_gap(&self, gap: &Gap) -> Outcome<()> {
        self.inner.close_gap(gap).await
    }
}

#[async_trait]
impl DeploymentConfig for MutatedCheckpoints {
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        self.inner.config(shards).await
    }

    async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        self.inner.deployed().await
    }

    async fn format(&self) -> Outcome<Option<Format>> {
        self.inner.format().await
    }

    async fn recent_format(&self) -> Outcome<Option<Format>> {
        self.inner.recent_format().await
    }

    async fn definitions(&self) -> Outcome<Definitions> {
        self.inner.definitions().await
    }

    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        self.inner.define(seen, to).await
    }

    async fn ladder(&self) -> Outcome<Ladder> {
        self.inner.ladder().await
    }

    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        self.inner.raise_ladder(seen, to).await
    }
}
