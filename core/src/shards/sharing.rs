//! Which stream shards this worker reads: leases taken and lost, readers started and stopped.

use std::collections::{BTreeMap, BTreeSet};

use super::leases::{Sharing, plan};
use super::{Answer, Effect, Reader, Request, Shards};
use crate::ids::StreamShardId;
use crate::lineage::Checkpoint;
use crate::ports::LeaseTaken;

impl Shards {
    /// Plans which leases to renew, take and steal; without leases, all shards are read. Stops readers of other shards.
    pub(super) fn share(&mut self, effects: &mut Vec<Effect>) {
        // What is read still, was found after all.
        self.gone.retain(|shard| self.reading.get(shard).is_none_or(|reader| reader.is_gone));
        let open = self.open();
        let wanted: BTreeSet<StreamShardId> = match self.rules.sharing.clone() {
            None => {
                open.iter().for_each(|shard| self.start(shard, effects));
                open
            }
            Some(sharing) => self.plan_leases(&open, &sharing, effects),
        };
        for (shard, reader) in &mut self.reading {
            let is_wanted = reader.label == self.info.label && wanted.contains(shard);
            if !is_wanted && !std::mem::replace(&mut reader.stopping, true) {
                effects.push(Effect::Stop(shard.clone()));
            }
        }
    }

    /// Shards that may be read, also for the ledger of changes alone, or are being read although a listing leaves them out.
    fn open(&self) -> BTreeSet<StreamShardId> {
        let lineage = &self.picture.lineage;
        let read = lineage.checkpoints().filter(|shard| !shard.closed && self.reading.contains_key(&shard.id));
        lineage.readable().chain(read).chain(lineage.unfed(true)).map(|shard| shard.id.clone()).collect()
    }

    fn plan_leases(
        &mut self,
        open: &BTreeSet<StreamShardId>,
        sharing: &Sharing,
        effects: &mut Vec<Effect>,
    ) -> BTreeSet<StreamShardId> {
        let states = std::mem::take(&mut self.look.states).into_iter();
        let open_states = states.filter(|state| open.contains(&state.checkpoint.id));
        let leases: BTreeMap<_, _> =
            open_states.filter_map(|state| Some((state.checkpoint.id, state.lease?))).collect();
        self.leases.observe(leases, sharing, effects);
        let offers: Vec<_> = open.iter().map(|shard| self.leases.offer(shard)).collect();
        let plan = plan(&sharing.me, &offers);
        let planned: BTreeSet<_> = plan.iter().map(|(shard, _)| shard.clone()).collect();
        self.leases.held.retain(|shard| planned.contains(shard));
        for (shard, change) in plan {
            let seen = self.leases.offer(&shard).lease.cloned();
            self.todo.push_back(Request::Lease { shard, seen, change });
        }
        planned
    }

    /// A lease was taken, or another worker was faster, or it is not known which.
    pub(super) fn leased(&mut self, shard: StreamShardId, answer: &Answer, effects: &mut Vec<Effect>) {
        match answer {
            Answer::Leased(LeaseTaken::Taken(_)) => {
                self.start(&shard, effects);
            }
            Answer::Leased(LeaseTaken::Lost) => {
                self.leases.held.remove(&shard);
                if let Some(reader) = self.reading.get_mut(&shard)
                    && !std::mem::replace(&mut reader.stopping, true)
                {
                    effects.push(Effect::Stop(shard));
                }
            }
            // Whether it is ours the next look sees; until then nothing about its reader changes.
            _ => {}
        }
    }

    /// Starts to read a shard, unless it is being read, or was read to its end.
    fn start(&mut self, shard: &StreamShardId, effects: &mut Vec<Effect>) {
        let Some(checkpoint) = self.picture.lineage.checkpoint(shard) else { return };
        if self.reading.contains_key(shard) || self.ends.contains_key(shard) {
            return;
        }
        let checkpoint: Checkpoint = checkpoint.clone();
        let fed = self.picture.lineage.fed(shard).unwrap_or_default();
        let reader = Reader { label: self.info.label.clone(), stopping: false, is_gone: false };
        self.reading.insert(shard.clone(), reader);
        effects.push(Effect::Read(checkpoint, fed));
    }
}
