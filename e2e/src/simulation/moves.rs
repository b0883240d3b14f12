//! Every move of every fence, as the store tells it: which records were passed, and under which terms.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_emulator::value::{Item, Value};
use tally_emulator::{ControlError, Emulator};

use super::events::TOPIC;

/// The table of fences.
const CHECKPOINTS: &str = "checkpoints";

/// A fence as far as the laws need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) offset: u64,
    pub(crate) cfg: u64,
    /// How many definitions are in force; 0: likes alone.
    pub(crate) defs: u64,
    /// How far it was before it was moved back; 0 where it never was.
    pub(crate) redo: u64,
}

/// One move of one fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) partition: u32,
    pub(crate) before: Option<Fence>,
    pub(crate) after: Fence,
    /// Whether it was made behind every process's back.
    pub(crate) by_hand: bool,
}

/// All moves so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    moves: Vec<Move>,
    /// Which partition's next move to which offset is made by hand.
    by_hand: Option<(u32, u64)>,
}

impl Moves {
    /// The moves of the fences in `emulator` from now on.
    pub(crate) fn of(emulator: &Emulator) -> Result<Self, ControlError> {
        let moves = Self::default();
        let kept = moves.clone();
        emulator.watch(CHECKPOINTS, move |changed| kept.keep(changed.old.as_ref(), changed.new.as_ref()))?;
        Ok(moves)
    }

    fn keep(&self, old: Option<&Item>, new: Option<&Item>) {
        let Some((new, partition)) = new.and_then(|new| Some((new, partition(new)?))) else { return };
        let (Some(after), before) = (fence(new), old.and_then(fence)) else { return };
        let mut kept = self.kept();
        let by_hand = kept.by_hand.take_if(|expected| *expected == (partition, after.offset)).is_some();
        kept.moves.push(Move { partition, before, after, by_hand });
    }

    /// The next move of `partition` to `offset` is one that no process makes.
    pub(crate) fn expect(&self, partition: u32, offset: u64) {
        self.kept().by_hand = Some((partition, offset));
    }

    /// No move that was expected is still to come.
    pub(crate) fn expect_no_more(&self) {
        self.kept().by_hand = None;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept().moves.len()
    }

    /// Those behind the first `taken`.
    pub(crate) fn behind(&self, taken: usize) -> Vec<Move> {
        self.kept().moves[taken..].to_vec()
    }

    /// Where the fence of `partition` is.
    pub(crate) fn fence(&self, partition: u32) -> Option<Fence> {
        let kept = self.kept();
        kept.moves.iter().rev().find(|moved| moved.partition == partition).map(|moved| moved.after)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The partition whose fence an item is.
fn partition(item: &Item) -> Option<u32> {
    let Some(Value::S(id)) = item.get("id") else { return None };
    id.strip_prefix("kafka/")?.strip_prefix(TOPIC)?.strip_prefix('/')?.parse().ok()
}

fn fence(item: &Item) -> Option<Fence> {
    let number = |name| match item.get(name) {
        Some(Value::N(number)) => number.to_string().parse().ok(),
        _ => None,
    };
    Some(Fence {
        offset: number("offset")?,
        cfg: number("cfg")?,
        defs: number("defs").unwrap_or(0),
        redo: number("redo").unwrap_or(0),
    })
}
