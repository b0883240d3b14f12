//! What the rows of a row key weighed as of a counter's place: rows that were read one after the other while writes went on,
//! set right by the log.
//!
//! A recount begins a tail of the partition at a place and filter that the fold has stored, behind every announced loss. It
//! reads the rows of a key, waits the guard time, puts a marker beside them and follows the tail until the marker is seen.
//! Everything that happened to the key before its rows were read is in the tail then, however late the stream is. Then it
//! reads the counter, and the tail on to the counter's `version`.

use std::collections::BTreeMap;

use crate::changes::{Correction, Effect, Entry, Nonce, Place};
use crate::fold::Counter;
use crate::ids::{MemberKey, RowKey};
use crate::weight::Weight;

/// The rows of one key as a recount has read them, and what the tail says of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    key: RowKey,
    /// The weight of each row; `None` where it cannot be read.
    rows: BTreeMap<MemberKey, Option<Weight>>,
    /// What the tail has of each row, in the order of the log.
    tail: BTreeMap<MemberKey, Vec<(Place, Weighed)>>,
    marker: Option<Nonce>,
    seen: bool,
    /// The last announcement of a loss before the tail began.
    loss: Option<Place>,
}

/// What one entry says of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Weighed {
    before: Option<i64>,
    after: Option<i64>,
}

/// What a look at a key found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// The counter has what the rows have, and adds up.
    Equal,
    /// It has not.
    Differs(Correction),
    /// A weight cannot be read, and the counter does not say so.
    Doubtful(Correction),
}

impl Key {
    /// A key of which nothing is known yet. The tail began behind the announcement `loss`, and before the rows are read.
    pub fn new(key: RowKey, loss: Option<Place>) -> Self {
        Self { key, rows: BTreeMap::new(), tail: BTreeMap::new(), marker: None, seen: false, loss }
    }

    /// A row was read; `None` if its weight cannot be read.
    pub fn row(&mut self, member: MemberKey, weight: Option<Weight>) {
        self.rows.insert(member, weight);
    }

    /// All rows are read, the guard time has passed, and this marker is being put beside them.
    pub fn marked(&mut self, marker: Nonce) {
        self.marker = Some(marker);
    }

    /// The tail accepted an entry of this key.
    pub fn entry(&mut self, at: Place, entry: &Entry) {
        match &entry.effect {
            Effect::Weighed { member, before, after, .. } => {
                let weighed = Weighed { before: Some(before.weight), after: Some(after.weight) };
                self.tail.entry(member.clone()).or_default().push((at, weighed));
            }
            Effect::Unreadable { member } => {
                let weighed = Weighed { before: None, after: None };
                self.tail.entry(member.clone()).or_default().push((at, weighed));
            }
            Effect::Marked(nonce) => self.seen |= self.marker == Some(*nonce),
        }
    }

    /// Whether the tail has everything that happened before the rows were read: the counter may be read now.
    pub fn is_complete(&self) -> bool {
        self.seen
    }

    /// What the rows came to at the place `version`; `None` if a weight cannot be read. The tail must have been read up to
    /// there.
    pub fn sum(&self, version: Place) -> Option<i64> {
        let without_entries = self.rows.iter().filter(|(member, _)| !self.tail.contains_key(*member));
        let still = without_entries.map(|(_, weight)| weight.map(Weight::get));
        let moved = self.tail.values().map(|entries| {
            let last = entries.iter().rev().find(|(at, _)| *at < version);
            match last {
                Some((_, weighed)) => weighed.after,
                None => entries[0].1.before,
            }
        });
        still.chain(moved).try_fold(0i64, |sum, weight| sum.checked_add(weight?))
    }

    /// Compares with the counter, which was read once the key was complete.
    pub fn compare(&self, counter: &Counter) -> Finding {
        let correction =
            |add, doubt| Correction { key: self.key.clone(), add, seen: counter.corrections, loss: self.loss, doubt };
        let shard = self.key.shard;
        let doubted = counter.doubt.contains(&shard);
        match self.sum(counter.version) {
            None if doubted => Finding::Equal,
            None => Finding::Doubtful(correction(0, true)),
            Some(sum) if sum == counter.part(shard) && !doubted && counter.adds_up() => Finding::Equal,
            Some(sum) => Finding::Differs(correction(sum.saturating_sub(counter.part(shard)), false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Side;
    use crate::fence::Offset;
    use crate::ids::{CounterId, PostId, Shard};

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
        let side = |weight| Side { weight, region: None };
        let effect = Effect::Weighed { member: member(name), before: side(before), after: side(after), span: None };
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

    #[test]
    fn a_row_that_changed_weighs_what_it_did_at_the_counters_place() {
        // Read as present, and liked, unliked and liked again meanwhile.
        let tail = [(3, changed("u", 0, 1)), (5, changed("u", 1, 0)), (8, changed("u", 0, 1))];
        let look = looked(&[("u", Some(1)), ("v", Some(1))], &tail);
        for (version, sum) in [(0, 1), (3, 1), (4, 2), (5, 2), (6, 1), (9, 2)] {
            assert_eq!(look.sum(at(version)), Some(sum), "as of {version}");
        }
    }

    #[test]
    fn a_row_whose_weight_cannot_be_read_leaves_the_key_in_doubt() {
        let look = looked(&[("u", None), ("v", Some(1))], &[]);
        let fine = Counter::default();
        assert!(matches!(look.compare(&fine), Finding::Doubtful(Correction { doubt: true, add: 0, .. })));
        let doubted = Counter { doubt: [Shard::FIRST].into(), ..Counter::default() };
        assert_eq!(look.compare(&doubted), Finding::Equal);
    }

    #[test]
    fn a_doubt_that_the_rows_do_not_give_any_more_is_taken_away_by_a_correction_of_nothing() {
        let doubted = Counter { doubt: [Shard::FIRST].into(), corrections: 4, ..Counter::default() };
        let Finding::Differs(correction) = looked(&[], &[]).compare(&doubted) else { panic!("the doubt stays") };
        assert_eq!((correction.add, correction.seen, correction.doubt), (0, 4, false));
    }

    #[test]
    fn a_total_that_is_not_the_sum_of_its_parts_is_set_right_by_a_correction_of_nothing() {
        let edited = Counter { likes: 3, parts: [(Shard::FIRST, 1)].into(), ..Counter::default() };
        let Finding::Differs(correction) = looked(&[("u", Some(1))], &[]).compare(&edited) else { panic!("it stays") };
        assert_eq!((correction.add, correction.doubt), (0, false));
    }

    #[test]
    fn a_key_is_complete_once_its_own_marker_is_seen() {
        let mut look = looked(&[], &[]);
        let marked = |nonce| Entry { effect: Effect::Marked(Nonce(nonce)), ..changed("u", 0, 0) };
        look.entry(at(1), &marked(7));
        look.marked(Nonce(7));
        assert!(!look.is_complete(), "a marker that was seen before it was put is another one's");
        look.entry(at(2), &marked(8));
        assert!(!look.is_complete());
        look.entry(at(3), &marked(7));
        assert!(look.is_complete());
    }
}
