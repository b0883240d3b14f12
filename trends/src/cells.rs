//! Compact memory of how much each post or hashtag has gained, which lists of what is trending need: by *bucket*, a
//! part of a window of time, and in total for each window. `place.rs` uses it, and numbers them. A *cell* is the gain
//! of one of them in one bucket (not the row of a sum that the glossary calls so).

use std::collections::BTreeMap;

use crate::names::{GONE, Slot};

/// The gains in one bucket. Cells are appended, and now and then sorted by subject and merged: a sorted list is faster
/// than a hash table, and takes half the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    cells: Vec<Cell>,
    /// The number of cells after the last merge.
    merged: usize,
    /// Gains too large for a cell.
    wide: BTreeMap<Slot, i64>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    slot: Slot,
    gained: i32,
}

/// Cells are merged once more of them were appended than there were at the last merge, plus this number.
const LOOSE: usize = 1 << 12;

impl Bucket {
    pub(crate) fn gain(&mut self, slot: Slot, gained: i64) {
        let Ok(gained) = i32::try_from(gained) else {
            let sum = self.wide.entry(slot).or_default();
            *sum = sum.saturating_add(gained);
            return;
        };
        if self.cells.len() == self.cells.capacity() {
            if self.cells.len() >= 2 * self.merged + LOOSE {
                self.merge();
            }
            self.cells.reserve_exact((self.cells.len() / 4).max(4));
        }
        self.cells.push(Cell { slot, gained });
    }

    /// Merges the cells and frees spare memory, since nothing more is expected.
    pub(crate) fn close(&mut self) {
        if self.merged < self.cells.len() || self.cells.capacity() > self.cells.len() {
            self.merge();
            self.cells.shrink_to_fit();
        }
    }

    fn merge(&mut self) {
        // The cells merged before are in order already, which makes this stable sort fast.
        self.cells.sort_by_key(|cell| cell.slot);
        let wide = &mut self.wide;
        self.cells.dedup_by(|next, cell| {
            if next.slot != cell.slot {
                return false;
            }
            match cell.gained.checked_add(next.gained) {
                Some(gained) => cell.gained = gained,
                None => *wide.entry(next.slot).or_default() += i64::from(next.gained),
            }
            true
        });
        self.cells.retain(|cell| cell.gained != 0);
        self.merged = self.cells.len();
    }

    /// Returns the gains of the subjects. A subject may appear more than once.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (Slot, i64)> {
        let cells = self.cells.iter().map(|cell| (cell.slot, i64::from(cell.gained)));
        cells.chain(self.wide.iter().map(|(slot, gained)| (*slot, *gained)))
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len() + self.wide.len()
    }

    pub(crate) fn renumber(&mut self, numbers: &[Slot]) {
        let number = |slot: Slot| numbers[slot as usize];
        self.cells.retain_mut(|cell| {
            cell.slot = number(cell.slot);
            cell.slot != GONE
        });
        let wide = std::mem::take(&mut self.wide).into_iter().map(|(slot, gained)| (number(slot), gained));
        self.wide = wide.filter(|(slot, _)| *slot != GONE).collect();
        // Renumbering preserves the order.
        self.merged = self.merged.min(self.cells.len());
    }
}

/// The sums of every subject, one per window, next to each other.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    width: usize,
    /// Pieces of a fixed number of rows, except for the last one, so that growth copies nothing.
    pieces: Vec<Vec<i64>>,
}

impl Totals {
    const PIECE: usize = 1 << 12;

    pub(crate) fn new(width: usize) -> Self {
        Self { width: width.max(1), pieces: Vec::new() }
    }

    /// Adds a row of zeros.
    pub(crate) fn push(&mut self) {
        let full = Self::PIECE * self.width;
        if self.pieces.last().is_none_or(|last| last.len() == full) {
            let capacity = if self.pieces.is_empty() { 0 } else { full };
            self.pieces.push(Vec::with_capacity(capacity));
        }
        let last = self.pieces.last_mut().expect("one was just put there");
        last.resize(last.len() + self.width, 0);
    }

    pub(crate) fn row(&self, slot: Slot) -> &[i64] {
        let (piece, at) = self.at(slot);
        &self.pieces[piece][at..at + self.width]
    }

    pub(crate) fn row_mut(&mut self, slot: Slot) -> &mut [i64] {
        let (piece, at) = self.at(slot);
        &mut self.pieces[piece][at..at + self.width]
    }

    fn at(&self, slot: Slot) -> (usize, usize) {
        (slot as usize / Self::PIECE, slot as usize % Self::PIECE * self.width)
    }

    pub(crate) fn renumber(&mut self, numbers: &[Slot]) {
        let mut kept = 0;
        for (from, to) in (0..).zip(numbers).filter(|(_, to)| **to != GONE) {
            let ((piece, at), (to_piece, to_at)) = (self.at(from), self.at(*to));
            for nth in 0..self.width {
                self.pieces[to_piece][to_at + nth] = self.pieces[piece][at + nth];
            }
            kept += 1;
        }
        self.pieces.truncate(usize::div_ceil(kept, Self::PIECE));
        if let Some(last) = self.pieces.last_mut() {
            last.truncate((kept - 1) % Self::PIECE * self.width + self.width);
        }
    }
}
