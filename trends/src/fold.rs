//! The sums of one partition of the log of changes, and its boards.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::hash;
use crate::place::Gains;
use crate::shedding::{Choice, Rounds};
use crate::{BoardRules, List, Window};
use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterId, CounterName, PostId, Region};

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
    /// What belongs to a moment that has not come, by second.
    waiting: BTreeMap<u64, Vec<Entry>>,
    places: BTreeMap<CounterName, BTreeMap<Option<Region>, Gains>>,
    moment: u64,
    /// The moment was told: what belongs to it and comes now is late.
    told: bool,
    /// The greatest second of which something came after its moment.
    late: Option<u64>,
    /// The greatest second of which something was added.
    newest: u64,
    regions: Regions,
    keys: Keys,
}

/// How many keys there may be: a subject in a place is one, in all windows together.
#[derive(Clone, Debug)]
struct Keys {
    most: usize,
    held: usize,
    shed: u64,
    rounds: Rounds,
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

/// What a subject gained in all regions together, and in each by itself, where a row went from one side to the other.
fn gains_of<'a>(before: &'a Side, after: &'a Side) -> [Option<(Option<&'a Region>, i64)>; 3] {
    let gained = i128::from(after.weight) - i128::from(before.weight);
    let gained = i64::try_from(gained).unwrap_or(i64::MAX);
    if before.region == after.region {
        [Some((None, gained)), after.region.as_ref().map(|region| (Some(region), gained)), None]
    } else {
        let taken = before.weight.saturating_neg();
        [
            Some((None, gained)),
            before.region.as_ref().map(|region| (Some(region), taken)),
            after.region.as_ref().map(|region| (Some(region), after.weight)),
        ]
    }
}

impl Fold {
    /// Without any entry, at `moment`, which is not told yet.
    pub fn new(windows: &[Window], rules: BoardRules, moment: u64) -> Self {
        Self {
            windows: windows.to_vec(),
            rules,
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            moment,
            told: false,
            late: None,
            newest: 0,
            regions: Regions { named: BTreeSet::new(), most: usize::MAX, folded: false },
            keys: Keys { most: usize::MAX, held: 0, shed: 0, rounds: Rounds::default() },
        }
    }

    /// The same with at most so many regions; those that come later are the region `other` together.
    #[must_use]
    pub fn with_regions(mut self, most: usize) -> Self {
        self.regions.most = most;
        self
    }

    /// The same with at most so many [keys](Self::keys), at least 1.
    #[must_use]
    pub fn with_keys(mut self, most: usize) -> Self {
        self.allow(most);
        self
    }

    /// From here on there may be so many [keys](Self::keys), at least 1. Those that are too many are forgotten.
    pub fn allow(&mut self, most: usize) {
        self.keys.most = most.max(1);
        self.shed();
    }

    /// Takes an entry of the log that was not taken before.
    pub fn take(&mut self, entry: &Entry) {
        if entry.second > self.moment {
            self.waiting.entry(entry.second).or_default().push(entry.clone());
            return;
        }
        if self.told {
            self.late = self.late.max(Some(entry.second));
        }
        self.add(entry);
    }

    /// The moment has come: everything up to its last second was taken. It never goes back, and it is not told yet.
    pub fn advance(&mut self, moment: u64) {
        if moment <= self.moment {
            return;
        }
        (self.moment, self.told) = (moment, false);
        let later = self.waiting.split_off(&(moment + 1));
        for entry in std::mem::replace(&mut self.waiting, later).into_values().flatten() {
            self.add(&entry);
        }
        for regions in self.places.values_mut() {
            regions.values_mut().for_each(|gains| gains.expire(moment));
            regions.retain(|_, gains| !gains.is_done_with());
        }
        self.places.retain(|_, regions| !regions.is_empty());
        self.keys.held = self.gains().map(|gains| gains.keys()).sum();
        let from = self.windows.iter().map(|window| window.from(moment)).min();
        self.keys.rounds.expire(from.unwrap_or(moment));
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

    /// How many subjects are held, each counted once in every place that it has a sum in.
    pub fn keys(&self) -> usize {
        self.keys.held
    }

    /// How many keys were forgotten so far, as there were too many.
    pub fn shed_keys(&self) -> u64 {
        self.keys.shed
    }

    /// By how much sums of the window at `index` may be off for what was forgotten: listed ones, and those of what is not.
    pub fn bound(&self, index: usize) -> u64 {
        self.keys.rounds.bound(index, self.windows[index].from(self.moment))
    }

    /// The boards, each by its place and the index of its window, whose sums changed since this was last asked.
    pub fn touched(&mut self) -> Vec<(Place, usize)> {
        let mut touched = Vec::new();
        for (counter, regions) in &mut self.places {
            for (region, gains) in regions {
                let place = |index| (Place { counter: counter.clone(), region: region.clone() }, index);
                touched.extend(gains.touched().map(place));
            }
        }
        touched
    }

    /// The list of `place` in the window at `index`.
    pub fn list(&mut self, place: &Place, index: usize) -> List {
        let window = self.windows[index];
        let gains = self.places.get_mut(&place.counter).and_then(|regions| regions.get_mut(&place.region));
        let (items, complete) = gains.map_or((Vec::new(), true), |gains| gains.list(index));
        List { moment: self.moment, from: window.from(self.moment), items, complete }
    }

    /// Every place that has something in some window.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.places.iter().flat_map(|(counter, regions)| {
            regions.keys().map(|region| Place { counter: counter.clone(), region: region.clone() })
        })
    }

    fn gains(&self) -> impl Iterator<Item = &Gains> {
        self.places.values().flat_map(BTreeMap::values)
    }

    fn add(&mut self, entry: &Entry) {
        let Effect::Weighed { before, after, .. } = &entry.effect else { return };
        let CounterId { post, name } = &entry.key.counter;
        self.newest = self.newest.max(entry.second);
        let subject = (post, hash(post.as_bytes()));
        for (region, gained) in gains_of(before, after).into_iter().flatten() {
            let region = region.map(|region| self.regions.fold(region));
            self.gain(name, &region, subject, entry.second, gained);
        }
        if self.keys.held > self.keys.most {
            self.shed();
        }
    }

    fn gain(
        &mut self,
        counter: &CounterName,
        region: &Option<Region>,
        subject: (&PostId, u64),
        second: u64,
        gained: i64,
    ) {
        if gained == 0 {
            return;
        }
        if !self.places.contains_key(counter) {
            self.places.insert(counter.clone(), BTreeMap::new());
        }
        let regions = self.places.get_mut(counter).expect("it was just put there");
        if !regions.contains_key(region) {
            regions.insert(region.clone(), Gains::new(&self.windows, self.rules, self.moment));
        }
        let gains = regions.get_mut(region).expect("it was just put there");
        self.keys.held += usize::from(gains.gain(subject, second, gained));
    }

    /// Forgets keys in rounds until there are no more than there may be.
    fn shed(&mut self) {
        while self.keys.held > self.keys.most {
            let before = self.keys.held;
            self.shed_round();
            self.keys.held = self.gains().map(|gains| gains.keys()).sum();
            self.keys.shed += (before - self.keys.held) as u64;
        }
    }

    /// Forgets those keys that leave the least behind.
    fn shed_round(&mut self) {
        let windows = 0..self.windows.len();
        let mut all = Vec::with_capacity(self.keys.held);
        for gains in self.gains() {
            let begin = all.len();
            all.resize(begin + gains.keys(), 0);
            for nth in windows.clone() {
                all[begin..]
                    .iter_mut()
                    .zip(gains.peaks(nth))
                    .for_each(|(greatest, peak)| *greatest = peak.max(*greatest));
            }
        }
        let mut choice = Choice::of(all.clone());
        let (mut of_all, mut round) = (all.into_iter(), vec![0; self.windows.len()]);
        for gains in self.places.values_mut().flat_map(BTreeMap::values_mut) {
            let goes: Vec<bool> = of_all.by_ref().take(gains.keys()).map(|peak| choice.takes(peak)).collect();
            if !goes.contains(&true) {
                continue;
            }
            for (nth, greatest) in round.iter_mut().enumerate() {
                let gone = gains.peaks(nth).into_iter().zip(&goes).filter(|(_, goes)| **goes);
                *greatest = gone.map(|(peak, _)| peak).max().unwrap_or_default().max(*greatest);
            }
            gains.keep(|slot| !goes[slot as usize]);
        }
        self.keys.rounds.add(self.newest, round);
    }
}
