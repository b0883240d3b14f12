//! Adds up a counter over several AWS Regions. It has an *entry*, a part of its count, for each: one for this Region,
//! and copies of those of the others. Each entry is judged by a standing of its own, which says up to when its changes
//! are counted; an answer is their sum.
//!
//! What [`number`](super::number) says of an answer holds for the sum, too: from its own `as_of` on, each entry is
//! between its least and its greatest value; so all are from the earliest of these times on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tally_core::ids::{CounterId, CounterKind, Region};
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use super::local::{Found, Kept};
use super::number::Number;
use super::timing::Timing;
use crate::answer::{Answer, Summed};
use crate::error::Result;

/// A value for each entry of a counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries<T> {
    /// That of this Region's entry.
    pub own: T,
    /// Those of other Regions' entries, with the ids of the entries.
    pub others: Vec<(CounterId, T)>,
}

impl<T> Entries<T> {
    /// Iterates over all values, this Region's first.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.own).chain(self.others.iter().map(|(_, of)| of))
    }

    /// Applies `change` to each value.
    pub(super) fn map<'a, U>(&'a self, change: impl Fn(&'a T) -> U) -> Entries<U> {
        let others = self.others.iter().map(|(id, of)| (id.clone(), change(of)));
        Entries { own: change(&self.own), others: others.collect() }
    }
}

impl<T> From<T> for Entries<T> {
    fn from(own: T) -> Self {
        Self { own, others: Vec::new() }
    }
}

impl Entries<Found> {
    /// Waits for all reads. Returns the numbers, and which layers they came from.
    pub(super) async fn timed(self) -> Result<(Entries<Arc<Kept>>, Timing)> {
        let (own, mut timing) = self.own.timed().await?;
        let mut others = Vec::with_capacity(self.others.len());
        for (id, found) in self.others {
            let (kept, took) = found.timed().await?;
            timing = timing.and(took);
            others.push((id, kept));
        }
        Ok((Entries { own, others }, timing))
    }
}

impl Entries<Number> {
    /// Takes the Regions of `later`, and of each entry the number that replaces the other.
    pub fn renew(&mut self, later: Self) {
        let held = std::mem::replace(self, later);
        let keep = |later: &mut Number, held: &Number| {
            if !later.replaces(held) {
                later.clone_from(held);
            }
        };
        keep(&mut self.own, &held.own);
        for (id, later) in &mut self.others {
            held.others.iter().filter(|(of, _)| of == id).for_each(|(_, held)| keep(later, held));
        }
    }
}

impl Entries<Answer> {
    /// Returns the sum over all Regions; `own` is this Region's name. The sum is exact if each entry is and it fits 64
    /// bits, fresh if each entry is, and has the earliest `as_of`.
    pub fn sum(self, kind: CounterKind, own: Option<&Region>) -> Answer {
        if self.others.is_empty() {
            return self.own;
        }
        let all = self.named(own);
        let likes: i128 = all.iter().map(|(_, answer)| i128::from(answer.served.value(kind))).sum();
        let behind: Vec<String> =
            all.iter().filter(|(_, answer)| !answer.fresh).map(|(name, _)| (*name).to_owned()).collect();
        let mut hasher = DefaultHasher::new();
        all.iter().for_each(|(name, answer)| (name, answer.served.version).hash(&mut hasher));
        behind.hash(&mut hasher);
        let served = Served {
            likes: i64::try_from(likes).unwrap_or(if likes < 0 { i64::MIN } else { i64::MAX }),
            version: all.iter().fold(0, |sum: u64, (_, answer)| sum.saturating_add(answer.served.version)),
            exact: all.iter().all(|(_, answer)| answer.served.exact) && i64::try_from(likes).is_ok(),
            as_of: all.iter().map(|(_, answer)| answer.served.as_of).min().unwrap_or(UnixMillis(0)),
        };
        let fresh = behind.is_empty();
        let summed = Summed { own: self.own.served, behind, hash: hasher.finish() };
        Answer { served, fresh, summed: Some(Box::new(summed)) }
    }

    /// Returns each entry beside its Region's name.
    pub fn named<'a>(&'a self, own: Option<&'a Region>) -> Vec<(&'a str, &'a Answer)> {
        let own = (own.map_or("", Region::as_str), &self.own);
        let others = self.others.iter().map(|(id, answer)| (id.name.region().unwrap_or_default(), answer));
        std::iter::once(own).chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Edition;

    fn answer(version: u64, fresh: bool) -> Answer {
        Answer { served: Served { version, exact: true, ..Served::default() }, fresh, summed: None }
    }

    /// The sum of this Region's entry and those of others: the name, the version, and whether it is fresh.
    fn sum(own: u64, others: &[(&str, u64, bool)]) -> Answer {
        let likes = CounterId::likes("p".parse().expect("a post"));
        let entry = |&(name, version, fresh): &(&str, u64, bool)| {
            (likes.in_region(&Region::new(name).expect("a name")), answer(version, fresh))
        };
        let entries = Entries { own: answer(own, true), others: others.iter().map(entry).collect() };
        entries.sum(CounterKind::Set, Region::new("eu").as_ref())
    }

    #[test]
    fn editions_differ_where_entries_or_what_is_behind_do_also_where_their_versions_have_the_same_sum() {
        let sums = [
            sum(5, &[("us", 7, true)]),
            sum(6, &[("us", 6, true)]),
            sum(7, &[("us", 5, true)]),
            sum(5, &[("us", 7, false)]),
            answer(12, true),
            sum(4, &[("us", 4, false), ("ap", 4, true)]),
            sum(4, &[("us", 4, true), ("ap", 4, false)]),
        ];
        assert!(sums.iter().all(|sum| sum.served.version == 12));
        let editions = sums.each_ref().map(|sum| Edition::of(sum).to_string());
        for (nth, edition) in editions.iter().enumerate() {
            assert_eq!(Edition::parse(edition), Some(Edition::of(&sums[nth])), "{edition}");
            assert!(!editions[..nth].contains(edition), "{editions:?}");
        }
        assert_eq!(Edition::of(&sum(5, &[("us", 7, true)])), Edition::of(&sums[0]));
        assert_eq!((editions[4].as_str(), Edition::parse("12-.1"), Edition::parse("12-0g.1")), ("12.1", None, None));
    }
}
