//! Compares the lists that a reader of the topic of boards gets at each moment with the gains of the rows. The gains come from
//! the store's changes of rows, not from the log.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use anyhow::{Context, ensure};
use tally_adapters::memory::log::TopicReader;
use tally_core::ids::{CounterName, PostId, Region};
use tally_core::ports::TopicReader as _;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_trends::{BoardRules, Claim, Place, Published, Ranked, Reason, Shelf, Top, Window};

use crate::simulation::history::{History, RowChange};
use crate::simulation::mutant::Mutant;
use crate::simulation::profile::Profile;
use crate::simulation::rewrite::Misread;
use crate::simulation::world::World;

/// The topic of boards.
pub(crate) const BOARDS: &str = "boards";
/// The group of all processes that make lists.
pub(crate) const GROUP: &str = "tally-trends";

/// The regions of events.
pub(crate) const REGIONS: [&str; 3] = ["us", "eu", "ap"];

/// The windows are so short that many changes leave them during a schedule.
const WINDOWS: [&str; 2] = ["1m", "2m"];

/// The boards are so small that they are cut and refilled all the time.
pub(crate) const RULES: BoardRules = BoardRules { most: 4, keep: 3, least: 2, list: 2, min_count: 1 };

/// The windows of all lists.
pub(crate) fn windows() -> Vec<Window> {
    WINDOWS.map(|window| window.parse().expect("it is a window")).to_vec()
}

/// The numbers of judged lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    pub(crate) lists: u64,
    /// Lists that were called exact.
    pub(crate) exact: u64,
    /// Lists with a bound.
    pub(crate) bounded: u64,
}

/// A reader of all lists.
pub(crate) struct Lists {
    boards: TopicReader,
    read: BTreeMap<u32, Offset>,
    places: Vec<Place>,
    shelf: Shelf,
    misread: Option<Misread>,
    told: u64,
    /// The topic after compaction: the time and value of each key.
    kept: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    messages: u64,
    /// The changes of rows, by second, and their number.
    seconds: BTreeMap<u64, Vec<RowChange>>,
    taken: usize,
    gained: Vec<Gained>,
    pub(crate) judged: Judged,
}

/// A message of the topic.
struct Message {
    at: UnixMillis,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Lists {
    /// Reads lists of the counters and regions of `profile`, as `mutant` reads them; `None` if there are no lists.
    pub(crate) fn of(world: &World, profile: &Profile, mutant: Option<Mutant>) -> Option<Self> {
        profile.listing.as_ref()?;
        let region = |name: &str| Region::new(name).expect("it is a region");
        let regions = || std::iter::once(None).chain(REGIONS.iter().map(|name| Some(region(name))));
        let of_counter = |counter: CounterName| regions().map(move |region| Place { counter: counter.clone(), region });
        let mut shelf = Shelf::default();
        shelf.read_whole();
        Some(Self {
            boards: world.broker.reader("observer", BOARDS),
            read: BTreeMap::new(),
            places: profile.mix.names().flat_map(of_counter).collect(),
            shelf,
            misread: mutant.and_then(Misread::of),
            told: 0,
            kept: BTreeMap::new(),
            messages: 0,
            seconds: BTreeMap::new(),
            taken: 0,
            gained: windows().into_iter().map(Gained::over).collect(),
            judged: Judged::default(),
        })
    }

    /// Reads the new messages, and compares the lists of every published moment with the rows.
    pub(crate) async fn look(&mut self, history: &History) -> anyhow::Result<()> {
        let changes = history.rows_behind(self.taken);
        self.taken += changes.len();
        changes.into_iter().for_each(|change| self.seconds.entry(change.second).or_default().push(change));
        for Message { key, value, .. } in self.messages().await {
            self.messages += 1;
            match &value {
                Some(value) => self.take(&key, value)?,
                None => _ = self.kept.remove(&key),
            }
            if let Some(value) = value {
                self.kept.insert(key, (self.messages, value));
            }
        }
        self.begun_anew()
    }

    /// The new messages in order of time; none while the broker is unavailable.
    async fn messages(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        for (partition, log) in self.boards.logs().await.unwrap_or_default() {
            let at = self.read.entry(partition.index).or_insert(log.start);
            while *at < log.end {
                let Ok(records) = self.boards.read(&partition, *at, log.end).await else { break };
                let Some(last) = records.last_offset() else { break };
                messages.extend(records.iter().map(|record| Message {
                    at: record.at,
                    key: record.key.unwrap_or_default().to_vec(),
                    value: record.value.map(<[u8]>::to_vec),
                }));
                *at = last.next();
            }
        }
        messages.sort_by_key(|message| message.at);
        messages
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let message = Published::read(key, value).context("cannot read a message of the topic of boards")?;
        let is_tick = matches!(message, Published::Tick(_));
        match &mut self.misread {
            None => self.shelf.take(message),
            Some(misread) => misread.take(message, &mut self.shelf),
        }
        let is_another = is_tick && self.shelf.settle();
        let moment = self.shelf.moment().unwrap_or_default();
        ensure!(moment >= self.told, "lists went from {} back to {moment}", self.told);
        self.told = moment;
        if is_another { self.judge() } else { Ok(()) }
    }

    /// Compares the lists of the published moment with the rows.
    fn judge(&mut self) -> anyhow::Result<()> {
        let moment = self.told;
        for gained in &mut self.gained {
            gained.advance(&self.seconds, moment);
            for place in &self.places {
                let top = told(&self.shelf, place, gained.window)?;
                listed(&top, gained.of(place), RULES.list).with_context(|| {
                    format!("the list of {place:?} over {} at {moment}, {:?}", gained.window, top.claim)
                })?;
                self.judged.lists += 1;
                self.judged.exact += u64::from(top.claim == Claim::Exact);
                self.judged.bounded += u64::from(matches!(top.claim, Claim::Bound(_)));
            }
        }
        Ok(())
    }

    /// Checks that a new reader of the compacted topic gets no wrong list, either.
    fn begun_anew(&self) -> anyhow::Result<()> {
        let mut left: Vec<_> = self.kept.iter().collect();
        left.sort_unstable_by_key(|(_, (nth, _))| *nth);
        let mut shelf = Shelf::default();
        for (key, (_, value)) in left {
            shelf.take(Published::read(key, value)?);
        }
        shelf.read_whole();
        shelf.settle();
        let Some(moment) = shelf.moment() else { return Ok(()) };
        for window in windows() {
            let mut gained = Gained::over(window);
            gained.advance(&self.seconds, moment);
            for place in &self.places {
                let top = told(&shelf, place, window)?;
                listed(&top, gained.of(place), RULES.list).with_context(|| {
                    format!("for a new reader: the list of {place:?} over {window} at {moment}, {:?}", top.claim)
                })?;
            }
        }
        Ok(())
    }

    /// The published moment.
    pub(crate) fn moment(&self) -> u64 {
        self.told
    }

    /// The reason why some list is not exact, if there is one. If keys are `limited`, forgotten keys do not count.
    pub(crate) fn unsure(&self, limited: bool) -> anyhow::Result<Option<Claim>> {
        for window in windows() {
            for place in &self.places {
                let claim = told(&self.shelf, place, window)?.claim;
                let allowed = matches!(claim, Claim::Bound(_) | Claim::Unknown(Reason::Shed));
                if claim != Claim::Exact && !(limited && allowed) {
                    return Ok(Some(claim));
                }
            }
        }
        Ok(None)
    }
}

/// The list of `place`. Once there is a moment, every place has a list.
fn told(shelf: &Shelf, place: &Place, window: Window) -> anyhow::Result<Top> {
    let top = shelf.top(place, window, RULES.list);
    top.with_context(|| format!("there is no list of {place:?} over {window} at {:?}", shelf.moment()))
}

/// The gain of each subject.
pub(crate) type Sums = BTreeMap<PostId, i64>;

static NOTHING: Sums = Sums::new();

/// The gains of all places over one window, which moves with time.
#[derive(Debug)]
pub(super) struct Gained {
    pub(super) window: Window,
    /// The last second before the window, and the last one in it.
    from: u64,
    to: u64,
    sums: BTreeMap<CounterName, BTreeMap<Option<Region>, Sums>>,
}

impl Gained {
    /// No gains yet.
    pub(super) fn over(window: Window) -> Self {
        Self { window, from: 0, to: 0, sums: BTreeMap::new() }
    }

    /// Moves the end of the window to `moment`, which is no earlier than before.
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

    /// The gains of the subjects of `place`.
    pub(super) fn of(&self, place: &Place) -> &Sums {
        let places = self.sums.get(&place.counter);
        places.and_then(|places| places.get(&place.region)).unwrap_or(&NOTHING)
    }
}

/// An exact list must be the first `k` of `gained`. In a list with a bound, no count may be off by more, and no unlisted
/// subject may beat the last one by more.
pub(crate) fn listed(top: &Top, gained: &BTreeMap<PostId, i64>, k: usize) -> anyhow::Result<()> {
    let items = &top.list.items;
    let worth = gained.iter().filter(|(_, sum)| **sum >= 1);
    let mut right: Vec<Ranked> = worth.map(|(subject, sum)| Ranked::new(subject.clone(), *sum)).collect();
    right.sort_unstable();
    match top.claim {
        Claim::Unknown(_) => {}
        Claim::Exact => {
            right.truncate(k);
            ensure!(*items == right, "{items:?} is listed, but rows gained {right:?}");
        }
        Claim::Bound(bound) => {
            for item in items {
                let sum = gained.get(&item.subject).copied().unwrap_or(0);
                ensure!(item.count().abs_diff(sum) <= bound, "{item:?} is listed, but its rows gained {sum}");
            }
            let last = items.get(k.saturating_sub(1)).map_or(0, Ranked::count);
            let bound = i64::try_from(bound).unwrap_or(i64::MAX);
            let unlisted = right.iter().find(|right| !items.iter().any(|item| item.subject == right.subject));
            let beats = unlisted.filter(|unlisted| unlisted.count().saturating_sub(last) > bound);
            ensure!(beats.is_none(), "{items:?} is listed, and {beats:?} is not");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tally_trends::List;

    use super::*;

    #[test]
    fn a_list_is_exact_or_within_its_bound() {
        let post = |name: &str| PostId::new(name).expect("an id");
        let gained = [("a", 5), ("b", 3), ("c", 3), ("d", -1)].map(|(name, sum)| (post(name), sum)).into();
        let holds = |items: &[(&str, i64)], claim| {
            let items = items.iter().map(|(name, count)| Ranked::new(post(name), *count)).collect();
            let list = List { moment: 9, from: 0, items, complete: false };
            listed(&Top { list, claim }, &gained, 2).is_ok()
        };
        assert!(holds(&[("a", 5), ("b", 3)], Claim::Exact));
        assert!(!holds(&[("a", 5), ("c", 3)], Claim::Exact) && !holds(&[("a", 5)], Claim::Exact));
        assert!(holds(&[("a", 4), ("c", 2)], Claim::Bound(1)) && !holds(&[("a", 3), ("c", 2)], Claim::Bound(1)));
        assert!(holds(&[("a", 5), ("d", 1)], Claim::Bound(2)) && !holds(&[("a", 5), ("d", 0)], Claim::Bound(2)));
        assert!(!holds(&[("a", 5)], Claim::Bound(2)) && holds(&[("a", 5)], Claim::Bound(3)));
    }
}
