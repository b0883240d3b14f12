//! What every item of a table was before each change, so that the table can be had again as it was at a moment; leaves tables to the operations.

use std::collections::BTreeMap;

use super::image::Image;
use super::key::Key;
use crate::clock::Millis;

/// Every change since recovery was switched on.
#[derive(Debug)]
pub(crate) struct Journal {
    since: Millis,
    /// Oldest first: when, which item, and what it was before.
    changes: Vec<(Millis, Key, Option<Image>)>,
}

impl Journal {
    pub(crate) fn new(since: Millis) -> Self {
        Self { since, changes: Vec::new() }
    }

    /// The first moment that can be had again.
    pub(crate) fn since(&self) -> Millis {
        self.since
    }

    pub(super) fn note(&mut self, at: Millis, key: &Key, before: Option<Image>) {
        self.changes.push((at, key.clone(), before));
    }

    /// Makes `items`, which are those of now, what they were at the end of the millisecond `at`.
    pub(crate) fn undo(&self, items: &mut BTreeMap<Key, Image>, at: Millis) {
        for (_, key, before) in self.changes.iter().rev().take_while(|(changed, ..)| *changed > at) {
            match before {
                Some(image) => items.insert(key.clone(), image.clone()),
                None => items.remove(key),
            };
        }
    }
}
