//! Counters that a fold has written or read lately, so that most updates need no read. One that is out of date is refused by
//! the store.

use std::mem;

use tally_core::Map;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;

/// How many counters are remembered: up to twice as many.
const MOST: usize = 50_000;

/// The counters used since the last turn, and those used before.
#[derive(Debug, Default)]
pub(super) struct Known {
    recent: Map<CounterId, Option<Counter>>,
    older: Map<CounterId, Option<Counter>>,
}

impl Known {
    /// The counter, if it is remembered; `Some(None)` says that there was none.
    pub(super) fn get(&mut self, id: &CounterId) -> Option<&Option<Counter>> {
        if !self.older.is_empty() && !self.recent.contains_key(id) {
            let (id, counter) = self.older.remove_entry(id)?;
            self.put(id, counter);
        }
        self.recent.get(id)
    }

    pub(super) fn put(&mut self, id: CounterId, counter: Option<Counter>) {
        if self.recent.len() >= MOST {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(id, counter);
    }

    /// The counter has to be read again.
    pub(super) fn forget(&mut self, id: &CounterId) {
        self.recent.remove(id);
        self.older.remove(id);
    }
}
