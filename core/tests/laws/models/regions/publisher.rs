//! Part of the model of two Regions, A and B: A's folds, which add the log of A's changes up into counters and publish
//! them in a topic; the topic; and the mirror that copies it to B. A may lose its table and adopt another one, whose
//! counters are in doubt. The functions with `next` push to it what may happen, each a step; the explorer tries every
//! order of steps. The law is in `mod.rs`: what B calls exact is what A counted.

use std::collections::BTreeSet;

use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{DeploymentId, Standing};
use tally_core::ids::Region;
use tally_core::regions::{Told, ToldMessage};
use tally_core::time::UnixMillis;
use tally_core::topic::TopicId;

use super::log::{Item, counter, items, place};
use super::{Adopted, Left, Rule, State, Step, World, time};

/// A record of the topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Record {
    /// The tick in which it was published.
    said: u8,
    key: Key,
    /// How many items of the log its value includes.
    at: u8,
    /// How many the fold had written by then.
    written: u8,
    /// How many items the table that it was read from lacks.
    lacks: u8,
    doubtful: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Entry(usize),
    Standing,
}

/// A fold of A: up to which item it has written the counters and has published, which counters it has to publish, and
/// up to which item the counters were written when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fold {
    taken: u8,
    published: u8,
    owes: [bool; 2],
    found: u8,
}

/// Returns the name of Region A.
pub(super) fn region() -> Region {
    Region::new("a").expect("a name")
}

/// Returns the records of which a reader may read one next: those before it may be compacted away.
pub(super) fn readable(world: &World, records: &[Option<Record>], from: usize, tick: u8) -> Vec<(usize, Record)> {
    let mut found = Vec::new();
    for (nth, record) in records.iter().enumerate().skip(from) {
        let Some(record) = record else { continue };
        found.push((nth, *record));
        let has_later = records[nth + 1..].iter().flatten().any(|later| later.key == record.key);
        let is_old = tick - record.said >= 2 || !world.obeys(Rule::Lag);
        if !has_later || !is_old {
            break;
        }
    }
    found
}

impl World {
    pub(super) fn publish(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, fold) in state.folds.iter().enumerate() {
            if fold.taken == fold.published || self.halts {
                for to in fold.taken + 1..=state.length() {
                    let after = state.after(|after| self.writes(after, at, to));
                    if self.halts {
                        next.push((Step("writes counters", at), after));
                    } else {
                        self.publish_as_read(&after, at, next);
                    }
                }
            }
            self.publish_as_read(state, at, next);
            let done = if self.obeys(Rule::PublishedFirst) { fold.published } else { fold.taken };
            if done > state.stored && self.left.take_overs > 0 {
                next.push((Step("stores its place", at), State { stored: done, ..state.clone() }));
            }
        }
        if state.left.take_overs > 0 {
            next.push((Step("takes over", 0), state.after(|after| self.takes_over(after))));
        }
    }

    /// Publishes what a fold has written. Another fold may have written the counters since, and this one may have read
    /// them before or after that.
    fn publish_as_read(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let Fold { taken, published, found, .. } = state.folds[at];
        let is_owner = at + 1 == state.folds.len();
        if published == taken || !is_owner && self.obeys(Rule::Fenced) {
            return;
        }
        let least = if self.obeys(Rule::NothingOlder) { taken.max(found) } else { taken };
        for as_read in BTreeSet::from([least, state.reached]) {
            let after = state.after(|after| self.publishes(after, at, as_read));
            next.push((Step("publishes", at), after));
        }
    }

    /// Lets A go on with an empty table, once everything that is written is published.
    pub(super) fn adopt_table(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let Fold { taken, published, .. } = state.folds[state.folds.len() - 1];
        let is_recounted = self.script[..state.log.len()].iter().any(|item| matches!(item, Item::Corrects(_)));
        if state.left.lost_tables > 0 && taken == published && taken > 0 && !is_recounted {
            let adopted = Adopted { lacks: taken, since: state.tick };
            let left = Left { lost_tables: state.left.lost_tables - 1, ..state.left };
            next.push((Step("adopts a table", 0), State { adopted, left, stored: taken, ..state.clone() }));
        }
    }

    /// Returns whether an item may happen. A loss of the table is open before another one is adopted: an audit of it
    /// passes afterwards, and what the log says later comes behind its announcement.
    pub(super) fn may_happen(&self, state: &State, item: Item) -> bool {
        let is_announced = self.script[..state.log.len()].iter().any(|item| matches!(item, Item::Loses(..)));
        let is_early = state.adopted.lacks == 0 || state.tick <= state.adopted.since;
        match item {
            Item::Loses(..) => true,
            Item::Corrects(_) if state.left.lost_tables > 0 => false,
            _ => is_announced || is_early,
        }
    }

    /// Returns whether a fold that has written the counters up to an item knows that they are in an adopted table, while
    /// the standing may not know of that loss.
    fn doubts(&self, state: &State, written: u8) -> bool {
        let Adopted { lacks, since } = state.adopted;
        let is_known = lacks > 0 && self.counted(lacks, written).values.iter().any(|value| value.version > place(0));
        is_known && state.as_of(written) <= since && self.obeys(Rule::DoubtPublished)
    }

    /// Lets another fold begin at the stored position.
    pub(super) fn takes_over(&self, state: &mut State) {
        state.left.take_overs -= 1;
        let (stored, found) = (state.stored, state.reached);
        state.folds.push(Fold { taken: stored, published: stored, found, ..Fold::default() });
    }

    /// Lets a fold write the counters up to a place.
    fn writes(&self, state: &mut State, at: usize, to: u8) {
        let fold = &mut state.folds[at];
        let in_already = if self.obeys(Rule::PublishesWhatIsIn) { fold.taken } else { fold.taken.max(state.reached) };
        for (nth, owes) in fold.owes.iter_mut().enumerate() {
            *owes |= items(self.counted(state.adopted.lacks, to).values[nth].version) > in_already;
        }
        fold.taken = to;
        state.reached = state.reached.max(to);
    }

    /// Lets a fold publish its standing and the counters that it has to, as they were after `as_read` items. Behind an
    /// announcement these are all counters, also those that the table lacks.
    fn publishes(&self, state: &mut State, at: usize, as_read: u8) {
        let Fold { taken, published, owes, .. } = state.folds[at];
        let (said, lacks, doubtful) = (state.tick, state.adopted.lacks, self.doubts(state, taken));
        let loss = |written| self.counted(lacks, written).standing.loss;
        let is_anew = !doubtful && (state.doubted || loss(published) != loss(taken));
        let record = |key, at| Record { said, key, at, written: taken, lacks, doubtful };
        let (values, ever) = (self.counted(lacks, as_read).values, self.counted(0, taken).values);
        let place_of = |nth: usize| {
            let at = items(values[nth].version);
            if is_anew && items(ever[nth].version) > 0 { Some(at.max(taken)) } else { owes[nth].then_some(at) }
        };
        let mut records: Vec<Record> = (0..2).filter_map(|nth| Some(record(Key::Entry(nth), place_of(nth)?))).collect();
        let standing = (!doubtful).then(|| record(Key::Standing, taken));
        let last = if self.obeys(Rule::StandingLast) { records.len() } else { 0 };
        records.splice(last..last, standing);
        state.doubted = doubtful;
        let fold = &mut state.folds[at];
        (fold.owes, fold.published) = ([false; 2], taken);
        if self.mirrored {
            state.topic.extend(records);
        } else {
            state.mirror.extend(records.into_iter().map(Some));
        }
    }

    pub(super) fn publishes_all(&self, state: &mut State) {
        let (at, to) = (state.folds.len() - 1, state.length());
        self.writes(state, at, to);
        self.publishes(state, at, to);
        state.stored = to;
    }

    /// Lets the mirror copy the next record, or begin again at an earlier one.
    pub(super) fn copy(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let topic: Vec<_> = state.topic.iter().copied().map(Some).collect();
        for (nth, record) in readable(self, &topic, state.copied, state.tick) {
            next.push((Step("copies", 0), state.after(|after| after.copies(nth, record))));
        }
        if state.left.repeats > 0 {
            for from in 0..state.copied {
                let mut after = State { copied: from, ..state.clone() };
                after.left.repeats -= 1;
                next.push((Step("repeats from", from), after));
            }
        }
    }

    pub(super) fn copies_all(&self, state: &mut State) {
        let topic: Vec<_> = state.topic.iter().copied().map(Some).collect();
        while let Some((nth, record)) = readable(self, &topic, state.copied, state.tick).pop() {
            state.copies(nth, record);
        }
    }

    /// Returns the message of a record, as it is read.
    pub(super) fn message(&self, state: &State, record: Record) -> ToldMessage {
        let as_of = state.as_of(record.at);
        self.messages.get((record, as_of), || {
            let counted = self.counted(record.lacks, record.at);
            let told = match record.key {
                Key::Entry(nth) => {
                    let (value, loss) = (counted.values[nth], self.counted(record.lacks, record.written).standing.loss);
                    let gap = value.gap.max(loss.filter(|_| self.obeys(Rule::LossPublished)));
                    let gap = gap.filter(|_| self.obeys(Rule::GapPublished));
                    let version = value.version.max(place(record.at.into()));
                    Told::Counted(counter(nth), Value { gap, version, doubtful: record.doubtful, ..value })
                }
                Key::Standing => {
                    let mut standing = Standing { as_of: Some(time(as_of)), ..counted.standing };
                    if !self.obeys(Rule::OpenPublished) {
                        standing.open.clear();
                    }
                    Told::Stated(StandingAt { at: place(record.at.into()), standing })
                }
            };
            // A's clock is ahead of B's, nearly as far as is allowed or further.
            let ahead = if self.obeys(Rule::ClocksAgree) { 4_900 } else { 6_000 };
            let said = UnixMillis(time(record.said).0 + ahead);
            let message = ToldMessage {
                deployment: DeploymentId("d".into()),
                region: region(),
                topic: TopicId("t".into()),
                partition: 0,
                said,
                told,
            };
            let (key, value) = message.record();
            ToldMessage::read(key.as_bytes(), &value).expect("a message")
        })
    }
}

impl State {
    /// Returns the number of items in A's log.
    fn length(&self) -> u8 {
        u8::try_from(self.log.len()).expect("a log is short")
    }

    /// Returns the tick up to which everything is among the first items.
    fn as_of(&self, items: u8) -> u8 {
        usize::from(items).checked_sub(1).map_or(0, |last| self.log[last])
    }

    /// Copies a record of the topic. Those that the mirror passed over are missing in the copy.
    fn copies(&mut self, nth: usize, record: Record) {
        self.mirror.extend((self.copied..nth).map(|_| None));
        self.mirror.push(Some(record));
        self.copied = nth + 1;
    }
}
