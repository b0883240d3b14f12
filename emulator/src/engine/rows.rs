//! Items in key order, with a short memory of what they were, so that an eventually consistent read can be late; leaves schemas and indexes to the table.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::ops::Bound;

use super::image::Image;
use super::key::Key;
use crate::clock::Millis;

/// What a replica that lags may still answer with.
#[derive(Debug)]
struct Undo {
    changed: Millis,
    before: Option<Image>,
}

/// More history than this is dropped, oldest first: reads become fresher, memory stays bounded.
const MAX_UNDO: usize = 100_000;

/// The rows of a table or of an index.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    current: BTreeMap<Key, Image>,
    recent: BTreeMap<Key, VecDeque<Undo>>,
    /// When each entry of `recent` was made, oldest first.
    expiry: VecDeque<(Millis, Key)>,
}

/// Interval of keys, ready for a map.
pub(crate) type Range = (Bound<Key>, Bound<Key>);

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.current.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_empty()
    }

    /// The item now, or as it was at `as_of`.
    pub(crate) fn get(&self, key: &Key, as_of: Option<Millis>) -> Option<&Image> {
        match as_of.and_then(|as_of| self.undone(key, as_of)) {
            Some(before) => before,
            None => self.current.get(key),
        }
    }

    /// Sets or removes an item and returns what it was; what it was can be read for `lag` milliseconds.
    pub(crate) fn set(&mut self, key: &Key, image: Option<Image>, now: Millis, lag: Millis) -> Option<Image> {
        let before = match image {
            Some(image) => match self.current.get_mut(key) {
                Some(slot) => Some(std::mem::replace(slot, image)),
                None => self.current.insert(key.clone(), image),
            },
            None => self.current.remove(key),
        };
        if lag > 0 {
            self.recent.entry(key.clone()).or_default().push_back(Undo { changed: now, before: before.clone() });
            self.expiry.push_back((now, key.clone()));
            self.forget(now, lag);
        }
        before
    }

    fn forget(&mut self, now: Millis, lag: Millis) {
        while let Some((changed, _)) = self.expiry.front()
            && (changed + lag < now || self.expiry.len() > MAX_UNDO)
        {
            let Some((_, key)) = self.expiry.pop_front() else { return };
            if let Some(undos) = self.recent.get_mut(&key) {
                undos.pop_front();
                if undos.is_empty() {
                    self.recent.remove(&key);
                }
            }
        }
    }

    /// What the item was at `as_of`, if it changed since.
    fn undone(&self, key: &Key, as_of: Millis) -> Option<Option<&Image>> {
        undone(self.recent.get(key)?, as_of)
    }

    /// The items of an interval, forwards or backwards, now or as they were at `as_of`.
    pub(crate) fn range(
        &self,
        range: Range,
        forward: bool,
        as_of: Option<Millis>,
    ) -> Box<dyn Iterator<Item = (&Key, &Image)> + '_> {
        if is_empty(&range) {
            return Box::new(std::iter::empty());
        }
        let current = directed(self.current.range(range.clone()), forward);
        let Some(as_of) = as_of.filter(|_| !self.recent.is_empty()) else { return current };
        let recent = directed(self.recent.range(range), forward);
        Box::new(AsOf { current: current.peekable(), recent: recent.peekable(), as_of, forward })
    }
}

fn undone(undos: &VecDeque<Undo>, as_of: Millis) -> Option<Option<&Image>> {
    undos.iter().find(|undo| undo.changed > as_of).map(|undo| undo.before.as_ref())
}

/// Whether a map would refuse this interval or find nothing in it.
fn is_empty((low, high): &Range) -> bool {
    match (low, high) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        _ => false,
    }
}

fn directed<'a, T: 'a>(
    items: impl DoubleEndedIterator<Item = T> + 'a,
    forward: bool,
) -> Box<dyn Iterator<Item = T> + 'a> {
    if forward { Box::new(items) } else { Box::new(items.rev()) }
}

/// The merge of the items that are with those that were.
struct AsOf<'a, C: Iterator<Item = (&'a Key, &'a Image)>, R: Iterator<Item = (&'a Key, &'a VecDeque<Undo>)>> {
    current: Peekable<C>,
    recent: Peekable<R>,
    as_of: Millis,
    forward: bool,
}

impl<'a, C, R> Iterator for AsOf<'a, C, R>
where
    C: Iterator<Item = (&'a Key, &'a Image)>,
    R: Iterator<Item = (&'a Key, &'a VecDeque<Undo>)>,
{
    type Item = (&'a Key, &'a Image);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.current.peek(), self.recent.peek()) {
                (_, None) => return self.current.next(),
                (None, Some(_)) => Ordering::Greater,
                (Some((current, _)), Some((recent, _))) if self.forward => current.cmp(recent),
                (Some((current, _)), Some((recent, _))) => recent.cmp(current),
            };
            if order.is_lt() {
                return self.current.next();
            }
            let now = if order.is_eq() { self.current.next() } else { None };
            let (key, undos) = self.recent.next()?;
            let image = match undone(undos, self.as_of) {
                Some(before) => before,
                None => now.map(|(_, image)| image),
            };
            if let Some(image) = image {
                return Some((key, image));
            }
        }
    }
}
