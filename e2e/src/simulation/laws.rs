//! What must be true: at every look, in every answer, when all is quiet, and of everything that recounts have found.

mod honest;
mod listed;
mod quiet;
mod rows;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, Ordinal, RowKey, StreamShardId};
use tally_core::lineage::Checkpoint;
use tally_core::watermark::{Reach, Watermarks};

pub(crate) use honest::{Answer, Count, Honesty};
pub(crate) use listed::listed;
pub(crate) use quiet::{Quiet, exact, held, said};
pub(crate) use rows::{Place, rows_fold, weights};
pub(crate) use verdicts::Verdicts;

/// Drift put into a counter by hand.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    pub(crate) key: RowKey,
    pub(crate) amount: i64,
    /// What the counter had applied then.
    pub(crate) applied: Watermarks,
}

/// What was seen at the last look: nothing of it may go back.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    checkpoints: BTreeMap<StreamShardId, Checkpoint>,
    counters: BTreeMap<CounterId, Counter>,
    ordinals: BTreeMap<StreamShardId, Ordinal>,
}

impl Seen {
    /// The number a stream shard was given.
    pub(crate) fn ordinal(&self, shard: &StreamShardId) -> Option<Ordinal> {
        self.ordinals.get(shard).copied()
    }

    /// Checkpoints move forward, closed stays closed, and a number is for ever.
    pub(crate) fn checkpoints(&mut self, now: impl Iterator<Item = Checkpoint>) -> anyhow::Result<()> {
        let now: BTreeMap<_, _> = now.map(|checkpoint| (checkpoint.id.clone(), checkpoint)).collect();
        for (id, after) in &now {
            let number = self.ordinals.insert(id.clone(), after.ordinal);
            let once = number.is_none_or(|number| number == after.ordinal);
            ensure!(once, "stream shard {id} was numbered twice, {number:?} and then {after:?}");
            let Some(before) = self.checkpoints.get(id) else { continue };
            ensure!(
                after.sequence >= before.sequence && after.closed >= before.closed,
                "the checkpoint of {id} went from {before:?} to {after:?}"
            );
        }
        let numbers: BTreeSet<Ordinal> = self.ordinals.values().copied().collect();
        ensure!(numbers.len() == self.ordinals.len(), "two stream shards have one number");
        self.checkpoints = now;
        Ok(())
    }

    /// Watermarks, floors and versions move forward, and every total is its sum.
    pub(crate) fn counters(&mut self, now: BTreeMap<CounterId, Counter>) -> anyhow::Result<()> {
        for (id, after) in &now {
            ensure!(after.sum() == Ok(after.likes), "the total of {id} is not its sum: {after:?}");
            let Some(before) = self.counters.get(id) else { continue };
            ensure!(after.version >= before.version, "the version of {id} went back");
            let (floor, was) = (after.watermarks.floor(), before.watermarks.floor());
            ensure!(floor >= was, "the floor of {id} went from {was:?} to {floor:?}");
            for (shard, mark) in before.watermarks.marks() {
                let stands = match after.watermarks.reach(*shard) {
                    Reach::Through(now) => now >= *mark,
                    Reach::Finished => true,
                    Reach::Untouched => false,
                };
                ensure!(stands, "the watermark of {id} for stream shard {shard} is gone or went back: {after:?}");
            }
        }
        self.counters = now;
        Ok(())
    }
}
