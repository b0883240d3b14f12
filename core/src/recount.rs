//! Decides for the recount whether a counter is right: computes what the rows of a row key (one shard of a counter)
//! added up to at the counter's version, and the correction that the counter needs, if any. The recount reads rows one
//! after the other while writes go on, and the log of changes tells what they were at that version.
//!
//! A recount begins to read the log (its *tail*) at a place and filter that the fold has stored, behind every
//! announced loss. It reads the rows of a key, waits the guard time, and puts a marker (an item that counts nothing)
//! beside them. Once the marker comes in the tail, everything that happened to the key before its rows were read is in
//! the tail, too, however late the stream is. Then it reads the counter, and the tail up to the counter's version.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::changes::{Amend, Correction, Effect, Entry, Nonce, Place};
use crate::fold::Counter;
use crate::ids::{MemberKey, RowKey};
use crate::weight::Weight;

/// A smaller correction is never large.
const LARGE: u64 = 1000;
/// A large correction is at least this fraction (one tenth) of the count or of the rows, whichever is greater.
const LARGE_PART: u64 = 10;

/// The rows of one key as a recount has read them, and the tail's entries of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    key: RowKey,
    rows: Rows,
    /// The tail's entries of each row, in the order of the log.
    tail: BTreeMap<MemberKey, Vec<Weighed>>,
    marker: Option<Nonce>,
    seen: bool,
    /// The last announcement of a loss before the tail began.
    loss: Option<Place>,
}

/// One entry of a row; a weight is `None` where it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Weighed {
    at: Place,
    before: Option<i64>,
    after: Option<i64>,
}

impl Key {
    /// Begins a key. The tail began behind the announcement `loss`, and before the rows are read.
    pub fn new(key: RowKey, loss: Option<Place>) -> Self {
        Self { key, rows: Rows::default(), tail: BTreeMap::new(), marker: None, seen: false, loss }
    }

    pub fn id(&self) -> &RowKey {
        &self.key
    }

    /// Takes a row; `weight` is `None` if it cannot be read. Rows come in the order of their sort keys, as the store
    /// returns them.
    pub fn row(&mut self, member: MemberKey, weight: Option<Weight>) {
        self.rows.push(member, weight);
    }

    /// Notes that all rows are read, the guard time has passed, and this marker is about to be written.
    pub fn marked(&mut self, marker: Nonce) {
        self.marker = Some(marker);
    }

    /// Takes an entry of this key that the tail accepted.
    pub fn entry(&mut self, at: Place, entry: &Entry) {
        let (member, before, after) = match &entry.effect {
            Effect::Weighed { member, before, after, .. } => (member, Some(before.weight), Some(after.weight)),
            Effect::Unreadable { member } => (member, None, None),
            Effect::Marked(nonce) => return self.seen |= self.marker == Some(*nonce),
        };
        self.tail.entry(member.clone()).or_default().push(Weighed { at, before, after });
    }

    /// Returns whether the tail has everything that happened before the rows were read, so that the counter may be
    /// read.
    pub fn is_complete(&self) -> bool {
        self.seen
    }

    /// Returns what the rows added up to at the place `version`. Returns `None` if a weight cannot be read, or the sum
    /// has more than 64 bits. The tail must have been read up to there.
    pub fn sum(&self, version: Place) -> Option<i64> {
        let unreadable = self.rows.others.values().filter(|weight| weight.is_none()).count();
        let (mut sum, mut unreadable) = (self.rows.total, unreadable);
        for (member, entries) in &self.tail {
            match self.rows.weight(member) {
                Some(Some(as_read)) => sum -= i128::from(as_read.get()),
                Some(None) => unreadable -= 1,
                None => {}
            }
            let last = entries.iter().rev().find(|entry| entry.at < version);
            let weight = last.map_or(entries[0].before, |entry| entry.after);
            sum += i128::from(weight?);
        }
        if unreadable == 0 { i64::try_from(sum).ok() } else { None }
    }

    /// Returns the correction for a counter that was read once the key was complete. The counter needs one if its part
    /// differs from the rows, its total is not the sum of its parts, or its doubt is not what the rows show.
    ///
    /// Before the counter was read, everything before `passed` was known to be in the counters. A counter with a
    /// smaller version has lost something, because it was deleted or restored.
    pub fn compare(&self, counter: &Counter, passed: Place) -> Option<Correction> {
        let shard = self.key.shard;
        let doubted = counter.doubt.contains(&shard);
        let amend = match self.sum(counter.version.max(passed)).map(|sum| sum.saturating_sub(counter.part(shard))) {
            None if doubted => return None,
            None => Amend::Doubt,
            Some(0) if !doubted && counter.adds_up() => return None,
            Some(add) => Amend::Add(add),
        };
        Some(Correction {
            counter: self.key.counter.clone(),
            parts: BTreeMap::from([(shard, amend)]),
            seen: counter.corrections,
            loss: self.loss,
        })
    }
}

/// The rows as they were read. A key may have millions, so each takes little more than its sort key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Rows {
    /// The sort keys in order, one right behind the other.
    text: String,
    /// The end of each sort key.
    ends: Vec<usize>,
    /// The weights that are not 1; `None` where a weight cannot be read.
    others: BTreeMap<MemberKey, Option<Weight>>,
    /// The sum of the readable weights.
    total: i128,
}

impl Rows {
    /// Adds a row behind all others.
    fn push(&mut self, member: MemberKey, weight: Option<Weight>) {
        self.text.push_str(member.as_str());
        self.ends.push(self.text.len());
        self.total += weight.map_or(0, |weight| weight.get().into());
        if weight != Some(Weight::ONE) {
            self.others.insert(member, weight);
        }
    }

    /// Returns the weight of a row; `None` where there is no row.
    fn weight(&self, member: &MemberKey) -> Option<Option<Weight>> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let start = middle.checked_sub(1).map_or(0, |before| self.ends[before]);
            match self.text[start..self.ends[middle]].cmp(member.as_str()) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(self.others.get(member).copied().unwrap_or(Some(Weight::ONE))),
            }
        }
        None
    }
}

/// Returns whether a correction is withheld unless a person insists, or a loss explains it.
pub fn is_large(counted: i64, correction: i64) -> bool {
    let rows = counted.saturating_add(correction);
    let (step, size) = (correction.unsigned_abs(), counted.unsigned_abs().max(rows.unsigned_abs()));
    step >= LARGE && step.saturating_mul(LARGE_PART) >= size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Side;
    use crate::ids::{CounterId, PostId, Shard};
    use crate::topic::Offset;

    fn at(offset: u64) -> Place {
        Place::new(1, Offset(offset))
    }

    fn key() -> RowKey {
        RowKey { counter: CounterId::likes(PostId::new("p").unwrap()), shard: Shard::FIRST }
    }

    fn member(name: &str) -> MemberKey {
        MemberKey::new(name).unwrap()
    }

    fn changed(name: &str, before: i64, after: i64) -> Entry {
        let side = |weight| Side { weight, ..Side::default() };
        let effect = Effect::Weighed { member: member(name), before: side(before), after: side(after) };
        Entry { key: key(), effect, second: 0, sequence: 1.into() }
    }

    fn looked(rows: &[(&str, Option<i64>)], tail: &[(u64, Entry)]) -> Key {
        let mut look = Key::new(key(), None);
        for (name, weight) in rows {
            look.row(member(name), weight.and_then(Weight::new));
        }
        for (offset, entry) in tail {
            look.entry(at(*offset), entry);
        }
        look
    }

    /// Returns the correction of the only shard, where everything before `passed` is in the counters.
    fn amended(look: &Key, counter: &Counter, passed: u64) -> Option<Amend> {
        look.compare(counter, at(passed)).map(|correction| correction.parts[&Shard::FIRST])
    }

    #[test]
    fn a_row_whose_weight_cannot_be_read_leaves_the_key_in_doubt() {
        let look = looked(&[("u", None), ("v", Some(1))], &[]);
        let fine = Counter::default();
        assert_eq!(amended(&look, &fine, 0), Some(Amend::Doubt));
        let doubted = Counter { doubt: [Shard::FIRST].into(), ..Counter::default() };
        assert_eq!(amended(&look, &doubted, 0), None);
    }

    #[test]
    fn a_doubt_that_the_rows_do_not_give_any_more_is_taken_away_by_a_correction_of_nothing() {
        let doubted = Counter { doubt: [Shard::FIRST].into(), corrections: 4, ..Counter::default() };
        let look = looked(&[], &[]);
        assert_eq!(amended(&look, &doubted, 0), Some(Amend::Add(0)));
        assert_eq!(look.compare(&doubted, at(0)).unwrap().seen, 4);
    }

    #[test]
    fn a_counter_that_lost_what_it_had_is_not_taken_for_one_that_is_behind() {
        let look = looked(&[("u", Some(1))], &[(3, changed("u", 0, 1))]);
        let none = Counter::default();
        assert_eq!(amended(&look, &none, 3), None, "it is still to be folded");
        assert_eq!(amended(&look, &none, 4), Some(Amend::Add(1)), "it was folded");
    }

    #[test]
    fn a_row_that_could_not_be_read_weighs_what_its_last_entry_says() {
        let unreadable = Entry { effect: Effect::Unreadable { member: member("u") }, ..changed("u", 0, 0) };
        let look = looked(&[("u", None), ("v", Some(1))], &[(3, changed("u", 0, 1)), (5, unreadable)]);
        assert_eq!([at(3), at(4), at(5), at(6)].map(|version| look.sum(version)), [Some(1), Some(2), Some(2), None]);
    }

    #[test]
    fn a_sum_beyond_64_bits_is_in_doubt() {
        let rows: Vec<String> = (0..10).map(|n| format!("{n}")).collect();
        let rows: Vec<_> = rows.iter().map(|name| (name.as_str(), Some(Weight::MAX))).collect();
        assert_eq!(looked(&rows[..9], &[]).sum(at(0)), Some(9 * Weight::MAX));
        assert_eq!(looked(&rows, &[]).sum(at(0)), None);
    }

    #[test]
    fn a_correction_is_large_from_a_thousand_and_a_tenth_on() {
        for (counted, correction, large) in
            [(0, 999, false), (0, 1_000, true), (9_000, 1_000, true), (9_001, 1_000, false), (1_000, -1_000, true)]
        {
            assert_eq!(is_large(counted, correction), large, "{counted} {correction}");
        }
    }

    #[test]
    fn rows_are_what_a_map_of_them_is() {
        let weights = [None, Weight::new(-7), Some(Weight::ONE), Some(Weight::ONE)];
        let names: std::collections::BTreeSet<String> = (0..300).map(|n| format!("{:x}", n * 7)).collect();
        let map: BTreeMap<_, _> = names.iter().map(|name| member(name)).zip(weights.into_iter().cycle()).collect();
        let mut rows = Rows::default();
        map.iter().for_each(|(member, weight)| rows.push(member.clone(), *weight));
        assert_eq!(rows.total, map.values().flatten().map(|weight| i128::from(weight.get())).sum());
        for member in (0..2_200).map(|n| member(&format!("{n:x}"))) {
            assert_eq!(rows.weight(&member), map.get(&member).copied(), "{member}");
        }
    }
}
