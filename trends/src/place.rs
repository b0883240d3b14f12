//! Adds up what each post or hashtag gained in one *place*, which is a counter in one region or in all, for lists of
//! what is trending. For each window of time it has the gains by *bucket*, a part of the window that leaves it at once,
//! the totals, and a board of the leading ones. Each subject, a post or hashtag, has a number in its place, its *slot*.

use std::collections::BTreeMap;

use tally_core::ids::PostId;

use crate::board::Sums;
use crate::cells::{Bucket, Totals};
use crate::names::{GONE, Names, Slot};
use crate::{Board, BoardRules, Ranked, Window};

/// The sums and boards of one place.
#[derive(Clone, Debug)]
pub(crate) struct Gains {
    names: Names,
    totals: Totals,
    spans: Vec<Span>,
    /// How many gains were removed since the last search for subjects that have none left.
    left: usize,
}

/// One window of a place.
#[derive(Clone, Debug)]
struct Span {
    window: Window,
    from: u64,
    buckets: BTreeMap<u64, Bucket>,
    board: Board,
    /// Whether a sum has changed since the last call of [`Gains::touched`].
    touched: bool,
}

impl Gains {
    pub(crate) fn new(windows: &[Window], rules: BoardRules, moment: u64) -> Self {
        let span = |window: &Window| Span {
            window: *window,
            from: window.from(moment),
            buckets: BTreeMap::new(),
            board: Board::new(rules),
            touched: false,
        };
        let spans = windows.iter().map(span).collect();
        Self { names: Names::default(), totals: Totals::new(windows.len()), spans, left: 0 }
    }

    /// Returns the number of subjects in memory.
    pub(crate) fn keys(&self) -> usize {
        self.names.len()
    }

    /// Returns whether no gains are left, and [`touched`](Self::touched) has returned the windows that became empty.
    pub(crate) fn is_done_with(&self) -> bool {
        self.spans.iter().all(|span| !span.touched && span.buckets.is_empty())
    }

    /// Adds the gain of `subject`, whose hash is given, in a second. Returns whether the subject is new.
    pub(crate) fn gain(&mut self, (subject, hash): (&PostId, u64), second: u64, gained: i64) -> bool {
        if self.spans.iter().all(|span| second <= span.from) {
            return false;
        }
        let (slot, is_new) = self.names.slot(hash, subject.as_bytes());
        if is_new {
            self.totals.push();
        }
        let mut is_full = false;
        for (span, total) in self.spans.iter_mut().zip(self.totals.row_mut(slot)) {
            if second > span.from {
                *total = total.saturating_add(gained);
                span.buckets.entry(span.window.bucket(second)).or_default().gain(slot, gained);
                is_full |= span.update(slot, *total, &self.names);
            }
        }
        if is_full {
            self.cut();
        }
        is_new
    }

    fn cut(&mut self) {
        let Self { names, totals, spans, .. } = self;
        for (nth, span) in spans.iter_mut().enumerate() {
            span.board.cut(&Sums { names, of: |slot| totals.row(slot)[nth] });
        }
    }

    /// Subtracts the gains that have left the windows.
    pub(crate) fn expire(&mut self, moment: u64) {
        for nth in 0..self.spans.len() {
            let span = &mut self.spans[nth];
            span.from = span.window.from(moment);
            let (window, from) = (span.window, span.from);
            while let Some(first) = self.spans[nth].buckets.first_entry()
                && window.last_of(*first.key()) <= from
            {
                let bucket = first.remove();
                self.take_off(nth, &bucket);
            }
            let over = self.spans[nth].buckets.iter_mut().filter(|(bucket, _)| window.last_of(**bucket) <= moment);
            over.for_each(|(_, bucket)| bucket.close());
        }
        let cells: usize = self.spans.iter().flat_map(|span| span.buckets.values()).map(Bucket::len).sum();
        if self.left > self.keys() / 2 && self.left > cells / 16 {
            self.left = 0;
            self.forget_the_gone();
        }
    }

    fn take_off(&mut self, nth: usize, bucket: &Bucket) {
        self.left += bucket.len();
        for (slot, sum) in bucket.sums() {
            let total = &mut self.totals.row_mut(slot)[nth];
            *total = total.saturating_sub(sum);
            if self.spans[nth].update(slot, *total, &self.names) {
                self.cut();
            }
        }
        self.spans[nth].touched = true;
    }

    /// Frees the memory of subjects that are in no bucket any more.
    fn forget_the_gone(&mut self) {
        let mut there = vec![false; self.keys()];
        for bucket in self.spans.iter().flat_map(|span| span.buckets.values()) {
            bucket.sums().for_each(|(slot, _)| there[slot as usize] = true);
        }
        self.keep(|slot| there[slot as usize]);
    }

    /// Forgets the gains so far, in every window, of all subjects that `keeps` rejects.
    pub(crate) fn keep(&mut self, keeps: impl Fn(Slot) -> bool) {
        let mut next = 0..;
        let mut number = |slot| if keeps(slot) { next.next().unwrap_or(GONE) } else { GONE };
        let count = Slot::try_from(self.keys()).expect("each has a number");
        let numbers: Vec<Slot> = (0..count).map(&mut number).collect();
        self.names.renumber(&numbers);
        self.totals.renumber(&numbers);
        for span in &mut self.spans {
            span.buckets.values_mut().for_each(|bucket| bucket.renumber(&numbers));
            span.buckets.retain(|_, bucket| bucket.len() > 0);
            span.board.renumber(&numbers);
            span.touched = true;
        }
    }

    /// For each subject, the most that its sum over the window at `nth` can be off, now or later, if its gains so far
    /// are forgotten. The window drops its first buckets as time goes on, so this is the greatest absolute sum of the
    /// last buckets, over any number of them.
    pub(crate) fn peaks(&self, nth: usize) -> Vec<u64> {
        let (mut sums, mut peaks) = (vec![0i64; self.keys()], vec![0u64; self.keys()]);
        for bucket in self.spans[nth].buckets.values().rev() {
            for (slot, gained) in bucket.sums() {
                let sum = &mut sums[slot as usize];
                *sum = sum.saturating_add(gained);
            }
            for (slot, _) in bucket.sums() {
                let peak = &mut peaks[slot as usize];
                *peak = (*peak).max(sums[slot as usize].unsigned_abs());
            }
        }
        peaks
    }

    /// Returns the windows whose sums have changed since the last call.
    pub(crate) fn touched(&mut self) -> impl Iterator<Item = usize> {
        let spans = self.spans.iter_mut().enumerate();
        spans.filter_map(|(nth, span)| std::mem::take(&mut span.touched).then_some(nth))
    }

    /// Returns the list of the window at `nth`, and whether it is complete.
    pub(crate) fn list(&mut self, nth: usize) -> (Vec<Ranked>, bool) {
        let Self { names, totals, spans, .. } = self;
        spans[nth].board.list(&Sums { names, of: |slot| totals.row(slot)[nth] })
    }
}

impl Span {
    fn update(&mut self, slot: Slot, total: i64, names: &Names) -> bool {
        self.touched = true;
        self.board.update(slot, total, names)
    }
}
