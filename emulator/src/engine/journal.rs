//! The history of every item of a table, from which point-in-time recovery restores it.

use std::collections::BTreeMap;

use super::image::Image;
use super::key::Key;
use crate::clock::Millis;

/// Every change since recovery was enabled.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The earliest time that can be restored.
    pub(crate) since: Millis,
    /// The time, the key, and the previous image of each change, oldest first.
    changes: Vec<(Millis, Key, Option<Image>)>,
}

impl Journal {
    pub(crate) fn new(since: Millis) -> Self {
        Self { since, changes: Vec::new() }
    }

    pub(super) fn note(&mut self, at: Millis, key: &Key, before: Option<Image>) {
        self.changes.push((at, key.clone(), before));
    }

    /// Turns the current `items` into those at the end of the millisecond `at`.
    pub(crate) fn undo(&self, items: &mut BTreeMap<Key, Image>, at: Millis) {
        for (_, key, before) in self.changes.iter().rev().take_while(|(changed, ..)| *changed > at) {
            match before {
                Some(image) => items.insert(key.clone(), image.clone()),
                None => items.remove(key),
            };
        }
    }
}
