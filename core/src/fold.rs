//! The fold: how the log of changes becomes counters. This file has one counter and what each item of the log does to
//! it; [`Partition`] gathers what a partition of the log brings, and its [`Flush`] applies that.
//!
//! A counter's version is the place of its partition before which everything is in. An update sets values and names
//! those that it replaces, so anyone may repeat or send it. A fold whose update is refused reads the counter again and
//! applies what lies behind its version.

mod partition;
mod reading;

use std::collections::{BTreeMap, BTreeSet};

pub use partition::{After, Flush, Partition, Pending, Position, Reached};
pub use reading::{Mark, ReadTo, Replaced, Stated};
use thiserror::Error;

use crate::cached::Value;
use crate::changes::{Amend, Correction, Effect, Entry, Place, Standing};
use crate::ids::{CounterKind, Shard};
use crate::served::Served;
use crate::time::UnixMillis;

/// A counter: an item of the table `like_counts`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counter {
    /// `likes`: the total. It may be negative.
    pub likes: i64,
    /// `s<k>`: the part of each shard.
    pub parts: BTreeMap<Shard, i64>,
    /// `version`: everything before this place of its partition is in.
    pub version: Place,
    /// `c`: how many corrections are in, and how many entries could not be counted. A correction has to know all of
    /// them.
    pub corrections: u64,
    /// `gap`: the last announcement of a loss before the last item that was applied.
    pub gap: Option<Place>,
    /// `doubt`: shards with an entry that could not be counted, because a weight is unreadable or the sum has no room; and
    /// those that may lack what the counter had in a lost table.
    pub doubt: BTreeSet<Shard>,
    /// `updated_at`.
    pub updated_at: UnixMillis,
}

/// An item of the log that may change a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// An entry that the filter accepted.
    Entry(&'a Entry),
    /// A correction, which may no longer hold.
    Correction(&'a Correction),
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The counter has changed.
    Changed,
    /// Nothing changed: the item is in already, the entry gains nothing, or the correction no longer holds.
    Nothing,
}

/// The counter would leave the range of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the count would leave the range of 64 bits")]
pub struct Overflow;

impl Counter {
    /// Applies the item at `at`, where `loss` is the last announcement of a loss before it. Applying an item again
    /// changes nothing.
    ///
    /// # Errors
    /// The sum leaves the range. An entry is then left out and its shard is in doubt; a correction changes nothing.
    pub fn apply(&mut self, at: Place, change: Change<'_>, loss: Option<Place>) -> Result<Applied, Overflow> {
        if at < self.version {
            return Ok(Applied::Nothing);
        }
        match change {
            Change::Entry(entry) => {
                match &entry.effect {
                    Effect::Marked(_) => return Ok(Applied::Nothing),
                    Effect::Weighed { .. } if entry.gain() == 0 => return Ok(Applied::Nothing),
                    Effect::Weighed { .. } => {}
                    Effect::Unreadable { .. } => self.doubt(entry.key.shard),
                }
                if let Err(overflow) = self.add(entry.key.shard, entry.gain()) {
                    self.doubt(entry.key.shard);
                    self.gap = self.gap.max(loss);
                    return Err(overflow);
                }
            }
            Change::Correction(correction) => {
                let Correction { parts, seen, loss: known, .. } = correction;
                if *seen != self.corrections || *known != loss {
                    return Ok(Applied::Nothing);
                }
                self.correct(parts)?;
                self.corrections += 1;
            }
        }
        self.gap = self.gap.max(loss);
        Ok(Applied::Changed)
    }

    /// Notes that everything before `to` is in.
    pub fn reach(&mut self, to: Place) {
        self.version = self.version.max(to);
    }

    /// Returns the part of a shard.
    pub fn part(&self, shard: Shard) -> i64 {
        self.parts.get(&shard).copied().unwrap_or_default()
    }

    /// Returns whether the total is the sum of its parts. It is, unless a person has edited the item.
    pub fn adds_up(&self) -> bool {
        self.parts.values().map(|part| i128::from(*part)).sum::<i128>() == i128::from(self.likes)
    }

    /// Marks everything that it has as doubtful, until a correction has compared that with the rows.
    pub fn doubt_all(&mut self) {
        let shards: Vec<Shard> = self.parts.keys().copied().collect();
        shards.into_iter().for_each(|shard| self.doubt(shard));
    }

    /// Marks a shard that lacks an entry as doubtful. Raises `corrections`, so that a correction that was computed
    /// before cannot end the doubt.
    fn doubt(&mut self, shard: Shard) {
        self.doubt.insert(shard);
        self.corrections += 1;
    }

    fn add(&mut self, shard: Shard, gain: i64) -> Result<(), Overflow> {
        let likes = self.likes.checked_add(gain).ok_or(Overflow)?;
        let part = self.part(shard).checked_add(gain).ok_or(Overflow)?;
        self.likes = likes;
        self.parts.insert(shard, part);
        Ok(())
    }

    /// Amends parts and sets the total to the sum of all parts, since a person may have edited either.
    fn correct(&mut self, amended: &BTreeMap<Shard, Amend>) -> Result<(), Overflow> {
        let mut parts = self.parts.clone();
        for (shard, amend) in amended {
            if let Amend::Add(add @ (1.. | ..=-1)) = amend {
                let part = parts.entry(*shard).or_default();
                *part = part.checked_add(*add).ok_or(Overflow)?;
            }
        }
        let total: i128 = parts.values().map(|part| i128::from(*part)).sum();
        self.likes = i64::try_from(total).map_err(|_| Overflow)?;
        self.parts = parts;
        for (shard, amend) in amended {
            match amend {
                Amend::Add(_) => _ = self.doubt.remove(shard),
                Amend::Doubt => _ = self.doubt.insert(*shard),
            }
        }
        Ok(())
    }
}

/// Returns the answer about a counter that was read after `standing`. A subject without a counter has 0.
pub fn serve(standing: &Standing, kind: CounterKind, counter: Option<&Counter>) -> Served {
    counter.map(Value::from).unwrap_or_default().serve(standing, kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::{message, opened, opening, shard};
    use crate::changes::{Body, Message, Section, Side};
    use crate::ids::{CounterId, MemberKey, PostId, RowKey};
    use crate::milestone::Winner;
    use crate::topic::Offset;

    fn at(offset: u64) -> Place {
        Place::new(1, Offset(offset))
    }

    fn key(k: u16) -> RowKey {
        RowKey { counter: CounterId::likes(PostId::new("p").unwrap()), shard: Shard::new(k).unwrap() }
    }

    fn entry(k: u16, effect: Effect) -> Entry {
        Entry { key: key(k), effect, second: 0, sequence: 1.into() }
    }

    fn like(k: u16, member: &str) -> Entry {
        let side = |weight| Side { weight, ..Side::default() };
        entry(k, Effect::Weighed { member: MemberKey::new(member).unwrap(), before: side(0), after: side(1) })
    }

    fn correction(k: u16, add: i64, seen: u64, loss: Option<Place>) -> Correction {
        Correction { counter: key(k).counter, parts: [(key(k).shard, Amend::Add(add))].into(), seen, loss }
    }

    #[test]
    fn a_correction_holds_once_and_only_if_it_knows_every_correction_and_loss_before_it() {
        let mut counter = Counter { corrections: 2, ..Counter::default() };
        let (loss, right) = (Some(at(7)), correction(0, -4, 2, Some(at(7))));
        for late in [correction(0, -4, 1, loss), correction(0, -4, 2, None), correction(0, -4, 2, Some(at(6)))] {
            assert_eq!(counter.apply(at(9), Change::Correction(&late), loss), Ok(Applied::Nothing));
        }
        assert_eq!(counter.apply(at(9), Change::Correction(&right), loss), Ok(Applied::Changed));
        assert_eq!(counter.apply(at(10), Change::Correction(&right), loss), Ok(Applied::Nothing));
        assert_eq!((counter.likes, counter.corrections, counter.gap), (-4, 3, loss));
    }

    #[test]
    fn a_correction_of_several_shards_is_taken_as_a_whole_or_not_at_all() {
        let parts = [(key(0).shard, Amend::Add(i64::MIN)), (key(1).shard, Amend::Add(3)), (key(2).shard, Amend::Doubt)];
        let correction = Correction { parts: parts.into(), ..correction(0, 0, 0, None) };
        let fine = Counter { likes: 2, parts: [(key(1).shard, 2)].into(), ..Counter::default() };
        let mut counter = Counter { parts: [(key(0).shard, -1), (key(1).shard, 2)].into(), ..fine.clone() };
        let before = counter.clone();
        assert_eq!(counter.apply(at(1), Change::Correction(&correction), None), Err(Overflow));
        assert_eq!(counter, before);
        counter = fine;
        assert_eq!(counter.apply(at(1), Change::Correction(&correction), None), Ok(Applied::Changed));
        assert_eq!((counter.likes, counter.part(key(1).shard), counter.corrections), (i64::MIN + 5, 5, 1));
        assert_eq!(counter.doubt, [key(2).shard].into());
    }

    #[test]
    fn a_weight_that_cannot_be_read_is_doubt_until_a_correction_takes_it_away() {
        let mut counter = Counter::default();
        let unreadable = entry(1, Effect::Unreadable { member: MemberKey::new("u").unwrap() });
        assert_eq!(counter.apply(at(1), Change::Entry(&unreadable), None), Ok(Applied::Changed));
        assert!(counter.doubt.contains(&key(1).shard));
        let earlier = correction(1, 4, 0, None);
        assert_eq!(counter.apply(at(2), Change::Correction(&earlier), None), Ok(Applied::Nothing), "it knows no doubt");
        assert_eq!(counter.apply(at(2), Change::Correction(&correction(1, 0, 1, None)), None), Ok(Applied::Changed));
        assert!(counter.doubt.is_empty());
    }

    #[test]
    fn an_entry_that_leaves_the_range_is_left_out_and_its_shard_is_written_as_doubtful() {
        // The total alone would leave it, then the part alone.
        for (k, of_another) in [(1, 0), (0, -5)] {
            let parts = BTreeMap::from([(key(0).shard, i64::MAX), (key(2).shard, of_another)]);
            let full = Counter { likes: i64::MAX + of_another, parts, ..Counter::default() };
            let flush = taken(&[message(opened(vec![opening("a", None, 1)], &[])), liked(0, &["u"])]).flush();
            let pending = flush.counters.first_key_value().expect("one counter").1;
            let After { counter, overflows, .. } = flush.apply(Some(&full), pending, UnixMillis(5)).expect("a doubt");
            assert_eq!((counter.likes, counter.doubt, overflows), (full.likes, [key(0).shard].into(), 1));
            let mut counter = full.clone();
            assert_eq!(counter.apply(at(1), Change::Entry(&like(k, "u")), Some(at(0))), Err(Overflow));
            let doubt = [key(k).shard].into();
            assert_eq!(counter, Counter { doubt, corrections: 1, gap: Some(at(0)), ..full });
        }
    }

    /// Returns a message with one section, which has an entry for each member.
    fn liked(back: u64, members: &[&str]) -> Message {
        let entry = |(n, name): (u64, &&str)| Entry { sequence: (back + n).into(), ..like(0, name) };
        let entries: Vec<_> = (1..).zip(members).map(entry).collect();
        let to = entries.last().map(|entry| entry.sequence);
        let back = (back > 0).then(|| back.into());
        let sections = vec![Section { shard: shard("a"), back, to, fed: Some(UnixMillis(70)), entries }];
        message(Body::Sections { sections, losses: Vec::new() })
    }

    fn taken(messages: &[Message]) -> Partition {
        let mut partition = Partition::default();
        for (offset, message) in (0..).zip(messages) {
            assert_eq!(partition.take(at(offset), UnixMillis(2), message).hole, None);
        }
        partition
    }

    #[test]
    fn the_entry_that_reaches_a_threshold_first_is_named_where_the_ladder_is_in_force_before_it() {
        let opened = || message(opened(vec![opening("a", None, 1)], &[]));
        let ladder = |text: &str| message(Body::Ladder(text.parse().unwrap()));
        let mut unliked = liked(2, &["a"]);
        let Body::Sections { sections, .. } = &mut unliked.body else { panic!("it has sections") };
        let Effect::Weighed { before, after, .. } = &mut sections[0].entries[0].effect else { panic!("it is weighed") };
        std::mem::swap(before, after);
        for (messages, likes, threshold, member) in [
            // The first threshold was passed before the ladder was in force, the next one was not.
            (vec![opened(), liked(0, &["a", "b", "c"]), ladder("2,4"), liked(3, &["d", "e"])], 5, 4, "d"),
            (vec![opened(), ladder("2"), liked(0, &["a", "b"])], 2, 2, "b"),
            // The threshold is reached twice.
            (vec![opened(), ladder("2"), liked(0, &["a", "b"]), unliked, liked(3, &["c"])], 2, 2, "b"),
        ] {
            let flush = taken(&messages).flush();
            let pending = flush.counters.first_key_value().expect("one counter").1;
            let After { counter, reached, .. } = flush.apply(None, pending, UnixMillis(5)).expect("likes");
            let by = Winner::Member(MemberKey::new(member).unwrap());
            assert_eq!((counter.likes, reached), (likes, vec![Reached { threshold, by, at: UnixMillis(0) }]));
        }
    }
}
