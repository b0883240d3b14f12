//! Every change of every counter in the embedded store, and from these and the stream who was first at which threshold: what
//! the comparison holds the milestones against.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_core::ids::{CounterId, Ordinal};
use tally_core::milestone::{Change, First, Ladder, Replay, is_within};
use tally_core::tally::{Record, RecordKind};
use tally_emulator::value::Item;
use tally_emulator::{ControlError, Emulator};

/// The records of the stream, by the ordinals of its shards.
pub(crate) type Records = BTreeMap<Ordinal, Vec<Record>>;

/// The changes of all counters so far; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<Mutex<BTreeMap<CounterId, Vec<Change>>>>);

impl Changes {
    /// Those of the counters in the table `counts` of `emulator` from now on.
    ///
    /// # Errors
    /// There is no such table.
    pub(crate) fn of(emulator: &Emulator, counts: &str) -> Result<Self, ControlError> {
        let changes = Self::default();
        let kept = changes.clone();
        emulator.watch(counts, move |changed| {
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

    /// What reached which threshold of each counter first.
    pub(crate) fn replayed(&self, records: &Records, ladder: &Ladder) -> BTreeMap<CounterId, BTreeMap<i64, First>> {
        let by_counter = by_counter(records);
        let kept = self.kept();
        let replayed = kept.iter().map(|(id, changes)| {
            let mut replay = Replay::default();
            for change in changes {
                let Some((shard, from, to)) = change.moved else { continue };
                let of_counter = by_counter.get(&(shard, id)).map_or(&[][..], Vec::as_slice);
                let begin = of_counter.partition_point(|record| Some(record.sequence) <= from);
                let records = of_counter[begin..].iter().copied();
                replay.follow(change, records.take_while(|record| is_within(record, id, from, to)), ladder);
            }
            (id.clone(), replay.firsts().clone())
        });
        replayed.collect()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<CounterId, Vec<Change>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The records of each counter in each stream shard, in order.
fn by_counter(records: &Records) -> BTreeMap<(Ordinal, &CounterId), Vec<&Record>> {
    let mut found: BTreeMap<(Ordinal, &CounterId), Vec<&Record>> = BTreeMap::new();
    for (shard, records) in records {
        for record in records {
            if let RecordKind::Row { key, .. } = &record.kind {
                found.entry((*shard, &key.counter)).or_default().push(record);
            }
        }
    }
    found
}
