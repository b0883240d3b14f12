//! The items of a table, ordered by key and indexed by hash, with a short history from which eventually consistent
//! reads return old values.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
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
    entries: Vec<Entry>,
    /// The indexes of the entries that no key has.
    free: Vec<usize>,
    /// The index of the entry of each key.
    places: HashMap<Key, usize, FixedState>,
    /// The same, ordered by key.
    order: BTreeMap<Key, usize>,
    /// The number of keys that have an item.
    live: usize,
    /// The time and key of each undo, oldest first.
    expiry: VecDeque<(Millis, Key)>,
}

/// A range of keys, as a map takes it.
pub(crate) type Range = (Bound<Key>, Bound<Key>);

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The item now, or as it was at `as_of`.
    pub(crate) fn get(&self, key: &Key, as_of: Option<Millis>) -> Option<&Image> {
        self.entries[*self.places.get(key)?].seen(as_of)
    }

    /// Sets or removes an item. Its previous value can be read for `lag` milliseconds.
    pub(crate) fn set(&mut self, key: &Key, image: Option<Image>, now: Millis, lag: Millis) {
        let place = match self.places.get(key) {
            Some(place) => *place,
            None if image.is_none() => return,
            None => self.add(key),
        };
        let entry = &mut self.entries[place];
        let is = image.is_some();
        let before = std::mem::replace(&mut entry.now, image);
        self.live = self.live + usize::from(is) - usize::from(before.is_some());
        if lag > 0 {
            entry.past.push(Undo { changed: now, before });
            self.expiry.push_back((now, key.clone()));
            self.forget(now, lag);
        } else if !is {
            self.drop_if_gone(key);
        }
    }

    /// Gives a new key an empty entry, and returns its index.
    fn add(&mut self, key: &Key) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        self.places.insert(key.clone(), place);
        self.order.insert(key.clone(), place);
        place
    }

    fn forget(&mut self, now: Millis, lag: Millis) {
        while self.expiry.front().is_some_and(|(changed, _)| changed.saturating_add(lag) < now)
            || self.expiry.len() > MAX_UNDO
        {
            let Some((_, key)) = self.expiry.pop_front() else { return };
            if let Some(place) = self.places.get(&key) {
                self.entries[*place].past.remove(0);
            }
            self.drop_if_gone(&key);
        }
    }

    /// Removes an entry that has neither an item nor history.
    fn drop_if_gone(&mut self, key: &Key) {
        let gone = |place: &&usize| self.entries[**place].now.is_none() && self.entries[**place].past.is_empty();
        if let Some(place) = self.places.get(key).filter(gone) {
            self.free.push(*place);
            self.order.remove(key);
            self.places.remove(key);
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
        let seen = move |(key, place): (_, &usize)| Some((key, self.entries[*place].seen(as_of)?));
        let places = self.order.range(range);
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
#[derive(Debug, Default)]
struct Entry {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::schema::{KeyAttribute, Schema};
    use crate::value::{Item, Value};

    #[test]
    fn a_deleted_item_is_seen_within_the_lag_and_then_forgotten() {
        let schema = Schema { hash: KeyAttribute { name: "p".to_owned(), key_type: "S" }, range: None };
        let item = Item::from_iter([("p", Value::S("a".to_owned()))]);
        let key = schema.key_of(&item).unwrap();
        let mut rows = Rows::default();
        rows.set(&key, Some(Image::new(&item, &schema)), 0, 50);
        rows.set(&key, None, 10, 50);
        assert!(rows.get(&key, Some(9)).is_some() && rows.get(&key, Some(10)).is_none());
        rows.forget(61, 50);
        assert!(rows.places.is_empty() && rows.order.is_empty() && rows.free == [0]);
    }
}
