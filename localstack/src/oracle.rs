//! Computes from the changes of rows what each list of trending posts or hashtags has to be, and finds what is wrong in
//! a list. The comparison after a run and the simulation use it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use tally_core::ids::{CounterId, CounterName, PostId, Region};

/// What changed the sums of one counter in one region, or in all: second by second.
type Seconds = BTreeMap<u64, Vec<(PostId, i64)>>;

/// The changes of all rows.
#[derive(Debug, Default)]
pub struct Oracle(BTreeMap<(CounterName, Option<Region>), Seconds>);

impl Oracle {
    /// Adds a change of one row: its region and its weight before and after.
    pub fn add(&mut self, of: &CounterId, second: u64, before: (Option<Region>, i64), after: (Option<Region>, i64)) {
        let mut add = |region: Option<Region>, by: i64| {
            let seconds = self.0.entry((of.name.clone(), region)).or_default();
            seconds.entry(second).or_default().push((of.post.clone(), by));
        };
        add(None, after.1 - before.1);
        for ((region, weight), sign) in [(before, -1), (after, 1)] {
            if region.is_some() && weight != 0 {
                add(region, sign * weight);
            }
        }
    }

    /// What came to each subject of a counter over all time.
    pub(crate) fn totals(&self, name: &CounterName, region: Option<&Region>) -> BTreeMap<PostId, i64> {
        let mut all = Sums::default();
        all.move_to(self, (name, region), (0, u64::MAX));
        all.sums
    }

    /// The counters that anything was changed of.
    pub(crate) fn names(&self) -> impl Iterator<Item = &CounterName> {
        self.0.keys().filter(|(_, region)| region.is_none()).map(|(name, _)| name)
    }
}

/// The sums of a list over a sliding window, without those that are 0.
#[derive(Debug, Default)]
pub struct Sums {
    sums: BTreeMap<PostId, i64>,
    from: u64,
    to: u64,
}

impl Sums {
    /// Moves the window to the seconds after `from` and up to `to`. It never moves back.
    pub fn move_to(
        &mut self,
        oracle: &Oracle,
        (name, region): (&CounterName, Option<&Region>),
        (from, to): (u64, u64),
    ) {
        let Some(seconds) = oracle.0.get(&(name.clone(), region.cloned())) else { return };
        let (from, to) = (from.max(self.from), to.max(self.to));
        let between = |after, to| seconds.range((Excluded(after), Included(to))).flat_map(|(_, changes)| changes);
        between(self.to, to).for_each(|(subject, by)| self.add(subject, *by));
        between(self.from, from).for_each(|(subject, by)| self.add(subject, -by));
        (self.from, self.to) = (from, to);
    }

    fn add(&mut self, subject: &PostId, by: i64) {
        let sum = self.sums.entry(subject.clone()).or_default();
        *sum += by;
        if *sum == 0 {
            self.sums.remove(subject);
        }
    }

    fn of(&self, subject: &str) -> i64 {
        PostId::new(subject).ok().and_then(|subject| self.sums.get(&subject).copied()).unwrap_or(0)
    }

    /// The list that they make.
    fn first(&self, most: usize) -> Vec<(&str, i64)> {
        let worth = self.sums.iter().filter(|(_, sum)| **sum >= 1);
        let mut all: Vec<(&str, i64)> = worth.map(|(subject, sum)| (subject.as_str(), *sum)).collect();
        all.sort_unstable_by_key(|(subject, sum)| (Reverse(*sum), *subject));
        all.truncate(most);
        all
    }

    /// Returns what is wrong in a list of at most `most` items whose counts may be off by `bound`; with 0 it has to be exact.
    pub fn contradict(&self, bound: u64, items: &[(String, i64)], most: usize) -> Vec<String> {
        if bound == 0 {
            return self.differ(items, most);
        }
        let bound = i64::try_from(bound).unwrap_or(i64::MAX);
        let listed = items.iter().filter(|(subject, count)| (count - self.of(subject)).abs() > bound);
        let mut wrong: Vec<String> = listed
            .map(|(subject, count)| format!("{subject} has {count}, and {} by the changes", self.of(subject)))
            .collect();
        let last = items.get(most - 1).map_or(0, |(_, count)| *count);
        let unlisted = self.sums.iter().filter(|(subject, _)| items.iter().all(|(id, _)| id != subject.as_str()));
        let beaten = unlisted.filter(|(_, sum)| **sum > last.saturating_add(bound));
        wrong.extend(beaten.map(|(subject, sum)| format!("{subject} with {sum} is not listed")));
        wrong
    }

    fn differ(&self, items: &[(String, i64)], most: usize) -> Vec<String> {
        let expected = self.first(most);
        let listed = |place: usize| items.get(place).map(|(subject, count)| (subject.as_str(), *count));
        (0..expected.len().max(items.len()))
            .map(|place| (place + 1, listed(place), expected.get(place).copied()))
            .filter(|(_, listed, right)| listed != right)
            .map(|(place, listed, right)| format!("place {place}: listed {listed:?}, by the changes {right:?}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_called_exact_and_is_not_is_found_and_so_is_one_that_is_off_by_more_than_its_bound() {
        let (mut oracle, mut sums) = (Oracle::default(), Sums::default());
        for (post, gained) in [("a", 1), ("b", 2)] {
            oracle.add(&CounterId::likes(post.parse().unwrap()), 10, (None, 0), (None, gained));
        }
        sums.move_to(&oracle, (&CounterName::LIKES, None), (0, 30));
        for (bound, items, wrong) in [
            (0, &[("b", 2), ("a", 1)][..], 0),
            (0, &[("b", 2)], 1),
            (0, &[("b", 3), ("a", 1)], 1),
            (0, &[("a", 1), ("b", 2)], 2),
            (1, &[("b", 3), ("a", 1)], 0),
            (1, &[("b", 4), ("a", 1)], 1),
            (1, &[("a", 1)], 1),
            (2, &[("a", 1)], 0),
        ] {
            let items: Vec<_> = items.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect();
            assert_eq!(sums.contradict(bound, &items, 9).len(), wrong, "{bound} {items:?}");
        }
        let alone = |count| sums.contradict(1, &[("a".to_owned(), count)], 1);
        assert_eq!((alone(0), alone(1)), (vec!["b with 2 is not listed".to_owned()], vec![]));
    }
}
