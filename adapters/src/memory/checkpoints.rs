//! The twin of the checkpoints table.

mod changes;

use std::collections::BTreeMap;

use async_trait::async_trait;
use tally_core::definitions::Definitions;
use tally_core::fault::Fault;
use tally_core::format::Format;
use tally_core::ids::{Ordinal, Sequence, ShardCount, StreamLabel, StreamShardId};
use tally_core::ledger::{Fed, Lapse};
use tally_core::lineage::{Checkpoint, Loss};
use tally_core::milestone::Ladder;
use tally_core::ports::{
    ChangesTerms, DeploymentConfig, Gap, GapId, Gaps, Lease, LeaseTaken, Leases, Outcome, Positions, Registry,
    ShardState, Standing, StreamRegistry, Told, Worker,
};
use tally_core::time::UnixMillis;

use super::Memory;

/// The twin of the checkpoints table.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    memory: Memory,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    shards: BTreeMap<(StreamLabel, StreamShardId), Kept>,
    registries: BTreeMap<StreamLabel, Registry>,
    gaps: BTreeMap<GapId, Gap>,
    told: Option<Told>,
    config: Option<ShardCount>,
    /// What the deployment states that it is written in; none is the first one.
    format: Option<Format>,
    /// How often a change of a counter's map was announced.
    pub(super) homes: u64,
    /// The counters that were defined.
    definitions: Definitions,
    ladder: Ladder,
    changes: Option<ChangesTerms>,
    lapses: BTreeMap<Ordinal, Lapse>,
}

#[derive(Debug)]
struct Kept {
    checkpoint: Checkpoint,
    fed: Fed,
    holder: Option<Worker>,
    /// Never falls, also where no worker holds the lease: no later lease looks like an earlier one.
    beat: u64,
}

impl Kept {
    fn lease(&self) -> Option<Lease> {
        self.holder.clone().map(|holder| Lease { holder, beat: self.beat })
    }
}

impl Checkpoints {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// Has the deployment state that it is written in `format`.
    pub fn state_format(&self, format: Format) {
        self.memory.state().checkpoints.format = Some(format);
    }

    fn change<T>(&self, label: &StreamLabel, shard: &StreamShardId, change: impl FnOnce(&mut Kept) -> T) -> Outcome<T> {
        let mut state = self.memory.state();
        let kept = state.checkpoints.shards.get_mut(&(label.clone(), shard.clone()));
        kept.map(change).ok_or_else(|| Fault::Fatal(format!("stream/{label}/{shard} has no checkpoint")))
    }
}

#[async_trait]
impl StreamRegistry for Checkpoints {
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>> {
        Ok(self.memory.state().checkpoints.registries.get(label).copied())
    }

    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal> {
        let mut state = self.memory.state();
        let table = &mut state.checkpoints;
        let key = (label.clone(), shard.clone());
        if let Some(kept) = table.shards.get(&key) {
            return Ok(kept.checkpoint.ordinal);
        }
        if !table.registries.contains_key(label) {
            let of_table = |stream: &StreamLabel| stream.table() == label.table();
            if let Some(later) =
                table.registries.keys().find(|other| of_table(other) && other.as_str() > label.as_str())
            {
                return Err(Fault::Transient(format!(
                    "{label} is not the table's stream any more: {later} came later"
                )));
            }
            let earlier =
                table.registries.iter_mut().filter(|(stream, _)| of_table(stream)).map(|(_, registry)| registry);
            let greatest = earlier.max_by_key(|registry| registry.next).map(|registry| {
                let next = registry.next;
                // As in the store: of two streams that begin at once only one takes it.
                registry.next = Ordinal(next.0 + 1);
                next
            });
            table.registries.insert(label.clone(), Registry::after(greatest));
        }
        let registry = table.registries.get_mut(label).expect("it was put");
        let ordinal = registry.next;
        registry.next = Ordinal(ordinal.0 + 1);
        let (id, parent) = (shard.clone(), parent.cloned());
        let checkpoint = Checkpoint { id, parent, ordinal, sequence: None, closed: false, at };
        table.shards.insert(key, Kept { checkpoint, fed: Fed::default(), holder: None, beat: 0 });
        Ok(ordinal)
    }

    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()> {
        if let Some(registry) = self.memory.state().checkpoints.registries.get_mut(label) {
            registry.floor = registry.floor.max(Some(floor));
        }
        Ok(())
    }
}

#[async_trait]
impl Positions for Checkpoints {
    async fn shards(&self, label: &StreamLabel) -> Outcome<Vec<ShardState>> {
        let state = self.memory.state();
        let of_label = state.checkpoints.shards.iter().filter(|((stream, _), _)| stream == label);
        let states = of_label.map(|(_, kept)| ShardState {
            checkpoint: kept.checkpoint.clone(),
            fed: kept.fed,
            lease: kept.lease(),
        });
        let mut states: Vec<ShardState> = states.collect();
        states.sort_by_key(|state| state.checkpoint.ordinal);
        Ok(states)
    }

    async fn advance(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        sequence: Sequence,
        at: UnixMillis,
    ) -> Outcome<()> {
        self.change(label, shard, |kept| {
            if kept.checkpoint.sequence.is_none_or(|reached| reached < sequence) {
                kept.checkpoint.sequence = Some(sequence);
                kept.checkpoint.at = at;
            }
        })
    }

    async fn refresh(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        self.change(label, shard, |kept| kept.checkpoint.at = kept.checkpoint.at.max(at))
    }

    async fn close(&self, label: &StreamLabel, shard: &StreamShardId, at: UnixMillis) -> Outcome<()> {
        if let Some(kept) = self.memory.state().checkpoints.shards.get_mut(&(label.clone(), shard.clone())) {
            kept.checkpoint.closed = true;
            kept.checkpoint.at = at;
        }
        Ok(())
    }

    async fn forget(&self, label: &StreamLabel, shard: &StreamShardId) -> Outcome<()> {
        let mut state = self.memory.state();
        let key = (label.clone(), shard.clone());
        if state.checkpoints.shards.get(&key).is_some_and(|kept| kept.checkpoint.closed) {
            state.checkpoints.shards.remove(&key);
        }
        Ok(())
    }
}

#[async_trait]
impl Leases for Checkpoints {
    async fn lease(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        holder: &Worker,
        seen: Option<&Lease>,
    ) -> Outcome<LeaseTaken> {
        self.change(label, shard, |kept| {
            let standing = kept.lease();
            if standing.as_ref() != seen {
                // Our own: an earlier call was carried out, and its answer was lost.
                let own = standing.filter(|lease| lease.holder == *holder);
                return own.map_or(LeaseTaken::Lost, LeaseTaken::Taken);
            }
            kept.beat += 1;
            kept.holder = Some(holder.clone());
            LeaseTaken::Taken(Lease { holder: holder.clone(), beat: kept.beat })
        })
    }

    async fn release(&self, label: &StreamLabel, shard: &StreamShardId, holder: &Worker) -> Outcome<()> {
        let mut state = self.memory.state();
        if let Some(kept) = state.checkpoints.shards.get_mut(&(label.clone(), shard.clone())) {
            kept.holder.take_if(|found| found == holder);
        }
        Ok(())
    }
}

#[async_trait]
impl Gaps for Checkpoints {
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap> {
        let mut state = self.memory.state();
        let met = Gap::of(loss, now);
        let standing = state.checkpoints.gaps.get(&met.id);
        let opened = standing.map_or(now, |standing| now.max(UnixMillis(standing.opened.0 + 1)));
        let gap = Gap { opened, ..met };
        state.checkpoints.gaps.insert(gap.id.clone(), gap.clone());
        state.recounts.ask_for_audit(now);
        Ok(gap)
    }

    async fn standing(&self) -> Outcome<Standing> {
        let state = self.memory.state();
        Ok(Standing { gaps: state.checkpoints.gaps.values().cloned().collect(), told: state.checkpoints.told })
    }

    async fn tell(&self, as_of: UnixMillis, limit: UnixMillis) -> Outcome<()> {
        let told = &mut self.memory.state().checkpoints.told;
        let times = told.map_or(0, |told| told.times);
        if told.is_none_or(|told| told.as_of <= as_of || told.as_of > limit) {
            *told = Some(Told { as_of, times: times + 1 });
        }
        Ok(())
    }

    async fn close_gap(&self, gap: &Gap) -> Outcome<()> {
        let mut state = self.memory.state();
        if state.checkpoints.gaps.get(&gap.id).is_some_and(|standing| standing.opened == gap.opened) {
            state.checkpoints.gaps.remove(&gap.id);
        }
        Ok(())
    }
}

#[async_trait]
impl DeploymentConfig for Checkpoints {
    async fn config(&self, shards: Option<ShardCount>) -> Outcome<ShardCount> {
        let mut state = self.memory.state();
        Ok(*state.checkpoints.config.get_or_insert(shards.unwrap_or(ShardCount::DEFAULT)))
    }

    async fn deployed(&self) -> Outcome<Option<ShardCount>> {
        Ok(self.memory.state().checkpoints.config)
    }

    async fn format(&self) -> Outcome<Option<Format>> {
        let state = self.memory.state();
        let stated = state.checkpoints.format.clone().unwrap_or_else(Format::written);
        Ok(state.checkpoints.config.map(|_| stated))
    }

    async fn recent_format(&self) -> Outcome<Option<Format>> {
        self.format().await
    }

    async fn definitions(&self) -> Outcome<Definitions> {
        Ok(self.memory.state().checkpoints.definitions.clone())
    }

    async fn define(&self, seen: &Definitions, to: &Definitions) -> Outcome<bool> {
        let mut state = self.memory.state();
        let stands = state.checkpoints.config.is_some() && state.checkpoints.definitions == *seen;
        if stands {
            state.checkpoints.definitions = to.clone();
        }
        Ok(stands)
    }

    async fn ladder(&self) -> Outcome<Ladder> {
        Ok(self.memory.state().checkpoints.ladder)
    }

    async fn raise_ladder(&self, seen: &Ladder, to: &Ladder) -> Outcome<bool> {
        let mut state = self.memory.state();
        let stands = state.checkpoints.config.is_some() && state.checkpoints.ladder == *seen;
        if stands {
            state.checkpoints.ladder = *to;
        }
        Ok(stands)
    }
}
