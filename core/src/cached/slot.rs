//! The rules of the cache of counts in Redis, as plain functions: what one partition of the cache holds, and what each
//! call of a fold or a reader does to it. The scripts in Redis do the same; the models and the cache in memory use this
//! one.

use std::collections::BTreeMap;

use super::{FillToken, StandingAt, TakeOver, TakeOverNumber, Taken, Told, Value};

/// One partition of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot<K> {
    /// The fold's part, until it expires.
    pub held: Option<Held>,
    /// Values and fills under way, until they expire.
    pub entries: BTreeMap<K, Entry>,
}

/// Who took the partition over, the last write, and the standing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub taken: Taken,
    /// The sequence number of the last write.
    pub sequence: u64,
    pub stated: StandingAt,
}

/// What the cache has for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// A value, and the take-over that it was written under.
    Value(TakeOverNumber, Value),
    /// A fill is under way.
    Filling(FillToken),
}

/// What a fold's write compares and sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The number of the fold's take-over.
    pub number: TakeOverNumber,
    /// The least sequence number that the write accepts: that of the last answered write.
    pub from: u64,
    /// The sequence number that the write sets, greater than all earlier ones.
    pub to: u64,
}

impl<K> Default for Slot<K> {
    fn default() -> Self {
        Self { held: None, entries: BTreeMap::new() }
    }
}

impl FillToken {
    /// Returns the number of the take-over under which the token was given.
    pub fn number(&self) -> TakeOverNumber {
        self.number
    }

    /// Returns the random number that tells the token from all others.
    pub fn nonce(&self) -> u128 {
        self.nonce
    }

    /// Returns the entry that replaces the token.
    pub fn filled(&self, value: Value) -> Entry {
        Entry::Value(self.number, value)
    }
}

impl Entry {
    fn number(&self) -> TakeOverNumber {
        match self {
            Self::Value(number, _) => *number,
            Self::Filling(token) => token.number,
        }
    }

    /// Returns whether a value that the fold writes under `number` replaces this entry.
    fn gives_way(&self, number: TakeOverNumber, value: &Value) -> bool {
        let is_older = match self {
            Self::Value(_, held) => held.version < value.version,
            Self::Filling(_) => true,
        };
        self.number() == number && is_older
    }
}

impl<K: Ord + Clone> Slot<K> {
    /// Returns the value of a counter, if it was written under the standing's take-over.
    pub fn get(&self, counter: &K) -> Option<Value> {
        match self.entries.get(counter)? {
            Entry::Value(number, value) if *number == self.held.as_ref()?.taken.number => Some(*value),
            _ => None,
        }
    }

    /// Gives the right to fill a value that is missing, or was written under another take-over.
    pub fn begin_fill(&mut self, counter: &K, nonce: u128) -> Option<FillToken> {
        let Held { taken: Taken { number, .. }, sequence, .. } = *self.held.as_ref()?;
        if self.entries.get(counter).is_some_and(|entry| entry.number() == number) {
            return None;
        }
        let token = FillToken { number, sequence, nonce };
        self.entries.insert(counter.clone(), Entry::Filling(token));
        Some(token)
    }

    /// Replaces the token by a value, and returns whether it was there. Readers skip a value of an earlier take-over.
    pub fn fill(&mut self, counter: &K, token: FillToken, value: Value) -> bool {
        match self.entries.get_mut(counter) {
            Some(entry) if *entry == Entry::Filling(token) => {
                *entry = token.filled(value);
                true
            }
            _ => false,
        }
    }

    /// Begins a take-over, unless the cache has a standing of a later place of the same deployment.
    pub fn take_over(&mut self, taken: Taken, stated: &StandingAt) -> Option<TakeOver> {
        if self.held.as_ref().is_some_and(|held| held.taken.of == taken.of && held.stated.at > stated.at) {
            return None;
        }
        let number = taken.number;
        self.held = Some(Held { taken, sequence: 0, stated: stated.clone() });
        Some(TakeOver::new(number))
    }

    /// Carries out a fold's write. A copy of a write that has happened changes nothing.
    pub fn tell(&mut self, stamp: Stamp, values: &[(K, Value)], stated: Option<&StandingAt>) -> Told {
        let Some(held) = self.held.as_mut().filter(|held| held.taken.number == stamp.number) else { return Told::Lost };
        if held.sequence == stamp.to {
            return Told::Written(0);
        }
        if !(stamp.from..stamp.to).contains(&held.sequence) {
            return Told::Lost;
        }
        held.sequence = stamp.to;
        if let Some(stated) = stated {
            held.stated = stated.clone();
        }
        let mut written = 0;
        for (counter, value) in values {
            if let Some(entry) = self.entries.get_mut(counter).filter(|entry| entry.gives_way(stamp.number, value)) {
                *entry = Entry::Value(stamp.number, *value);
                written += 1;
            }
        }
        Told::Written(written)
    }
}
