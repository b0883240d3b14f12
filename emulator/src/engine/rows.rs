//! The items of a table, ordered by key and indexed by hash, with a short history from which eventually consistent
//! reads return old values.

use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table;
use smallvec::SmallVec;

use super::image::Image;
use super::key::Key;
use crate::clock::Millis;

/// The most history that is kept. Beyond it, the oldest is dropped: reads become fresher, and memory stays bounded.
const MAX_UNDO: usize = 100_000;

/// The rows of a table.
///
/// Reads and writes of one item find it by hash, at a cost that does not grow with the number of items. Only new and removed
/// keys, and pages of several items, use the order.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    entries: Entries,
    order: BTreeMap<Key, Place>,
    /// The number of keys that have an item.
    live: usize,
    /// The time and place of each undo, oldest first.
    expiry: VecDeque<(Millis, Place)>,
}

/// A range of keys, as a map takes it.
pub(crate) type Range = (Bound<Key>, Bound<Key>);

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The item now, or as it was at `as_of`.
    pub(crate) fn get(&self, key: &Key, as_of: Option<Millis>) -> Option<&Image> {
        self.entries.at(self.entries.find(key)?).seen(as_of)
    }

    /// Sets or removes an item. Its previous value can be read for `lag` milliseconds.
    pub(crate) fn set(&mut self, key: &Key, image: Option<Image>, now: Millis, lag: Millis) {
        let place = match self.entries.find(key) {
            Some(place) => place,
            None if image.is_none() => return,
            None => {
                let place = self.entries.add(key.clone());
                self.order.insert(key.clone(), place);
                place
            }
        };
        let entry = self.entries.at_mut(place);
        let is = image.is_some();
        let before = std::mem::replace(&mut entry.now, image);
        self.live = self.live + usize::from(is) - usize::from(before.is_some());
        if lag > 0 {
            entry.past.push(Undo { changed: now, before });
            self.expiry.push_back((now, place));
            self.forget(now, lag);
        } else {
            self.drop_if_gone(place);
        }
    }

    fn forget(&mut self, now: Millis, lag: Millis) {
        while let Some(&(changed, place)) = self.expiry.front()
            && (changed.saturating_add(lag) < now || self.expiry.len() > MAX_UNDO)
        {
            self.expiry.pop_front();
            self.entries.at_mut(place).past.remove(0);
            self.drop_if_gone(place);
        }
    }

    /// Removes an entry that has neither an item nor history.
    fn drop_if_gone(&mut self, place: Place) {
        let entry = self.entries.at(place);
        if entry.now.is_none() && entry.past.is_empty() {
            self.order.remove(&entry.key);
            self.entries.remove(place);
        }
    }

    /// The items of a range in either direction, now or as they were at `as_of`.
    pub(crate) fn range(
        &self,
        range: Range,
        forward: bool,
        as_of: Option<Millis>,
    ) -> Box<dyn Iterator<Item = (&Key, &Image)> + '_> {
        if is_empty(&range) {
            return Box::new(std::iter::empty());
        }
        let seen = move |place: &Place| {
            let entry = self.entries.at(*place);
            Some((&entry.key, entry.seen(as_of)?))
        };
        let places = self.order.range(range).map(|(_, place)| place);
        if forward { Box::new(places.filter_map(seen)) } else { Box::new(places.rev().filter_map(seen)) }
    }
}

/// Whether a map would panic on this range, or find nothing in it.
fn is_empty((low, high): &Range) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        _ => false,
    }
}

/// A key's item and its history.
#[derive(Debug)]
struct Entry {
    key: Key,
    now: Option<Image>,
    /// Oldest first.
    past: SmallVec<[Undo; 1]>,
}

/// A previous value that a lagging replica may still return.
#[derive(Debug)]
struct Undo {
    changed: Millis,
    before: Option<Image>,
}

impl Entry {
    /// The item that a reader at this time sees.
    fn seen(&self, as_of: Option<Millis>) -> Option<&Image> {
        let undo = as_of.and_then(|as_of| self.past.iter().find(|undo| undo.changed > as_of));
        undo.map_or(&self.now, |undo| &undo.before).as_ref()
    }
}

/// The index of an entry, valid until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

/// Entries, indexed by hash. An entry never moves when it is overwritten.
#[derive(Debug, Default)]
struct Entries {
    slots: Vec<Option<Entry>>,
    free: Vec<Place>,
    by_hash: HashTable<Place>,
}

impl Entries {
    fn find(&self, key: &Key) -> Option<Place> {
        self.by_hash.find(hash(key), |place| self.at(*place).key == *key).copied()
    }

    fn at(&self, place: Place) -> &Entry {
        self.slots[place.0 as usize].as_ref().expect("a place is forgotten with its entry")
    }

    fn at_mut(&mut self, place: Place) -> &mut Entry {
        self.slots[place.0 as usize].as_mut().expect("a place is forgotten with its entry")
    }

    /// Adds an entry for a new key.
    fn add(&mut self, key: Key) -> Place {
        let entry = Some(Entry { key, now: None, past: SmallVec::new() });
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place.0 as usize] = entry;
                place
            }
            None => {
                self.slots.push(entry);
                Place(u32::try_from(self.slots.len() - 1).expect("memory ends before four billion items"))
            }
        };
        let Self { slots, by_hash, .. } = self;
        let key_at = |place: &Place| &slots[place.0 as usize].as_ref().expect("the index holds live places only").key;
        by_hash.insert_unique(hash(key_at(&place)), place, |place| hash(key_at(place)));
        place
    }

    fn remove(&mut self, place: Place) {
        let Some(entry) = self.slots[place.0 as usize].take() else { return };
        if let Ok(found) = self.by_hash.find_entry(hash(&entry.key), |at| *at == place) {
            hash_table::OccupiedEntry::remove(found);
        }
        self.free.push(place);
    }
}

fn hash(key: &Key) -> u64 {
    FixedState::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::schema::{KeyAttribute, Schema};
    use crate::value::{Item, Value};

    const LAG: Millis = 50;

    fn key(n: u8) -> Key {
        Key::new(&Value::S(format!("p{}", n % 3)), &[&Value::S(format!("s{n}"))])
    }

    fn image(version: u64) -> Image {
        let schema = Schema { hash: KeyAttribute { name: "v".to_owned(), key_type: "N" }, range: None };
        Image::new(&Item::from_iter([("v".to_owned(), Value::N(i64::try_from(version).unwrap().into()))]), &schema)
    }

    proptest! {
        /// Keeps every earlier state with its time.
        #[test]
        fn a_late_read_sees_exactly_a_state_that_was(
            writes in proptest::collection::vec((0u8..8, any::<bool>(), 0u64..20), 1..200),
            late in 0u64..=LAG,
        ) {
            let mut rows = Rows::default();
            let mut states: Vec<(Millis, BTreeMap<Key, Image>)> = vec![(0, BTreeMap::new())];
            let mut now = 1;
            for (n, (at, present, passed)) in writes.into_iter().enumerate() {
                now += passed;
                let image = present.then(|| image(n as u64));
                rows.set(&key(at), image.clone(), now, LAG);
                let mut state = states.last().unwrap().1.clone();
                match image {
                    Some(image) => state.insert(key(at), image),
                    None => state.remove(&key(at)),
                };
                states.push((now, state));

                let everything = (Bound::Unbounded, Bound::Unbounded);
                let as_of = now.saturating_sub(late);
                let then = &states.iter().rev().find(|(changed, _)| *changed <= as_of).unwrap().1;
                let latest = &states.last().unwrap().1;
                prop_assert_eq!(rows.len(), latest.len());
                for (state, as_of) in [(then, Some(as_of)), (latest, None)] {
                    let seen: Vec<_> = rows.range(everything.clone(), true, as_of).collect();
                    prop_assert_eq!(&seen, &state.iter().collect::<Vec<_>>());
                    let mut backwards: Vec<_> = rows.range(everything.clone(), false, as_of).collect();
                    backwards.reverse();
                    prop_assert_eq!(&backwards, &seen);
                    for n in 0..8 {
                        prop_assert_eq!(rows.get(&key(n), as_of), state.get(&key(n)));
                    }
                }
            }
            let kept = rows.order.len();
            rows.forget(now + LAG + 1, LAG);
            prop_assert!(rows.order.len() <= kept);
            prop_assert_eq!(rows.order.len(), rows.live, "a deleted item is forgotten in the end");
            prop_assert_eq!(rows.entries.by_hash.len(), rows.live);
        }
    }
}
