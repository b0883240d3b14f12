//! Records how many rows each counter has at each moment, or their sum, as the truth that simulation and attacks
//! compare answers and trending lists with. It is kept for each row key, the partition key of a part of a counter's
//! rows.
//!
//! The emulated DynamoDB reports every change, so the history includes changes that no stream shows: rows written while
//! the stream was off, and trimmed records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, MemberKey, Region, RowKey, Shard};
use tally_core::register::Version;
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};
use tally_emulator::value::{Item, Value};
use tally_emulator::{Changed, ControlError, Emulator};

use crate::simulation::registers::{number, version_in};

/// The table of rows.
pub(crate) const LIKES: &str = "likes";

/// The rows of every row key over time. Clones share the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<Kept>>);

/// The changes of each row key, in order of time.
type Keys = BTreeMap<CounterId, BTreeMap<Shard, Vec<Step>>>;

/// A change of the total weight of a row key.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: UnixMillis,
    /// The new total weight.
    rows: i64,
    /// When the event behind it was produced, if the member is present.
    said: Option<UnixMillis>,
}

/// The time from which on values count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// Changes of rows before this time are included.
    pub(crate) rows: UnixMillis,
    /// Events produced before this time are included as well, if they are rows by now.
    pub(crate) said: Option<UnixMillis>,
}

#[derive(Debug, Default)]
struct Kept {
    keys: Keys,
    /// The number of unreadable rows of a counter, if there are any, and since when.
    unreadable: BTreeMap<CounterId, (i64, UnixMillis)>,
    /// The newest version that each row had.
    reached: BTreeMap<(String, String), Version>,
    /// Every change of a row that was readable before and after it.
    changes: Vec<RowChange>,
    /// The number of partitions of the events, if rows have the time by the store's clock at which Kafka acknowledged their
    /// event.
    dated: Option<u32>,
    /// The positions of events that were produced before their definition. Each may be a dead letter, and a row once it is
    /// read again.
    early: BTreeSet<(u32, u64)>,
}

/// A change of one row.
#[derive(Clone, Debug)]
pub(crate) struct RowChange {
    pub(crate) counter: CounterId,
    /// The second of the change.
    pub(crate) second: u64,
    /// The region and the weight before the change.
    pub(crate) before: (Option<Region>, i64),
    pub(crate) after: (Option<Region>, i64),
}

impl History {
    /// The history of the rows in `emulator` from now on.
    pub(crate) fn of(emulator: &Emulator) -> Result<Self, ControlError> {
        let history = Self::default();
        let kept = history.clone();
        emulator.watch(LIKES, move |changed| kept.keep(&changed))?;
        Ok(history)
    }

    /// A history of rows with the time of their event's acknowledgement; [`keep`](Self::keep) adds the changes.
    pub(crate) fn dated(partitions: u32) -> Self {
        let history = Self::default();
        history.0.lock().dated = Some(partitions);
        history
    }

    /// The event at this position was produced before its definition.
    pub(crate) fn said_early(&self, place: (u32, u64)) {
        self.0.lock().early.insert(place);
    }

    /// Adds a change of a row.
    pub(crate) fn keep(&self, changed: &Changed) {
        let Some((key, is_cell)) = changed.new.as_ref().or(changed.old.as_ref()).and_then(row_key) else { return };
        let at = UnixMillis(changed.at_ms);
        let weight =
            |item: &Option<Item>| item.as_ref().map_or(Some(Weight::ABSENT), |item| stated(item).weight(is_cell));
        let (old, new) = (weight(&changed.old), weight(&changed.new));
        let unreadable = i64::from(new.is_none()) - i64::from(old.is_none());
        if unreadable != 0 {
            self.unreadable(&key.counter, at, unreadable);
        }
        if let (Some(old), Some(new)) = (old, new) {
            let side = |item: &Option<Item>, weight: Weight| {
                (item.as_ref().and_then(|item| Region::new(item.text("region")?)), weight.get())
            };
            let (before, after) = (side(&changed.old, old), side(&changed.new, new));
            let (counter, second) = (key.counter.clone(), changed.at_ms / 1000);
            self.0.lock().changes.push(RowChange { counter, second, before, after });
        }
        let said = changed.new.as_ref().and_then(|item| self.0.lock().said(&key.counter, item, changed.old.is_none()));
        let change = new.unwrap_or_default().less(old.unwrap_or_default());
        if change != 0 {
            self.add(key, (at, said), change);
        }
    }

    /// Adds a change of a key's rows at one time, by an event that was produced at another.
    pub(crate) fn add(
        &self,
        RowKey { counter, shard }: RowKey,
        (at, said): (UnixMillis, Option<UnixMillis>),
        change: i64,
    ) {
        let keys = &mut self.0.lock().keys;
        let changes = keys.entry(counter).or_default().entry(shard).or_default();
        let rows = changes.last().map_or(0, |last| last.rows);
        changes.push(Step { at, rows: rows + change, said });
    }

    /// This many more rows of `counter` are unreadable, or fewer if `more` is negative.
    pub(crate) fn unreadable(&self, counter: &CounterId, at: UnixMillis, more: i64) {
        let unreadable = &mut self.0.lock().unreadable;
        let (rows, _) = unreadable.entry(counter.clone()).or_insert((0, at));
        *rows += more;
        if *rows <= 0 {
            unreadable.remove(counter);
        }
    }

    /// Since when a row of `counter` has been unreadable, if one is.
    pub(crate) fn unreadable_since(&self, counter: &CounterId) -> Option<UnixMillis> {
        self.0.lock().unreadable.get(counter).map(|(_, since)| *since)
    }

    /// The sums of the least and of the greatest weights that the keys of `counter` had since `from`, as seen through a stream
    /// that may swap two changes of one key if they are at most `reorder` apart. A change at `from` itself counts as before
    /// and after it.
    pub(crate) fn bounds(&self, counter: &CounterId, from: Since, reorder: Duration) -> (i64, i64) {
        let keys = &self.0.lock().keys;
        let shards = keys.get(counter).into_iter().flat_map(BTreeMap::values);
        shards.fold((0, 0), |(least, greatest), changes| {
            let (low, high) = key_bounds(changes, from, reorder);
            (least + low, greatest + high)
        })
    }

    /// The changes of rows since the last call.
    pub(crate) fn take_rows(&self) -> Vec<RowChange> {
        std::mem::take(&mut self.0.lock().changes)
    }

    /// How often a row's weight has changed so far.
    pub(crate) fn changes(&self) -> u64 {
        self.0.lock().keys.values().flat_map(BTreeMap::values).map(|changes| changes.len() as u64).sum()
    }
}

/// The least and the greatest weight of one key's rows. Changes at most `reorder` before the latest shown one may not have been
/// shown yet; all earlier ones have.
fn key_bounds(changes: &[Step], from: Since, reorder: Duration) -> (i64, i64) {
    let rows = |first: usize| first.checked_sub(1).map_or(0, |nth| changes[nth].rows);
    let later = changes.partition_point(|step| step.at < from.rows);
    let is_in = |step: &Step| step.said.zip(from.said).is_some_and(|(said, from)| said < from);
    let later = changes.iter().rposition(is_in).map_or(later, |last| later.max(last + 1));
    let (mut low, mut high) = (rows(later), rows(later));
    for latest in later..changes.len() {
        let since = changes[latest].at.minus(reorder);
        let open = later + changes[later..=latest].partition_point(|step| step.at < since);
        let shown = (open..=latest).map(|nth| rows(nth + 1) - rows(nth));
        let (lost, won) = shown.fold((0, 0), |(lost, won), change| (lost + change.min(0), won + change.max(0)));
        if reorder.is_zero() {
            (low, high) = (low.min(rows(latest + 1)), high.max(rows(latest + 1)));
        } else {
            (low, high) = (low.min(rows(open) + lost), high.max(rows(open) + won));
        }
    }
    (low, high)
}

/// The row key of an item, and whether it is a cell; `None` if the item does not count.
fn row_key(item: &Item) -> Option<(RowKey, bool)> {
    let member = MemberKey::new(item.text("user_id")?)?;
    Some((item.text("pk")?.parse().ok()?, member.is_cell()))
}

/// The weight that an item states. A tombstone weighs nothing.
fn stated(item: &Item) -> Stated {
    match item.get("n") {
        _ if item.get("gone").is_some() => Stated::Amount(Weight::ABSENT),
        None => Stated::Nothing,
        Some(Value::N(n)) => Stated::number(&n.to_string()),
        Some(_) => Stated::Unreadable,
    }
}

impl Kept {
    /// When the event of a present member was produced. It is unknown if no `as_of` covers the event: because it is misrouted,
    /// or may have been a dead letter before it was a row, or comes back since a replay reads it after its row was deleted.
    fn said(&mut self, counter: &CounterId, item: &Item, is_new: bool) -> Option<UnixMillis> {
        let partitions = self.dated?;
        let version = version_in(item, "v").filter(|version| version.is_routed())?;
        let row = (item.text("pk")?.to_owned(), item.text("user_id")?.to_owned());
        let reached = self.reached.entry(row).or_insert(version);
        let comes_back = version < std::mem::replace(reached, version.max(*reached)) && is_new;
        let place = (partition_of(counter.post.as_bytes(), partitions), version.offset().0);
        let is_known = !comes_back && !self.early.contains(&place) && item.get("gone").is_none();
        number(item, "liked_at").filter(|_| is_known).map(UnixMillis)
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::PostId;
    use tally_core::topic::Offset;

    use super::*;

    fn id() -> CounterId {
        CounterId::likes(PostId::new("p").expect("an id"))
    }

    #[test]
    fn only_changes_that_the_stream_may_swap_widen_the_bounds() {
        let history = History::default();
        for (at, change) in [(10, 5), (100, -1), (110, 1), (500, -1), (600, 1)] {
            history.add(RowKey::first(&id()), (UnixMillis(at), None), change);
        }
        let from = Since { rows: UnixMillis(50), said: None };
        let bounds = |reorder| history.bounds(&id(), from, Duration::from_millis(reorder));
        assert_eq!(bounds(0), (4, 5));
        assert_eq!(bounds(9), (4, 5));
        assert_eq!(bounds(10), (4, 6), "the later of two came first");
        assert_eq!(bounds(99), (4, 6), "and so does no more than one pair at a time");
    }
    #[test]
    fn an_event_that_a_replay_brings_back_is_not_said_anew() {
        let mut kept = Kept { dated: Some(1), ..Kept::default() };
        let mut said = |offset, is_new| {
            let number = |n: &str| Value::N(n.parse().expect("a number"));
            let text = |text: &str| Value::S(text.to_owned());
            let version = number(&Version::new(1, true, Offset(offset)).to_string());
            let named = [("pk", text("p#0")), ("user_id", text("u")), ("v", version), ("liked_at", number("5"))];
            let item: Item = named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            kept.said(&id(), &item, is_new).map(|at| at.0)
        };
        assert_eq!((said(3, true), said(7, false)), (Some(5), Some(5)));
        assert_eq!(said(3, false), Some(5), "no replay takes a row back, which another law finds");
        assert_eq!((said(3, true), said(7, true)), (None, Some(5)));
    }
}
