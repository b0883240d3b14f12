//! Which likes are rows by now, and how many are counted, as the store tells it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tally_emulator::value::Item;
use tally_emulator::{ControlError, Emulator};

use super::load::{Load, Said};

/// The rows and the counts; clones are the same.
#[derive(Clone, Default)]
pub(super) struct Rows(Arc<Mutex<Found>>);

#[derive(Default)]
struct Found {
    /// Whether each like is a row.
    is_there: Vec<bool>,
    there: u64,
    /// What all counts come to.
    counted: i64,
    /// Changes that no like makes.
    wrong: u64,
}

impl Rows {
    /// Those in `emulator` from now on.
    pub(super) fn of(emulator: &Emulator, load: &Load) -> Result<Self, ControlError> {
        let rows = Self::default();
        let (kept, said) = (rows.clone(), load.shared());
        emulator.watch("likes", move |changed| {
            let Some(user) = changed.new.as_ref().or(changed.old.as_ref()).and_then(|item| item.text("user_id")) else {
                return;
            };
            // What stands beside the rows: maps, and the marks of recounts.
            let Some(nth) = user.strip_prefix("u-").and_then(|nth| nth.parse().ok()) else { return };
            let is_new = changed.old.is_none();
            kept.found().note(nth, changed.new.filter(|_| is_new).as_ref(), &said);
        })?;
        let kept = rows.clone();
        emulator.watch("like_counts", move |changed| {
            let likes = |item: &Option<Item>| item.as_ref().and_then(|item| item.whole("likes")).unwrap_or(0);
            kept.found().counted += likes(&changed.new) - likes(&changed.old);
        })?;
        Ok(rows)
    }

    pub(super) fn there(&self) -> u64 {
        self.found().there
    }

    pub(super) fn counted(&self) -> u64 {
        u64::try_from(self.found().counted).unwrap_or(0)
    }

    pub(super) fn wrong(&self) -> u64 {
        self.found().wrong
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Found {
    /// Takes note of a row that is new, of the user who said the `nth` like; `None` is any other change.
    fn note(&mut self, nth: usize, row: Option<&Item>, said: &Said) {
        if self.is_there.len() <= nth {
            self.is_there.resize(nth + 1, false);
        }
        let post = row.and_then(|row| row.text("pk")).and_then(|key| key.strip_prefix("p-")?.split_once('#'));
        let post = post.and_then(|(post, _)| post.parse().ok());
        if post.is_none() || post != said.post_of(nth) || self.is_there[nth] {
            self.wrong += 1;
            return;
        }
        self.is_there[nth] = true;
        self.there += 1;
    }
}
