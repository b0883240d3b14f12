//! Saves memory and time while every state of a model is explored: [`Interned`] stores each value once, so that states
//! hold only its number, and [`Memo`] remembers results.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use tally_core::Map;

/// The number of a value in one [`Interned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(u32);

/// Numbered values. Equal values have the same number.
pub(crate) struct Interned<T>(RefCell<Kept<T>>);

struct Kept<T> {
    values: Vec<Rc<T>>,
    /// The hash and the number of each value.
    index: HashTable<(u64, u32)>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(RefCell::new(Kept { values: Vec::new(), index: HashTable::new() }))
    }
}

impl<T: Eq + Hash> Interned<T> {
    pub(crate) fn number(&self, value: T) -> Number {
        let Kept { values, index } = &mut *self.0.borrow_mut();
        let hash = FixedState::default().hash_one(&value);
        if let Some((_, known)) = index.find(hash, |(its, known)| *its == hash && *values[*known as usize] == value) {
            return Number(*known);
        }
        let number = u32::try_from(values.len()).expect("a model has fewer than 2^32 values");
        values.push(Rc::new(value));
        index.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        Number(number)
    }

    pub(crate) fn get(&self, number: Number) -> Rc<T> {
        Rc::clone(&self.0.borrow().values[number.0 as usize])
    }

    /// Changes a copy of the value, and sets `number` to that of the copy.
    pub(crate) fn update<R>(&self, number: &mut Number, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Clone,
    {
        let mut value = (*self.get(*number)).clone();
        let result = change(&mut value);
        *number = self.number(value);
        result
    }
}

/// Memoised results.
pub(crate) struct Memo<K, V>(RefCell<Map<K, V>>);

impl<K, V> Default for Memo<K, V> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memo<K, V> {
    pub(crate) fn get(&self, key: K, calculate: impl FnOnce() -> V) -> V {
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let value = calculate();
        self.0.borrow_mut().insert(key, value.clone());
        value
    }
}
