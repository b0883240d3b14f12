//! What a sealed batch is about.

use super::SealedBatch;
use crate::ids::{CounterId, UserId};

impl SealedBatch {
    /// The members whose rows it changes, each with the number of its row. A half has those of the whole.
    pub fn members(&self) -> impl Iterator<Item = (usize, &CounterId, &UserId)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(index, row)| Some((index, &row.counter, row.user.as_ref()?)))
    }

    /// How many of its events are about `counter`.
    pub fn events_of(&self, counter: &CounterId) -> usize {
        self.events.iter().filter(|event| self.rows[event.row as usize].counter == *counter).count()
    }

    /// The counters whose cells the batch adds to.
    pub fn cells(&self) -> impl Iterator<Item = &CounterId> {
        self.rows.iter().filter(|row| row.user.is_none()).map(|row| &row.counter)
    }
}
