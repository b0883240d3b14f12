//! The items of a table, ordered by key and indexed by hash, with a short history from which eventually consistent
//! reads return old values.

use std::collections::{BTreeSet, VecDeque};
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
    entries: HashMap<Key, Entry, FixedState>,
    /// The keys of all entries.
    order: BTreeSet<Key>,
    /// The number of keys that have an item.
    live: usize,
    /// The time and key of each undo, oldest first.
    expiry: VecDeque<(Millis, Key)>,
}

/// A range of keys, as a set takes it.
pub(crate) type Range = (Bound<Key>, Bound<Key>);

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The item now, or as it was at `as_of`.
    pub(crate) fn get(&self, key: &Key, as_of: Option<Millis>) -> Option<&Image> {
        self.entries.get(key)?.seen(as_of)
    }

    /// Sets or removes an item. Its previous value can be read for `lag` milliseconds.
    pub(crate) fn set(&mut self, key: &Key, image: Option<Image>, now: Millis, lag: Millis) {
        let entry = match self.entries.get_mut(key) {
            Some(entry) => entry,
            None if image.is_none() => return,
            None => {
                self.order.insert(key.clone());
                self.entries.entry(key.clone()).or_default()
            }
        };
        let is = image.is_some();
        let before = std::mem::replace(&mut entry.now, image);
        self.live = self.live + usize::from(is) - usize::from(before.is_some());
        if lag > 0 {
            entry.past.push(Undo { changed: now, before });
            self.expiry.push_back((now, key.clone()));
            self.forget(now, lag);
        } else {
            self.drop_if_gone(key);
        }
    }

    fn forget(&mut self, now: Millis, lag: Millis) {
        while self.expiry.front().is_some_and(|(changed, _)| changed.saturating_add(lag) < now)
            || self.expiry.len() > MAX_UNDO
        {
            let Some((_, key)) = self.expiry.pop_front() else { return };
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.past.remove(0);
            }
            self.drop_if_gone(&key);
        }
    }

    /// Removes an entry that has neither an item nor history.
    fn drop_if_gone(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|entry| entry.now.is_none() && entry.past.is_empty()) {
            self.order.remove(key);
            self.entries.remove(key);
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
        let seen = move |key| Some((key, self.get(key, as_of)?));
        let keys = self.order.range(range);
        if forward { Box::new(keys.filter_map(seen)) } else { Box::new(keys.rev().filter_map(seen)) }
    }
}

/// Whether a set would panic on this range, or find nothing in it.
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
        assert!(rows.entries.is_empty() && rows.order.is_empty());
    }
}
