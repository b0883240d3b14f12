//! A model of how consumers write likes and unlikes from Kafka into rows: a write carries the version of its event, so
//! at-least-once delivery suffices, and each row ends as its last event says.
//!
//! There is one Kafka partition with the events of one or two members, and two consumers: one owns the partition and
//! commits, and the other one is a zombie that goes on. Each runs the production [`Progress`], with any number of
//! requests under way. A request that was sent may be carried out at any later time, any number of times, with or
//! without an answer, until it is too old to be accepted. Some events are refused by the store whatever the row
//! contains. A removal leaves its row as a tombstone, which expires.
//!
//! Time passes in one step, a night, which is longer than a request stays valid and than an unconfirmed claim may be
//! used. After it, no earlier request is accepted, and a consumer that lost the partition sends nothing more.
//! Tombstones expire only during a night. The group may also be reset to its first offset.

mod tests;

use tally_core::ids::{Shard, UserId};
use tally_core::register::{Answer, Change, Progress, Row, Settled, Version, Write, admitted};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use super::likes;
use crate::explore::{Model, Step};
use crate::intern::{Interned, Number};

/// A rule that a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A write compares the stored version.
    Compared,
    /// A removal leaves a tombstone.
    TombstoneKept,
    /// A like again removes the tombstone's expiry.
    LikedForGood,
    /// A consumer sends nothing under a claim that was not confirmed since the night.
    ClaimConfirmed,
    /// The committed offset lies before every unfinished record.
    FinishedOnly,
    /// A retry gives way to a newer event of its row: a mutant's client repeats requests by itself.
    AttemptsAsked,
    /// An event is written after all if the one that it gave way to is refused.
    RefusedReplaced,
    /// A refused event is finished once its dead letter is acknowledged.
    LetterAwaited,
}

/// An event of one of the members.
#[derive(Clone, Copy, PartialEq)]
struct Event {
    member: usize,
    likes: bool,
    is_refused: bool,
}

/// How often each thing may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    resets: u8,
    nights: u8,
}

/// A stored row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stored {
    version: Version,
    lives: bool,
    expires: bool,
}

/// A set of events, with a bit for each.
type Events = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Consumer {
    progress: Number,
    /// The events whose statements have no answer yet.
    under_way: Events,
    /// The events whose dead letters are not acknowledged yet.
    letters: Events,
    /// The requests that a mutant's client repeats by itself.
    repeated: Events,
    may_send: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    rows: [Option<Stored>; 2],
    committed: u8,
    /// The first one owns the partition.
    consumers: [Consumer; 2],
    /// The events whose writes may still be carried out.
    copies: Events,
    /// The events whose dead letters are acknowledged.
    letters: Events,
    left: Budget,
}

struct Rows {
    events: Vec<Event>,
    budget: Budget,
    removed: Option<Rule>,
    writes: Vec<Write>,
    progresses: Interned<Progress>,
}

impl Rows {
    fn new(events: &[Event], budget: Budget) -> Self {
        let writes = (0..).zip(events).map(|(offset, event)| write(offset, *event)).collect();
        Self { events: events.to_vec(), budget, removed: None, writes, progresses: Interned::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn end(&self) -> u8 {
        u8::try_from(self.events.len()).expect("few events")
    }

    /// Carries out the write of an event, unless the store refuses it.
    fn carry_out(&self, rows: &mut [Option<Stored>; 2], event: u8) {
        let (Event { member, likes, is_refused }, version) = (self.events[usize::from(event)], self.version(event));
        let stands = rows[member];
        let is_admitted = admitted(stands.map(|row| row.version), version) || !self.obeys(Rule::Compared);
        if is_refused || !is_admitted {
            return;
        }
        let keeps = !self.obeys(Rule::LikedForGood) && stands.is_some_and(|row| row.expires);
        let written = Stored { version, lives: likes, expires: !likes || keeps };
        rows[member] = (likes || self.obeys(Rule::TombstoneKept)).then_some(written);
    }

    fn version(&self, event: u8) -> Version {
        self.writes[usize::from(event)].version
    }

    /// Returns whether each row is live exactly if the last of its events that the store accepts is a like.
    fn is_right(&self, state: &State) -> bool {
        (0..state.rows.len()).all(|member| {
            let last = self.events.iter().rev().find(|event| event.member == member && !event.is_refused);
            state.rows[member].is_some_and(|row| row.lives) == last.is_some_and(|event| event.likes)
        })
    }

    /// Returns whether an event is lost once it is committed: the store refuses it, it did not give way to an event
    /// that the store accepts, and it has no dead letter.
    fn is_lost(&self, state: &State, event: u8) -> bool {
        let (of, later) = (self.events[usize::from(event)], usize::from(event) + 1..usize::from(state.committed));
        let gives_way = self.events[later].iter().any(|later| later.member == of.member && !later.is_refused);
        of.is_refused && !gives_way && state.letters >> event & 1 == 0
    }

    fn is_over(&self, state: &State) -> bool {
        state.committed == self.end() && state.consumers.iter().all(|consumer| self.is_idle(consumer))
    }

    /// Adds a night, in which some tombstones expire.
    fn night(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.left.nights == 0 {
            return;
        }
        for expired in 0..4 {
            let mut night = *state;
            night.left.nights -= 1;
            night.copies = 0;
            self.sleep(&mut night);
            let mut rows = night.rows.iter_mut().enumerate().filter(|(member, _)| expired >> member & 1 == 1);
            if rows.all(|(_, row)| row.take().is_some_and(|row| row.expires)) {
                next.push((Step("a night passes", expired), night));
            }
        }
    }

    /// Returns a consumer to which the partition was just assigned.
    fn begin(&self, at: u8) -> Consumer {
        let progress = self.progresses.number(Progress::new(Offset(at.into())));
        Consumer { progress, under_way: 0, letters: 0, repeated: 0, may_send: true }
    }

    /// Returns a consumer that does nothing any more.
    fn gone(&self) -> Consumer {
        Consumer { may_send: false, ..self.begin(self.end()) }
    }

    fn is_idle(&self, consumer: &Consumer) -> bool {
        let progress = self.progresses.get(consumer.progress);
        progress.committable() == Offset(self.end().into()) && consumer.repeated == 0
    }

    /// Lets a night pass: no earlier request is answered after it, and a claim that was not confirmed is void.
    fn sleep(&self, state: &mut State) {
        for consumer in &mut state.consumers {
            for event in each(std::mem::take(&mut consumer.under_way)) {
                self.progresses
                    .update(&mut consumer.progress, |progress| progress.settle(Offset(event.into()), Answer::Again));
            }
        }
        if self.obeys(Rule::ClaimConfirmed) {
            state.consumers[1] = self.gone();
        }
    }

    /// Adds the possible steps of a consumer.
    fn consumer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let before = state.consumers[i];
        if !before.may_send {
            return;
        }
        let progress = self.progresses.get(before.progress);
        let mut go = |step, act: &dyn Fn(&mut State)| {
            let mut after = *state;
            act(&mut after);
            next.push((step, after));
        };
        if let Some(write) = usize::try_from(progress.next().0).ok().and_then(|at| self.writes.get(at)) {
            let take = |progress: &mut Progress| progress.take(write.clone());
            go(Step("takes", i), &|after| self.progresses.update(&mut after.consumers[i].progress, take));
        }
        if progress.ready() > 0 {
            go(Step("sends", i), &|after| self.send(after, i));
        }
        for event in each(before.under_way) {
            go(Step("is answered", i), &|after| {
                let answer = self.answer(after, event);
                self.settle(after, i, event, answer);
            });
            // It is left open which of the two statements it was: either may have been the wrong one.
            let stands = state.rows[self.events[usize::from(event)].member].is_some();
            go(Step("finds the row otherwise", i), &|after| self.settle(after, i, event, Answer::Stands(stands)));
            go(Step("misses the answer", i), &|after| {
                self.settle(after, i, event, Answer::Again);
                if !self.obeys(Rule::AttemptsAsked) {
                    after.consumers[i].repeated |= 1 << event;
                }
            });
        }
        for event in each(before.repeated) {
            go(Step("repeats", i), &|after| {
                after.consumers[i].repeated &= !(1 << event);
                after.copies |= 1 << event;
            });
        }
        for event in each(before.letters) {
            go(Step("is acknowledged", i), &|after| self.acknowledge(after, i, event));
        }
        let finished = if self.obeys(Rule::FinishedOnly) { progress.committable() } else { progress.next() };
        let to = u8::try_from(finished.0).expect("few events");
        if i == 0 && to > state.committed {
            go(Step("commits", usize::from(to)), &|after| after.committed = to);
        }
    }

    fn send(&self, state: &mut State, i: usize) {
        for attempt in self.progresses.update(&mut state.consumers[i].progress, |progress| progress.cut(1)) {
            let event = 1 << attempt.write.version.offset().0;
            state.consumers[i].under_way |= event;
            state.copies |= event;
        }
    }

    /// Lets the store carry out a statement, and returns its answer.
    fn answer(&self, state: &mut State, event: u8) -> Answer {
        let of = self.events[usize::from(event)];
        if of.is_refused {
            return Answer::Refused;
        }
        let stands = state.rows[of.member].map(|row| row.version);
        self.carry_out(&mut state.rows, event);
        match stands {
            Some(stands) if stands >= self.version(event) => Answer::Older(stands),
            _ => Answer::Stored,
        }
    }

    fn settle(&self, state: &mut State, i: usize, event: u8, answer: Answer) {
        let offset = Offset(event.into());
        let consumer = &mut state.consumers[i];
        consumer.under_way &= !(1 << event);
        // The mutant takes a refusal as the end of the whole row.
        let ends = answer == Answer::Refused && !self.obeys(Rule::RefusedReplaced);
        let told = if ends { Answer::Stored } else { answer };
        let settled = self.progresses.update(&mut consumer.progress, |progress| progress.settle(offset, told));
        if ends {
            state.letters |= 1 << event;
        }
        if settled == Settled::Refused {
            consumer.letters |= 1 << event;
            if !self.obeys(Rule::LetterAwaited) {
                self.progresses.update(&mut consumer.progress, |progress| progress.finish(offset));
                consumer.letters = 0;
            }
        }
    }

    fn acknowledge(&self, state: &mut State, i: usize, event: u8) {
        state.letters |= 1 << event;
        let consumer = &mut state.consumers[i];
        consumer.letters &= !(1 << event);
        self.progresses.update(&mut consumer.progress, |progress| progress.finish(Offset(event.into())));
    }
}

impl Model for Rows {
    type State = State;

    fn initial(&self) -> State {
        State {
            rows: [None; 2],
            committed: 0,
            consumers: [self.begin(0), self.gone()],
            copies: 0,
            letters: 0,
            left: self.budget,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for event in each(state.copies) {
            let mut arrived = *state;
            self.carry_out(&mut arrived.rows, event);
            next.push((Step("arrives", usize::from(event)), arrived));
        }
        let consumers = [self.begin(state.committed), state.consumers[0]];
        next.push((Step("takes over", 0), State { consumers, ..*state }));
        if state.left.resets > 0 && state.committed > 0 {
            let (mut reset, left) = (*state, Budget { resets: state.left.resets - 1, ..state.left });
            reset.consumers[0] = self.begin(0);
            next.push((Step("is reset", 0), State { committed: 0, left, ..reset }));
        }
        self.night(state, next);
        for consumer in 0..2 {
            self.consumer(state, consumer, next);
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        if (0..state.committed).any(|event| self.is_lost(state, event)) {
            return Some(LOST);
        }
        (self.is_over(state) && !self.is_right(state)).then_some(WRONG)
    }

    fn is_goal(&self, state: &State) -> bool {
        self.is_over(state)
    }
}

fn write(offset: u64, event: Event) -> Write {
    let member = UserId::new(["a", "b"][event.member]).expect("an id");
    let change = if event.likes { Change::Put(UnixMillis(0).into()) } else { Change::Remove };
    Write { row: Row { key: likes("p", Shard::FIRST), member }, version: Version::new(1, true, Offset(offset)), change }
}

/// Returns the events of a set.
fn each(events: Events) -> impl Iterator<Item = u8> {
    (0..8).filter(move |event| events >> event & 1 == 1)
}

const WRONG: &str = "a row is not what its last event says";
const LOST: &str = "a refused event was committed without a letter";
