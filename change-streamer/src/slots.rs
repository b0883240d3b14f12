//! Numbers for the stream shards read here, as a metric's label. A number is used again once its shard is done with, so
//! there are never more of them than shards read at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The numbers in use. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Mutex<BTreeSet<usize>>>);

/// A number, given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    number: usize,
    slots: Slots,
}

impl Slots {
    /// The least number that is free.
    pub(crate) fn take(&self) -> Slot {
        let mut used = self.used();
        let number = (0..).find(|number| !used.contains(number)).expect("numbers do not run out");
        used.insert(number);
        Slot { number, slots: self.clone() }
    }

    fn used(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.used().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_numbers_are_ever_given_as_were_in_use_at_once() {
        let slots = Slots::default();
        let (first, second) = (slots.take(), slots.take());
        assert_eq!((first.number(), second.number()), (0, 1));
        drop(first);
        for _ in 0..100 {
            assert_eq!(slots.take().number(), 0);
            assert_eq!(slots.used().len(), 1, "the second");
        }
    }
}
