//! The sums of one partition of the ledger, and its boards.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Board, BoardRules, List, Window};
use tally_core::Map;
use tally_core::changes::{Change, Filter, Side};
use tally_core::ids::{CounterName, Ordinal, PostId, Region};

/// What is listed by itself: a counter, in one region or in all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The counter.
    pub counter: CounterName,
    /// The region; `None` for all of them, and for what states none.
    pub region: Option<Region>,
}

/// The sums of one partition.
#[derive(Clone, Debug)]
pub struct Fold {
    windows: Vec<Window>,
    rules: BoardRules,
    filter: Filter,
    /// What belongs to a moment that has not come, by second.
    waiting: BTreeMap<u64, Vec<Change>>,
    places: BTreeMap<Place, Vec<Sums>>,
    moment: u64,
    /// The moment was told: what belongs to it and comes now is late.
    told: bool,
    /// The greatest second of which something came after its moment.
    late: Option<u64>,
    regions: Regions,
}

/// The regions that have boards of their own.
#[derive(Clone, Debug)]
struct Regions {
    named: BTreeSet<Region>,
    most: usize,
    /// Some were too many, and are one by now.
    folded: bool,
}

impl Regions {
    /// What the region that is one too many is called.
    const OTHER: &str = "other";

    /// `region`, or the one that stands for those that are too many. A region stays what it was at first.
    fn fold(&mut self, region: &Region) -> Region {
        if self.named.contains(region) {
            return region.clone();
        }
        if self.named.len() < self.most {
            self.named.insert(region.clone());
            return region.clone();
        }
        self.folded = true;
        Region::new(Self::OTHER).expect("it is a region's name")
    }
}

/// The sums of one place in one window.
#[derive(Clone, Debug)]
struct Sums {
    window: Window,
    totals: Map<PostId, i64>,
    buckets: BTreeMap<u64, Map<PostId, i64>>,
    board: Board,
    /// Something was added or taken off since this was last asked.
    touched: bool,
}

impl Fold {
    /// Without any entry, at `moment`, which is not told yet.
    pub fn new(windows: &[Window], rules: BoardRules, moment: u64) -> Self {
        Self {
            windows: windows.to_vec(),
            rules,
            filter: Filter::default(),
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            moment,
            told: false,
            late: None,
            regions: Regions { named: BTreeSet::new(), most: usize::MAX, folded: false },
        }
    }

    /// The same with at most so many regions; those that come later are the region `other` together.
    #[must_use]
    pub fn with_regions(mut self, most: usize) -> Self {
        self.regions.most = most;
        self
    }

    /// Takes the next entry of the log; whether it was no copy.
    pub fn take(&mut self, shard: Ordinal, change: &Change) -> bool {
        if !self.filter.takes(shard, change.sequence) {
            return false;
        }
        if change.second > self.moment {
            self.waiting.entry(change.second).or_default().push(change.clone());
        } else {
            if self.told {
                self.late = self.late.max(Some(change.second));
            }
            self.add(change);
        }
        true
    }

    /// The moment has come: everything up to its last second was taken. It never goes back.
    pub fn advance(&mut self, moment: u64) {
        if moment <= self.moment {
            return;
        }
        (self.moment, self.told) = (moment, true);
        let later = self.waiting.split_off(&(moment + 1));
        for change in std::mem::replace(&mut self.waiting, later).into_values().flatten() {
            self.add(&change);
        }
        for sums in self.places.values_mut().flatten() {
            sums.expire(moment);
        }
        self.places.retain(|_, sums| sums.iter().any(|sums| sums.touched || !sums.buckets.is_empty()));
    }

    /// The lists of the moment are made: from here on nothing may be missing in them.
    pub fn tell(&mut self) {
        self.told = true;
    }

    /// The moment that all lists are of.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// The greatest second of which something came after its moment.
    pub fn late(&self) -> Option<u64> {
        self.late
    }

    /// Whether some regions have no boards of their own, as they are too many.
    pub fn has_folded_regions(&self) -> bool {
        self.regions.folded
    }

    /// The boards, each by its place and the index of its window, whose sums changed since this was last asked.
    pub fn touched(&mut self) -> Vec<(Place, usize)> {
        let mut touched = Vec::new();
        for (place, sums) in &mut self.places {
            let changed = sums.iter_mut().enumerate();
            let changed = changed.filter_map(|(index, sums)| std::mem::take(&mut sums.touched).then_some(index));
            touched.extend(changed.map(|index| (place.clone(), index)));
        }
        touched
    }

    /// The list of `place` in the window at `index`.
    pub fn list(&mut self, place: &Place, index: usize) -> List {
        let window = self.windows[index];
        let sums = self.places.get_mut(place).map(|sums| &mut sums[index]);
        let (items, complete) = sums.map_or((Vec::new(), true), Sums::list);
        List { moment: self.moment, from: window.from(self.moment), items, complete }
    }

    /// Every place that has something in some window.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.keys()
    }

    /// Both sides of a change, in all regions together and in each by itself.
    fn add(&mut self, change: &Change) {
        let Change { subject, counter, before, after, second, .. } = change;
        let gained = i128::from(after.weight) - i128::from(before.weight);
        self.gain(counter, None, subject, *second, i64::try_from(gained).unwrap_or(i64::MAX));
        for (Side { region, weight }, sign) in [(before, -1), (after, 1)] {
            if let Some(region) = region {
                let region = &self.regions.fold(region);
                self.gain(counter, Some(region), subject, *second, weight.saturating_mul(sign));
            }
        }
    }

    fn gain(&mut self, counter: &CounterName, region: Option<&Region>, subject: &PostId, second: u64, gained: i64) {
        if gained == 0 {
            return;
        }
        let place = Place { counter: counter.clone(), region: region.cloned() };
        let empty = |window: &Window| Sums {
            window: *window,
            totals: Map::default(),
            buckets: BTreeMap::new(),
            board: Board::new(self.rules),
            touched: false,
        };
        let sums = self.places.entry(place).or_insert_with(|| self.windows.iter().map(empty).collect());
        for sums in sums.iter_mut().filter(|sums| second > sums.window.from(self.moment)) {
            let bucket = sums.buckets.entry(sums.window.bucket(second)).or_default();
            let sum = bucket.entry(subject.clone()).or_default();
            *sum = sum.saturating_add(gained);
            sums.change(subject, gained);
        }
    }
}

impl Sums {
    fn change(&mut self, subject: &PostId, gained: i64) {
        let total = self.totals.entry(subject.clone()).or_default();
        let before = *total;
        *total = total.saturating_add(gained);
        let after = *total;
        self.touched = true;
        self.board.update(subject, before, after);
    }

    /// Takes off what is before the window by now.
    fn expire(&mut self, moment: u64) {
        let from = self.window.from(moment);
        while let Some(first) = self.buckets.first_entry().filter(|first| self.window.last_of(*first.key()) <= from) {
            for (subject, sum) in first.remove() {
                self.change(&subject, sum.saturating_neg());
            }
        }
        // A sum of 0 is as good as none.
        if self.buckets.is_empty() {
            self.totals.clear();
        } else if self.totals.len() > 64
            && self.totals.values().filter(|total| **total == 0).count() * 2 > self.totals.len()
        {
            self.totals.retain(|_, total| *total != 0);
        }
    }

    fn list(&mut self) -> (Vec<crate::Ranked>, bool) {
        if self.board.needs_refill() {
            self.board.refill(self.totals.iter().map(|(subject, total)| (subject, *total)));
        }
        self.board.list()
    }
}
