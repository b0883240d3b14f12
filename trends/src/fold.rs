//! Adds up the changes of one partition of the log `changes` for lists of what is trending: how much each subject, a
//! post or hashtag, gained in each window of time. For each counter, region and window it keeps a *board*, the leading
//! subjects. All boards are of one *moment*, a whole second: changes of later seconds wait, and a change of an earlier
//! one that comes after the moment was published is *late*.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::hash;
use crate::place::Gains;
use crate::shedding::{Choice, Rounds};
use crate::{BoardRules, List, Window};
use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterId, CounterName, PostId, Region};

/// A counter in one region or in all of them. Each place has its own lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub counter: CounterName,
    /// The region; `None` stands for all regions, and for rows without one.
    pub region: Option<Region>,
}

/// The sums and boards of one partition.
#[derive(Clone, Debug)]
pub struct Fold {
    windows: Vec<Window>,
    rules: BoardRules,
    /// Changes of moments that have not come yet, by second.
    waiting: BTreeMap<u64, Vec<Entry>>,
    places: BTreeMap<CounterName, BTreeMap<Option<Region>, Gains>>,
    moment: u64,
    /// Whether the current moment was published. A change of this moment or an earlier one is late from then on.
    told: bool,
    /// The latest second with a change that came after its moment.
    late: Option<u64>,
    /// The latest second with a change that was added.
    newest: u64,
    regions: Regions,
    keys: Keys,
}

/// The limit of keys. A key is one subject in one place, in all windows together.
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
    /// Whether some regions exceeded the limit and were merged into `other`.
    folded: bool,
}

impl Regions {
    /// The name of the region that stands for those beyond the limit.
    const OTHER: &str = "other";

    /// Returns `region`, or `other` if it is beyond the limit. A region never changes sides.
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

/// Returns the gain of a subject in all regions together, and in each region when a row moves from one to another.
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
    /// Creates an empty fold at `moment`, which is not published yet.
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

    /// Returns the same fold with at most `most` regions. Those that come later are merged into the region `other`.
    #[must_use]
    pub fn with_regions(mut self, most: usize) -> Self {
        self.regions.most = most;
        self
    }

    /// Returns the same fold with at most `most` [keys](Self::keys), at least 1.
    #[must_use]
    pub fn with_keys(mut self, most: usize) -> Self {
        self.allow(most);
        self
    }

    /// Changes the limit of [keys](Self::keys), at least 1. Keys beyond it are forgotten.
    pub fn allow(&mut self, most: usize) {
        self.keys.most = most.max(1);
        self.shed();
    }

    /// Adds an entry of the log that was not added before.
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

    /// Moves to a moment, up to whose last second everything was read. Moments never go back, and the new one is not
    /// published yet.
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

    /// Marks the moment as published: from now on, changes that belong to it are late.
    pub fn tell(&mut self) {
        self.told = true;
    }

    /// Returns the moment of all lists.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns the latest second with a change that came after its moment.
    pub fn late(&self) -> Option<u64> {
        self.late
    }

    /// Returns whether some regions have no boards of their own because there are too many.
    pub fn has_folded_regions(&self) -> bool {
        self.regions.folded
    }

    /// Returns the number of subjects held, counted once in each place where they have a sum.
    pub fn keys(&self) -> usize {
        self.keys.held
    }

    /// Returns the number of keys forgotten so far because there were too many.
    pub fn shed_keys(&self) -> u64 {
        self.keys.shed
    }

    /// Returns the most that any sum of the window at `index`, listed or not, may be off because of forgotten keys.
    pub fn bound(&self, index: usize) -> u64 {
        self.keys.rounds.bound(index, self.windows[index].from(self.moment))
    }

    /// Returns the boards, by place and index of the window, whose sums have changed since the last call.
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

    /// Returns the list of `place` in the window at `index`.
    pub fn list(&mut self, place: &Place, index: usize) -> List {
        let window = self.windows[index];
        let gains = self.places.get_mut(&place.counter).and_then(|regions| regions.get_mut(&place.region));
        let (items, complete) = gains.map_or((Vec::new(), true), |gains| gains.list(index));
        List { moment: self.moment, from: window.from(self.moment), items, complete }
    }

    /// Returns every place with a sum in some window.
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
            self.gain(name, region, subject, entry.second, gained);
        }
        if self.keys.held > self.keys.most {
            self.shed();
        }
    }

    fn gain(
        &mut self,
        counter: &CounterName,
        region: Option<Region>,
        subject: (&PostId, u64),
        second: u64,
        gained: i64,
    ) {
        if gained == 0 {
            return;
        }
        let gains = self.places.entry(counter.clone()).or_default().entry(region);
        let gains = gains.or_insert_with(|| Gains::new(&self.windows, self.rules, self.moment));
        self.keys.held += usize::from(gains.gain(subject, second, gained));
    }

    /// Forgets keys in rounds until there are no more than the limit.
    fn shed(&mut self) {
        while self.keys.held > self.keys.most {
            let before = self.keys.held;
            self.shed_round();
            self.keys.held = self.gains().map(|gains| gains.keys()).sum();
            self.keys.shed += (before - self.keys.held) as u64;
        }
    }

    /// Forgets the keys with the smallest effect on the sums.
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
