//! Every move of every fence, as the store tells it: which records were passed, and under which terms.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::ids::{Lane, LaneCount};
use tally_emulator::value::{Item, Value};
use tally_emulator::{ControlError, Emulator};

use super::events::TOPIC;

/// The table of fences.
const CHECKPOINTS: &str = "checkpoints";

/// A lane's fence as far as the laws need it. What holds of all lanes lane 0's fence states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) offset: u64,
    pub(crate) cfg: u64,
    /// How many lanes the partition has.
    pub(crate) lanes: LaneCount,
    /// How many definitions are in force; 0: likes alone.
    pub(crate) defs: u64,
    /// How far it was before it was moved back; 0 where it never was.
    pub(crate) redo: u64,
}

/// One move of one lane's fence. The moves of one transaction follow each other, that of lane 0 first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) partition: u32,
    pub(crate) lane: Lane,
    pub(crate) before: Option<Fence>,
    /// `None`: the partition has this lane no longer.
    pub(crate) after: Option<Fence>,
    /// Whether it was made behind every process's back.
    pub(crate) by_hand: bool,
}

/// All moves so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    moves: Vec<Move>,
    /// The fences as they are.
    fences: BTreeMap<(u32, Lane), Fence>,
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
        let Some((partition, lane)) = new.or(old).and_then(place) else { return };
        let (after, before) = (new.and_then(fence), old.and_then(fence));
        let mut kept = self.kept();
        let reached = after.map(|after| (partition, after.offset));
        let by_hand = lane == Lane::FIRST && kept.by_hand.take_if(|expected| Some(*expected) == reached).is_some();
        kept.moves.push(Move { partition, lane, before, after, by_hand });
        match after {
            Some(after) => kept.fences.insert((partition, lane), after),
            None => kept.fences.remove(&(partition, lane)),
        };
    }

    /// The next move of lane 0 of `partition` to `offset` is one that no process makes.
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

    /// Where lane 0 of `partition` is.
    pub(crate) fn fence(&self, partition: u32) -> Option<Fence> {
        self.kept().fences.get(&(partition, Lane::FIRST)).copied()
    }

    /// Up to where every lane of `partition` is.
    pub(crate) fn least(&self, partition: u32) -> Option<u64> {
        self.fences(partition).iter().map(|fence| fence.offset).min()
    }

    /// Where each lane of `partition` is.
    pub(crate) fn fences(&self, partition: u32) -> Vec<Fence> {
        let kept = self.kept();
        kept.fences.iter().filter(|((of, _), _)| *of == partition).map(|(_, fence)| *fence).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The partition and the lane whose fence an item is.
fn place(item: &Item) -> Option<(u32, Lane)> {
    let Some(Value::S(id)) = item.get("id") else { return None };
    let place = id.strip_prefix("kafka/")?.strip_prefix(TOPIC)?.strip_prefix('/')?;
    let (partition, lane) = place.split_once('/').unwrap_or((place, "0"));
    Some((partition.parse().ok()?, Lane::new(lane.parse().ok()?)?))
}

fn fence(item: &Item) -> Option<Fence> {
    let number = |name| match item.get(name) {
        Some(Value::N(number)) => number.to_string().parse().ok(),
        _ => None,
    };
    Some(Fence {
        offset: number("offset")?,
        cfg: number("cfg")?,
        lanes: LaneCount::new(number("lanes").unwrap_or(1))?,
        defs: number("defs").unwrap_or(0),
        redo: number("redo").unwrap_or(0),
    })
}
