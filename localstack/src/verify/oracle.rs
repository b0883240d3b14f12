//! What lists of what is trending have to be, by the records of the change stream: every change of every row, by its second.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use tally_core::changes::{Effect, Entry, Side};
use tally_core::ids::{CounterName, PostId, Region};
use tally_core::tally::Record;

use crate::sightings::{Claim, List, MOST, Sighting};

/// What changed the sums of one counter in one region, or in all: second by second.
type Seconds = BTreeMap<u64, Vec<(PostId, i64)>>;

/// Every change that the stream tells of.
#[derive(Debug, Default)]
pub(super) struct Oracle(BTreeMap<(CounterName, Option<Region>), Seconds>);

impl Oracle {
    pub(super) fn take(&mut self, record: &Record) {
        let Some(Entry { key, effect: Effect::Weighed { before, after, .. }, second, .. }) = Entry::of(record) else {
            return;
        };
        let (subject, counter) = (key.counter.post, key.counter.name);
        let mut add = |region: Option<Region>, by: i64| {
            let seconds = self.0.entry((counter.clone(), region)).or_default();
            seconds.entry(second).or_default().push((subject.clone(), by));
        };
        add(None, after.weight - before.weight);
        for (Side { region, weight, .. }, sign) in [(before, -1), (after, 1)] {
            if region.is_some() && weight != 0 {
                add(region, sign * weight);
            }
        }
    }

    /// What came to each subject of a counter over all time.
    pub(super) fn totals(&self, name: &CounterName, region: Option<&Region>) -> BTreeMap<PostId, i64> {
        let mut sums = Sums::default();
        if let Some(seconds) = self.0.get(&(name.clone(), region.cloned())) {
            seconds.values().flatten().for_each(|(subject, by)| sums.add(subject, *by));
        }
        sums.0
    }

    /// The counters that anything was changed of.
    pub(super) fn names(&self) -> impl Iterator<Item = &CounterName> {
        self.0.keys().filter(|(_, region)| region.is_none()).map(|(name, _)| name)
    }

    /// A window of one list, which only moves forward.
    pub(super) fn window(&self, list: &List) -> Sliding<'_> {
        let seconds = self.0.get(&(list.name.clone(), list.region.clone()));
        Sliding { seconds, sums: Sums::default(), from: 0, to: 0 }
    }
}

/// What subjects come to, without those that come to nothing.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<PostId, i64>);

impl Sums {
    fn add(&mut self, subject: &PostId, by: i64) {
        let sum = self.0.entry(subject.clone()).or_default();
        *sum += by;
        if *sum == 0 {
            self.0.remove(subject);
        }
    }

    fn of(&self, subject: &str) -> i64 {
        PostId::new(subject).ok().and_then(|subject| self.0.get(&subject).copied()).unwrap_or(0)
    }

    /// The list that they make.
    fn first(&self) -> Vec<(&str, i64)> {
        let mut all: Vec<(&str, i64)> =
            self.0.iter().filter(|(_, sum)| **sum >= 1).map(|(subject, sum)| (subject.as_str(), *sum)).collect();
        all.sort_unstable_by_key(|(subject, sum)| (Reverse(*sum), *subject));
        all.truncate(MOST);
        all
    }

    /// What of `sighting` is not as it claims, place by place; nothing of a sighting that claims nothing.
    pub(super) fn contradict(&self, sighting: &Sighting) -> Vec<String> {
        let bound = match sighting.claim {
            Claim::Unknown(_) => return Vec::new(),
            Claim::Bound(0) => return self.differ(sighting),
            Claim::Bound(bound) => i64::try_from(bound).unwrap_or(i64::MAX),
        };
        let listed = sighting.items.iter().filter(|(subject, count)| (count - self.of(subject)).abs() > bound);
        let mut wrong: Vec<String> = listed
            .map(|(subject, count)| format!("{subject} has {count}, and {} by the stream", self.of(subject)))
            .collect();
        let last = sighting.items.get(MOST - 1).map_or(0, |(_, count)| *count);
        let unlisted = self.0.iter().filter(|(subject, _)| sighting.items.iter().all(|(id, _)| id != subject.as_str()));
        wrong.extend(
            unlisted
                .filter(|(_, sum)| **sum > last.saturating_add(bound))
                .map(|(subject, sum)| format!("{subject} with {sum} is not listed")),
        );
        wrong
    }

    fn differ(&self, sighting: &Sighting) -> Vec<String> {
        let expected = self.first();
        let listed = |place: usize| sighting.items.get(place).map(|(subject, count)| (subject.as_str(), *count));
        (0..expected.len().max(sighting.items.len()))
            .map(|place| (place + 1, listed(place), expected.get(place).copied()))
            .filter(|(_, listed, right)| listed != right)
            .map(|(place, listed, right)| format!("place {place}: listed {listed:?}, by the stream {right:?}"))
            .collect()
    }
}

/// The sums of one list from one second to another.
pub(super) struct Sliding<'a> {
    seconds: Option<&'a Seconds>,
    sums: Sums,
    from: u64,
    to: u64,
}

impl Sliding<'_> {
    /// The sums behind the second `from` and up to the second `to`; neither goes back.
    pub(super) fn moved_to(&mut self, from: u64, to: u64) -> &Sums {
        let Some(seconds) = self.seconds else { return &self.sums };
        let (from, to) = (from.max(self.from), to.max(self.to));
        let between = |after, to| seconds.range((Excluded(after), Included(to))).flat_map(|(_, changes)| changes);
        for (subject, by) in between(self.to, to) {
            self.sums.add(subject, *by);
        }
        for (subject, by) in between(self.from, from) {
            self.sums.add(subject, -by);
        }
        (self.from, self.to) = (from, to);
        &self.sums
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{CounterId, MemberKey, RowKey, Sequence, ShardCount};
    use tally_core::tally::RecordKind;
    use tally_core::time::UnixMillis;

    use super::*;

    fn region(name: &str) -> Option<Region> {
        Region::new(name)
    }

    fn record(second: u64, post: &str, weights: (i64, i64), regions: (Option<Region>, Option<Region>)) -> Record {
        let (id, member) = (CounterId::likes(PostId::new(post).unwrap()), MemberKey::new("u").unwrap());
        let key = RowKey::of(&id, "u", ShardCount::DEFAULT);
        let side = |weight, region| Side { weight, region, v: None };
        let (before, after) = (side(weights.0, regions.0), side(weights.1, regions.1));
        let kind = RecordKind::Row { key, member, before, after };
        Record { sequence: Sequence::from(1), written: UnixMillis(second * 1000), kind }
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        for record in [
            record(10, "a", (0, 1), (None, region("eu"))),
            record(20, "b", (0, 1), (None, region("us"))),
            record(20, "b", (0, 1), (None, region("us"))),
            // A like again from elsewhere, and an unlike.
            record(30, "a", (1, 1), (region("eu"), region("us"))),
            record(40, "b", (1, 0), (region("us"), None)),
        ] {
            oracle.take(&record);
        }
        oracle
    }

    fn list(place: Option<Region>) -> List {
        List { name: CounterName::LIKES, region: place, window: "1m" }
    }

    fn sighting(claim: Claim, items: &[(&str, i64)]) -> Sighting {
        Sighting { from: 0, claim, items: items.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect() }
    }

    #[test]
    fn a_window_has_what_rows_gained_in_it_in_each_region() {
        let oracle = oracle();
        let mut all = oracle.window(&list(None));
        assert_eq!(all.moved_to(0, 19).first(), [("a", 1)]);
        assert_eq!(all.moved_to(0, 30).first(), [("b", 2), ("a", 1)]);
        assert_eq!(all.moved_to(10, 40).first(), [("b", 1)]);
        let mut eu = oracle.window(&list(region("eu")));
        assert_eq!(eu.moved_to(0, 29).first(), [("a", 1)]);
        assert_eq!(eu.moved_to(0, 30).first(), []);
        let mut us = oracle.window(&list(region("us")));
        assert_eq!(us.moved_to(0, 40).first(), [("a", 1), ("b", 1)]);
        let totals = oracle.totals(&CounterName::LIKES, region("us").as_ref());
        assert_eq!(totals.values().copied().collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_list_that_is_called_exact_and_is_not_is_found_and_so_is_one_that_is_off_by_more_than_its_bound() {
        let oracle = oracle();
        let mut all = oracle.window(&list(None));
        let sums = all.moved_to(0, 30);
        for (claim, items, wrong) in [
            (Claim::Bound(0), &[("b", 2), ("a", 1)][..], 0),
            (Claim::Bound(0), &[("b", 2)], 1),
            (Claim::Bound(0), &[("b", 3), ("a", 1)], 1),
            (Claim::Bound(0), &[("a", 1), ("b", 2)], 2),
            (Claim::Bound(1), &[("b", 3), ("a", 1)], 0),
            (Claim::Bound(1), &[("b", 4), ("a", 1)], 1),
            (Claim::Bound(1), &[("a", 1)], 1),
            (Claim::Bound(2), &[("a", 1)], 0),
            (Claim::Unknown("loss".to_owned()), &[], 0),
        ] {
            let sighting = sighting(claim, items);
            assert_eq!(sums.contradict(&sighting).len(), wrong, "{sighting:?}");
        }
    }
}
