//! Values that many states of a model share: each is kept once, and states hold its number.

use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::HashTable;

/// The number of a value; of one [`Interned`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(u32);

/// Values by number. Equal values have one number.
pub(crate) struct Interned<T> {
    kept: RefCell<Kept<T>>,
    hash: fn(&T) -> u64,
}

struct Kept<T> {
    values: Vec<Rc<T>>,
    /// The hash of each value beside its number.
    index: HashTable<(u64, u32)>,
}

impl<T: Eq> Interned<T> {
    /// `hash` may be coarse: values are compared in full.
    pub(crate) fn new(hash: fn(&T) -> u64) -> Self {
        Self { kept: RefCell::new(Kept { values: Vec::new(), index: HashTable::new() }), hash }
    }

    pub(crate) fn number(&self, value: T) -> Number {
        let Kept { values, index } = &mut *self.kept.borrow_mut();
        let hash = (self.hash)(&value);
        if let Some((_, known)) = index.find(hash, |(its, known)| *its == hash && *values[*known as usize] == value) {
            return Number(*known);
        }
        let number = u32::try_from(values.len()).expect("a model has fewer than 2^32 values");
        values.push(Rc::new(value));
        index.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        Number(number)
    }

    pub(crate) fn get(&self, number: Number) -> Rc<T> {
        Rc::clone(&self.kept.borrow().values[number.0 as usize])
    }
}
