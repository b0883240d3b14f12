//! The item of one counter, the conditional update that changes it, and what follows when the update is refused.
//!
//! The store evaluates the conditions on its side. [`Counter::refusal`] says what they mean; the in-memory store runs it.

mod refusal;

use std::collections::BTreeMap;

use thiserror::Error;

pub use refusal::{ClosedAncestry, Retry, after_refusal};

use crate::ids::{CounterKind, Ordinal, Sequence, Shard};
use crate::milestone::{Bound, Guard};
use crate::time::UnixMillis;
use crate::watermark::{Prune, Reach, Watermarks};
use crate::window::WindowRun;

/// One item of the counts table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counter {
    /// `likes`: the total that is served. A negative total is stored as it is.
    pub likes: i64,
    /// `version`: one more with every change.
    pub version: u64,
    /// `updated_at`.
    pub updated_at: UnixMillis,
    /// `w<g>` and `fl`.
    pub watermarks: Watermarks,
    /// Its shards.
    pub shards: BTreeMap<Shard, ShardTally>,
    /// `mt`: the greatest threshold that is recorded.
    pub recorded: Option<i64>,
    /// `ml`: how many entries of the ladder are in force for it. An update by a sender that knows fewer is refused.
    pub ladder: u32,
}

/// What a counter keeps of one of its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardTally {
    /// `s<k>`: the rows' weights, as far as the stream is applied.
    pub rows: i64,
    /// `o<k>`: the stream shard that last changed it.
    pub feeder: Option<Ordinal>,
    /// `x<k>`: how often the feeder changed from one open stream shard to another, or the shard was marked as suspect.
    pub switches: u64,
    /// `sus<k>`: it may be wrong, since two open stream shards fed it, an update of it was refused for good, or the weight of
    /// one of its rows is not readable. A plain recount window cannot prove it.
    pub suspect: bool,
    /// `hr<k>` and `hs<k>`.
    pub window: Option<Window>,
}

/// A recount window's token: the run, and the shard's rows at the position of its closing marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// `hr<k>`.
    pub run: WindowRun,
    /// `hs<k>`.
    pub rows: i64,
}

/// An addition left 64 bits: no right count does, so the item is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a count leaves the range of 64 bits")]
pub struct Overflow;

impl Counter {
    /// The sum over the shards, which the total has to equal.
    pub fn sum(&self) -> Result<i64, Overflow> {
        self.shards.values().try_fold(0i64, |sum, shard| sum.checked_add(shard.rows)).ok_or(Overflow)
    }

    /// Whether a set's total may be right as far as the item says. (It may be wrong all the same while a gap is open.)
    pub fn is_sound(&self) -> bool {
        self.is_sound_as(CounterKind::Set)
    }

    /// The same of a counter of a kind: a set has no fewer members than none, a sum may well be below zero.
    pub fn is_sound_as(&self, kind: CounterKind) -> bool {
        let possible = self.likes >= 0 || kind == CounterKind::Sum;
        possible && self.shards.values().all(|shard| !shard.suspect) && self.sum() == Ok(self.likes)
    }

    /// The greatest number of a stream shard that it knows: as a watermark, a feeder or the floor.
    pub fn greatest_ordinal(&self) -> Option<Ordinal> {
        let marked = self.watermarks.marks().keys().next_back().copied();
        let fed = self.shards.values().filter_map(|tally| tally.feeder).max();
        marked.max(fed).max(self.watermarks.floor())
    }

    /// Why `update` would be refused; `None` where it would be taken.
    pub fn refusal(&self, update: &Update) -> Option<Refusal> {
        if !self.watermarks.admits(update.shard, update.first) {
            return Some(Refusal::Applied);
        }
        if update.prune.as_ref().is_some_and(|prune| !self.watermarks.admits_floor(prune.floor)) {
            return Some(Refusal::Floor);
        }
        if update.touched.iter().any(|touch| !self.admits_feeder(update, touch)) {
            return Some(Refusal::Feeder);
        }
        let guard = update.guard.as_ref()?;
        if self.ladder > guard.knows {
            return Some(Refusal::Ladder);
        }
        (!guard.bound.admits(self.likes, self.version)).then_some(Refusal::Total)
    }

    fn admits_feeder(&self, update: &Update, touch: &Touch) -> bool {
        let feeder = self.shards.get(&touch.shard).and_then(|tally| tally.feeder);
        match touch.feeder {
            Feeder::Usual => feeder.is_none_or(|feeder| update.feeds_after(feeder)),
            Feeder::Inherit { from } | Feeder::Contest { from } => feeder == Some(from),
        }
    }

    /// The item after `update`, which it does not refuse.
    pub fn updated(mut self, update: &Update) -> Result<Self, Overflow> {
        self.likes = self.likes.checked_add(update.total()?).ok_or(Overflow)?;
        self.version += 1;
        self.updated_at = update.at;
        self.watermarks.advance(update.shard, update.last);
        for touch in &update.touched {
            let tally = self.shards.entry(touch.shard).or_default();
            if let Some(run) = touch.window {
                tally.window = Some(Window { run, rows: tally.rows });
            }
            tally.rows = tally.rows.checked_add(touch.delta).ok_or(Overflow)?;
            tally.feeder = Some(update.shard);
            if touch.makes_suspect() {
                tally.switches += 1;
                tally.suspect = true;
            }
        }
        if let Some(prune) = &update.prune {
            self.watermarks.prune(prune);
        }
        if let Some(guard) = &update.guard {
            self.ladder = guard.knows;
            if let Bound::Crossing { through, .. } = guard.bound {
                self.recorded = Some(through);
            }
        }
        Ok(self)
    }
}

/// One conditional update of a counter by one stream shard. Repeating it is safe: its condition wants the watermark absent
/// that it sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// `g`: the stream shard the records came from.
    pub shard: Ordinal,
    /// The first record contained.
    pub first: Sequence,
    /// The last record contained: the new watermark.
    pub last: Sequence,
    /// When it was made.
    pub at: UnixMillis,
    /// What changes, each shard at most once.
    pub touched: Vec<Touch>,
    /// Stream shards that may have fed before without contest: the nearest closed ancestors of `shard`.
    pub ancestors: Vec<Ordinal>,
    /// `F`: every stream shard up to it is closed, so it too may have fed before.
    pub closed_through: Option<Ordinal>,
    /// Watermarks to be replaced by a floor on the way.
    pub prune: Option<Prune>,
    /// What it wants of the total, and which thresholds it records; `None` where it does not change the total.
    pub guard: Option<Guard>,
}

/// What an update does to one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The shard.
    pub shard: Shard,
    /// Weight gained or lost; 0 for a marker.
    pub delta: i64,
    /// How the stream shard comes to feed this shard.
    pub feeder: Feeder,
    /// The run whose closing marker this update stands for; its delta is 0, so that the token holds the rows exactly there.
    pub window: Option<WindowRun>,
    /// It may be wrong from now on: the weight of one of its rows is not readable.
    pub doubt: bool,
}

impl Touch {
    /// Whether the shard is marked as suspect with it.
    pub fn makes_suspect(&self) -> bool {
        self.doubt || matches!(self.feeder, Feeder::Contest { .. })
    }
}

/// What an update expects of a shard's last feeder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feeder {
    /// None, this stream shard itself, a closed ancestor, or one at or below `F`.
    Usual,
    /// This one, seen in a refusal: closed, and an ancestor too far away to be listed.
    Inherit {
        /// The feeder seen.
        from: Ordinal,
    },
    /// This one, seen in a refusal: open, so two stream shards feed one row key. Counted and flagged.
    Contest {
        /// The feeder seen.
        from: Ordinal,
    },
}

impl Update {
    /// What the total gains.
    pub fn total(&self) -> Result<i64, Overflow> {
        self.touched.iter().try_fold(0i64, |sum, touch| sum.checked_add(touch.delta)).ok_or(Overflow)
    }

    /// Whether this update may follow one by stream shard `feeder` without contest.
    pub fn feeds_after(&self, feeder: Ordinal) -> bool {
        feeder == self.shard
            || self.ancestors.contains(&feeder)
            || self.closed_through.is_some_and(|through| feeder <= through)
    }
}

/// Which condition of an update did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Some of its records are in the counter already, or its stream shard is finished.
    Applied,
    /// The counter's floor is higher than the one it would set.
    Floor,
    /// Another stream shard fed one of the shards it touches.
    Feeder,
    /// More entries of the ladder are in force than its sender knows.
    Ladder,
    /// The total is not where it has to be for no threshold to be passed unrecorded.
    Total,
}

/// Whether `counter` has everything of `shard` up to `sequence`.
pub fn contains(counter: &Counter, shard: Ordinal, sequence: Sequence) -> bool {
    match counter.watermarks.reach(shard) {
        Reach::Untouched => false,
        Reach::Through(mark) => mark >= sequence,
        Reach::Finished => true,
    }
}
