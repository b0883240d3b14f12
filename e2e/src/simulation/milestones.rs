//! Every change of every counter, as the store tells it, and from these and the stream's records who reached which threshold
//! first: what the milestones have to be.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use tally_core::ids::{CounterId, Ordinal, Sequence, StreamShardId};
use tally_core::milestone::{Change, First, Ladder, Milestone, Replay, is_within};
use tally_core::tally::Record;
use tally_emulator::value::Item;
use tally_emulator::{ControlError, Emulator};

use super::archive::Archive;

/// The table of counters.
const COUNTS: &str = "like_counts";

/// The changes of all counters so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<Mutex<BTreeMap<CounterId, Vec<Change>>>>);

impl Changes {
    /// Those of the counters in `emulator` from now on.
    pub(crate) fn of(emulator: &Emulator) -> Result<Self, ControlError> {
        let changes = Self::default();
        let kept = changes.clone();
        emulator.watch(COUNTS, move |changed| {
            if let Some(new) = &changed.new {
                kept.keep(changed.old.as_ref(), new);
            }
        })?;
        Ok(changes)
    }

    fn keep(&self, old: Option<&Item>, new: &Item) {
        let Some(id) = new.text("post_id").and_then(|id| id.parse().ok()) else { return };
        let numbers = |name: &str| (old.and_then(|old| old.whole(name)), new.whole(name));
        let names = new.iter().map(|(name, _)| name.as_str());
        let texts = names.filter_map(|name| Some((name, old.and_then(|old| old.text(name)), new.text(name)?)));
        let change = Change::of(numbers, texts);
        self.kept().entry(id).or_default().push(change);
    }

    /// Holds `recorded` of `counter`, upwards, against what its changes say.
    pub(crate) fn judge(
        &self,
        counter: &CounterId,
        recorded: &[Milestone],
        ladder: &Ladder,
        stream: &Stream<'_>,
    ) -> anyhow::Result<u64> {
        let kept = self.kept();
        let changes = kept.get(counter).map_or(&[][..], Vec::as_slice);
        if stream.is_lossy {
            return reached(changes, recorded, ladder).with_context(|| format!("milestones of {counter}"));
        }
        let mut replay = Replay::default();
        for change in changes {
            let Some((shard, from, to)) = change.moved else { continue };
            let records = stream.records(counter, shard, from, to)?;
            let gained: i64 = records.iter().map(|record| record.delta()).sum();
            ensure!(
                gained == change.after - change.before,
                "{counter} gained {} by records that add {gained}: {change:?}",
                change.after - change.before
            );
            replay.follow(change, records.into_iter(), ladder);
        }
        let told: BTreeMap<i64, First> =
            recorded.iter().map(|milestone| (milestone.n, First::from(milestone))).collect();
        let right = replay.firsts();
        ensure!(told == *right, "milestones of {counter} are {told:?}, and its changes say {right:?}");
        Ok(right.len() as u64)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<CounterId, Vec<Change>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream's records, by the ordinals that its shards have.
pub(crate) struct Stream<'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) ordinals: &'a BTreeMap<Ordinal, StreamShardId>,
    /// Pieces of it were lost: updates do not have all records up to their watermark.
    pub(crate) is_lossy: bool,
}

impl<'a> Stream<'a> {
    /// The records of `counter` that one update has, in order.
    fn records(
        &self,
        counter: &CounterId,
        shard: Ordinal,
        from: Option<Sequence>,
        to: Sequence,
    ) -> anyhow::Result<Vec<&'a Record>> {
        let id = self.ordinals.get(&shard).with_context(|| format!("no stream shard has the ordinal {shard}"))?;
        let records = self.archive.records(id).iter();
        Ok(records.filter(|record| is_within(record, counter, from, to)).collect())
    }
}

/// What can be said where pieces of the stream were lost, so that what an update has is not known: what one left at a
/// threshold or above it is recorded, and each record came with an update of a stream shard.
fn reached(changes: &[Change], recorded: &[Milestone], ladder: &Ladder) -> anyhow::Result<u64> {
    let updates = || changes.iter().filter(|change| change.moved.is_some());
    let moving = updates().filter(|change| change.before != change.after);
    let left = moving.map(|change| change.after).max().unwrap_or(0);
    let mut missing = ladder.crossed(None, left).thresholds.into_iter();
    let skipped = |n| recorded.iter().any(|milestone| milestone.skipped > 0 && milestone.n > n);
    let missing = missing.find(|n| !recorded.iter().any(|milestone| milestone.n == *n) && !skipped(*n));
    ensure!(missing.is_none(), "{missing:?} was reached and is not recorded");
    let spare = recorded.iter().find(|milestone| !updates().any(|change| change.version == milestone.version));
    ensure!(spare.is_none(), "{spare:?} is recorded, and no update of a stream shard left that version");
    Ok(recorded.len() as u64)
}
