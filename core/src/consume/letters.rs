//! Dead letters: which are under way, and which are acknowledged and not behind the fence yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::effect::Effect;
use crate::event::Rejection;
use crate::fence::{Fence, Offset};
use crate::ports::log::{Record, Records};

/// A record that is put aside, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Letter {
    /// The configuration of the fence that the record was read under: a fence that was reset may count in another topic,
    /// where the same offset is another record.
    pub cfg: u64,
    /// Where the record stands.
    pub offset: Offset,
    /// What it was read with.
    pub records: Arc<Records>,
    /// Why it is put aside.
    pub rejection: Rejection,
}

impl Letter {
    /// The record.
    pub fn record(&self) -> Record<'_> {
        self.records.at(self.offset).expect("a letter is made with the records that its record was read with")
    }
}

/// The dead letters of one partition for as long as it is assigned: reading may come back to their records many times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Letters {
    /// Those acknowledged and not behind the fence, each with the `cfg` it was read under.
    acknowledged: BTreeSet<(u64, Offset)>,
    /// How often each that is under way was refused.
    sent: BTreeMap<(u64, Offset), u32>,
}

impl Letters {
    /// Reading begins at `fence`, or the fence has moved there. What lies before it does not come again, and neither
    /// does what was read under another configuration.
    pub(super) fn prune(&mut self, fence: &Fence) {
        self.acknowledged.retain(|(cfg, offset)| *cfg == fence.cfg && *offset >= fence.offset);
    }

    /// Whether the record at `offset`, read under `cfg`, was put aside before.
    pub(super) fn has(&self, cfg: u64, offset: Offset) -> bool {
        self.acknowledged.contains(&(cfg, offset))
    }

    /// Begins to send `letter`.
    pub(super) fn send(&mut self, letter: Letter, effects: &mut Vec<Effect>) {
        self.sent.insert((letter.cfg, letter.offset), 0);
        effects.push(Effect::StoreLetter { letter: Arc::new(letter), tries: 0 });
    }

    /// Takes note that `letter` is acknowledged.
    pub(super) fn stored(&mut self, letter: &Letter) {
        self.sent.remove(&(letter.cfg, letter.offset));
        self.acknowledged.insert((letter.cfg, letter.offset));
    }

    /// Sends `letter` again, for as long as it is refused: nothing passes its record meanwhile.
    pub(super) fn refused(&mut self, letter: Arc<Letter>, effects: &mut Vec<Effect>) {
        if let Some(tries) = self.sent.get_mut(&(letter.cfg, letter.offset)) {
            *tries = tries.saturating_add(1);
            effects.push(Effect::StoreLetter { letter, tries: *tries });
        }
    }

    /// Those under way are sent again if their records are read again.
    pub(super) fn forget_unacknowledged(&mut self) {
        self.sent.clear();
    }
}
