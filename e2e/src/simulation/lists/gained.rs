//! What rows gained in one window.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use tally_core::ids::{CounterName, PostId, Region};
use tally_trends::{Place, Window};

use super::super::history::RowChange;

/// What each subject gained.
pub(crate) type Sums = BTreeMap<PostId, i64>;

static NOTHING: Sums = Sums::new();

/// The sums of all places over one window, which moves on with time.
#[derive(Debug)]
pub(super) struct Gained {
    pub(super) window: Window,
    /// The last second before the window, and the last in it.
    from: u64,
    to: u64,
    sums: BTreeMap<CounterName, BTreeMap<Option<Region>, Sums>>,
}

impl Gained {
    /// Nothing yet.
    pub(super) fn over(window: Window) -> Self {
        Self { window, from: 0, to: 0, sums: BTreeMap::new() }
    }

    /// The window ends with the second `moment` now, which is no earlier than before.
    pub(super) fn advance(&mut self, seconds: &BTreeMap<u64, Vec<RowChange>>, moment: u64) {
        let from = self.window.from(moment);
        let between = |from, to| seconds.range((Excluded(from), Included(to))).flat_map(|(_, changes)| changes);
        between(self.to, moment).for_each(|change| self.add(change, 1));
        between(self.from, from).for_each(|change| self.add(change, -1));
        (self.from, self.to) = (from, moment);
    }

    fn add(&mut self, change: &RowChange, sign: i64) {
        let RowChange { counter, before, after, .. } = change;
        let places = self.sums.entry(counter.name.clone()).or_default();
        let mut gain = |region: Option<&Region>, gained: i64| {
            let sums = places.entry(region.cloned()).or_default();
            let sum = sums.entry(counter.post.clone()).or_default();
            *sum += sign * gained;
            if *sum == 0 {
                sums.remove(&counter.post);
            }
        };
        for ((region, weight), gains) in [(before, -1), (after, 1)] {
            gain(None, gains * weight);
            region.iter().for_each(|region| gain(Some(region), gains * weight));
        }
    }

    /// What the subjects of `place` gained.
    pub(super) fn of(&self, place: &Place) -> &Sums {
        let places = self.sums.get(&place.counter);
        places.and_then(|places| places.get(&place.region)).unwrap_or(&NOTHING)
    }
}
