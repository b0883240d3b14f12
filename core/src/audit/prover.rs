//! The comparison of row keys with their counters, as a machine without I/O.
//!
//! Rows and counters are read at different moments, so that they agree can be luck. A row key is *proved* if its counter
//! did not change from before its rows were read until every open stream shard had passed the moment they had been read:
//! then nothing written before is missing from it, and nothing written since is in it.

use std::time::Duration;

use super::{Batch, Before, Weighed, Wrong};
use crate::counter::Counter;
use crate::ids::{CounterId, RowKey};
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// Why a row key is not proved yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// Rows and counter differ for certain.
    Wrong(Wrong),
    /// The counter changed meanwhile, or nothing tells whether it did.
    Changed {
        /// How many rows there were.
        rows: u64,
        /// By how much counter and rows seem to differ.
        by: u64,
    },
    /// The counter cannot be read.
    Unreadable,
}

impl Doubt {
    /// Nothing was compared yet.
    pub const UNKNOWN: Self = Self::Changed { rows: 0, by: 0 };

    /// What it seems that a count is wrong by, where rows and counter were read at different moments.
    pub(super) fn seeming(key: &RowKey, rows: u64, weight: i128, counter: Option<&Counter>) -> Self {
        let tally = counter.and_then(|counter| counter.shards.get(&key.shard));
        let by = weight.abs_diff(tally.map_or(0, |tally| tally.rows).into());
        Self::Changed { rows, by: u64::try_from(by).unwrap_or(u64::MAX) }
    }
}

/// What a comparison asks for, or tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ProofEffect {
    /// Say up to when every open stream shard is applied, once that may be after this time.
    AwaitApplied(UnixMillis),
    /// Read these counters, consistently, and answer with each of them in this order.
    ReadCounters(Vec<CounterId>),
    /// The comparison is over.
    End {
        /// Row keys proved.
        proved: u64,
        /// The others.
        doubts: Vec<(RowKey, Doubt)>,
    },
}

/// What a comparison is told.
#[derive(Clone, Debug)]
pub enum ProofInput {
    /// Begin.
    Begin,
    /// Up to when every open stream shard is applied; `None` while a shard is open that no reader has met.
    Applied(Option<UnixMillis>),
    /// The next counter asked for, or why it cannot be read.
    Counter(Outcome<Option<Counter>>),
}

/// One comparison under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prover {
    /// Row keys not compared yet, the next one last.
    left: Vec<Weighed>,
    /// The time that every open stream shard has to pass.
    past: UnixMillis,
    stage: Stage,
    proved: u64,
    doubts: Vec<(RowKey, Doubt)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New,
    Applied,
    Counters,
    Over,
}

impl Prover {
    /// A comparison of the row keys of `batch`. `guard` is how far two records of a row key may be out of order.
    pub fn new(batch: Batch, guard: Duration) -> Self {
        let (mut left, past) = (batch.keys, batch.ended.plus(guard));
        left.reverse();
        Self { left, past, stage: Stage::New, proved: 0, doubts: Vec::new() }
    }

    /// Takes an input, and adds what follows to `effects`.
    pub fn step(&mut self, input: ProofInput, effects: &mut Vec<ProofEffect>) {
        match (self.stage, input) {
            (Stage::New, ProofInput::Begin) => {
                self.stage = Stage::Applied;
                effects.push(ProofEffect::AwaitApplied(self.past));
            }
            (Stage::Applied, ProofInput::Applied(Some(as_of))) if as_of > self.past => self.ask(effects),
            // Where no stream shard is open the next ones have not been met yet, so nothing is proved.
            (Stage::Applied, ProofInput::Applied(_)) => effects.push(ProofEffect::AwaitApplied(self.past)),
            (Stage::Counters, ProofInput::Counter(counter)) => {
                if let Some(weighed) = self.left.pop() {
                    self.compare(weighed, &counter);
                }
                self.end_or_wait(effects);
            }
            _ => {}
        }
    }

    fn ask(&mut self, effects: &mut Vec<ProofEffect>) {
        self.stage = Stage::Counters;
        if !self.left.is_empty() {
            let ids = self.left.iter().rev().map(|weighed| weighed.key.counter.clone());
            effects.push(ProofEffect::ReadCounters(ids.collect()));
        }
        self.end_or_wait(effects);
    }

    fn end_or_wait(&mut self, effects: &mut Vec<ProofEffect>) {
        if self.left.is_empty() {
            self.stage = Stage::Over;
            effects.push(ProofEffect::End { proved: self.proved, doubts: std::mem::take(&mut self.doubts) });
        }
    }

    fn compare(&mut self, weighed: Weighed, counter: &Outcome<Option<Counter>>) {
        let doubt = match counter {
            Err(_) => Some(Doubt::Unreadable),
            Ok(counter) if !weighed.before.still_holds(counter.as_ref()) => {
                Some(Doubt::seeming(&weighed.key, weighed.rows, weighed.weight, counter.as_ref()))
            }
            Ok(counter) => Wrong::with(&weighed.key, weighed.weight, counter.as_ref()).map(Doubt::Wrong),
        };
        match doubt {
            Some(doubt) => self.doubts.push((weighed.key, doubt)),
            None => self.proved += 1,
        }
    }
}

impl Before {
    /// Whether `counter`, read now, has not changed since.
    fn still_holds(&self, counter: Option<&Counter>) -> bool {
        match self {
            Self::Applied(horizon) => horizon.covers(counter),
            Self::Unknown => false,
        }
    }
}
