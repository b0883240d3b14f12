//! The losses that were met here, and what waits behind them.

use std::collections::BTreeMap;

use super::{Behind, Effect, Wait};
use crate::ids::StreamShardId;
use crate::lineage::{HOLD, Hold, Loss};
use crate::time::Now;

/// Each loss, from when it is met until what lies behind it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Losses(BTreeMap<Behind, Met>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Met {
    loss: Loss,
    held: Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    /// The hold is not over.
    Waits(Hold),
    /// It is over.
    MayGoOn,
}

impl Losses {
    pub(super) fn meet(&mut self, behind: Behind, loss: Loss) {
        self.0.insert(behind, Met { loss, held: Held::Waits(Hold::default()) });
    }

    /// The gap's record was acknowledged. That of a loss which another has replaced begins no hold.
    pub(super) fn recorded(&mut self, behind: Behind, loss: &Loss, now: Now, effects: &mut Vec<Effect>) {
        if let Some(Met { loss: met, held: Held::Waits(hold) }) = self.0.get_mut(&behind)
            && met == loss
        {
            hold.recorded(now.at);
            effects.push(Effect::Wait(Wait::Hold(behind), HOLD));
        }
    }

    /// The wait for the end of a hold is over: a waiter goes on. Returns true if the worker should look again, because it may
    /// now close or number what lay behind the loss.
    pub(super) fn is_over(&mut self, behind: &Behind, now: Now, effects: &mut Vec<Effect>) -> bool {
        let Some(Met { held, .. }) = self.0.get_mut(behind) else { return false };
        match (*held, behind) {
            (Held::Waits(hold), _) if !hold.is_over(now.at) => {
                let left = hold.ends().map_or(HOLD, |ends| ends.saturating_sub(now.at));
                effects.push(Effect::Wait(Wait::Hold(behind.clone()), left));
                false
            }
            (_, Behind::Waiter(waiter)) => {
                effects.push(Effect::GoOn(*waiter));
                self.0.remove(behind);
                false
            }
            _ => {
                *held = Held::MayGoOn;
                true
            }
        }
    }

    /// `None` if no loss was met at `behind`; otherwise whether its hold is over.
    pub(super) fn may_pass(&self, behind: &Behind) -> Option<bool> {
        self.0.get(behind).map(|met| met.held == Held::MayGoOn)
    }

    pub(super) fn forget(&mut self, behind: &Behind) {
        self.0.remove(behind);
    }

    /// Of the shards that are gone, keeps those that still are.
    pub(super) fn keep_shards(&mut self, is_gone: impl Fn(&StreamShardId) -> bool) {
        self.0.retain(|behind, _| !matches!(behind, Behind::Shard(shard) if !is_gone(shard)));
    }

    /// What the worker itself waits for is over with the stream it was about.
    pub(super) fn forget_stream(&mut self) {
        self.0.retain(|behind, _| matches!(behind, Behind::Waiter(_)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
