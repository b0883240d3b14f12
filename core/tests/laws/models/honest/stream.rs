//! Part of the model of what the API's answers claim: rows change, a relay copies the stream of their changes into the
//! log, parts of the stream are lost, and an audit repairs that.

use std::collections::BTreeMap;

use tally_core::changes::{Amend, Body, Correction, Entry, Filter, LossNumber, Lost, Message, Place, Section};
use tally_core::time::UnixMillis;

use super::super::{likes, number, offset, place, position, sections, sequence, stream_shard, time, weighed};
use super::{INITIAL, Rule, State, Step, World, part};
use crate::intern::Number;

/// The state of the one loss of a stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Loss {
    None,
    /// The records up to this one were trimmed unread, and their sum is `lost`. The loss has its number.
    Met {
        number: u8,
        to: u8,
        lost: i64,
    },
    /// It is announced at this offset of the log.
    Announced {
        number: u8,
        at: u8,
        lost: i64,
        repaired: bool,
    },
}

impl World {
    /// Rows change, the relay writes the log, and parts of the stream are lost.
    pub(super) fn stream(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if self.kafka {
            self.keep(state, next);
        }
        for shard in 0..2 {
            self.change(state, shard, next);
            self.relay(state, shard, next);
            self.lose(state, shard, next);
        }
        let fed = [0, 1].map(|shard| state.fed(shard, state.relayed[shard]));
        if state.stated != fed {
            let mut after = State { stated: fed, ..state.clone() };
            let of = (0..2).map(|shard| self.section(state, shard, [state.relayed[shard]; 3])).collect();
            self.append(&mut after, sections(of));
            next.push((Step("states", 0), after));
        }
    }

    /// Lets the consumer store the time by which every acknowledged event is a row: the tick of the first one that is
    /// not. What is stored in a tick counts from the next one on.
    fn keep(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let first = |shard: usize| state.acknowledged[shard].get(state.written[shard].len()).copied();
        let safe_at = first(0).into_iter().chain(first(1)).fold(state.tick, u8::min);
        let mut after = state.clone();
        after.safe.note(time(state.tick + 1), Some(time(safe_at)));
        if after.safe != state.safe {
            next.push((Step("keeps", usize::from(safe_at)), after));
        }
    }

    /// Lets an event be acknowledged, and one become a row.
    fn change(&self, state: &State, shard: usize, next: &mut Vec<(Step, State)>) {
        let (acknowledged, written) = (state.acknowledged[shard].len(), state.written[shard].len());
        if written < acknowledged {
            let mut after = state.clone();
            after.written[shard].push(state.tick);
            next.push((Step("writes", shard), after));
        }
        let Some(gain) = self.writes[shard].get(acknowledged) else { return };
        let mut after = state.clone();
        after.acknowledged[shard].push(state.tick);
        if !self.kafka {
            after.written[shard].push(state.tick);
        }
        after.shards[shard] += gain;
        let value = after.shards[shard];
        for range in &mut after.ranges {
            let (least, greatest) = &mut range[shard];
            (*least, *greatest) = ((*least).min(value), (*greatest).max(value));
        }
        let step = if self.kafka { Step("is acknowledged", shard) } else { Step("writes", shard) };
        next.push((step, after));
    }

    /// Lets the relay send the next records, all or fewer.
    fn relay(&self, state: &State, shard: usize, next: &mut Vec<(Step, State)>) {
        let back = state.relayed[shard];
        let begin = match state.losses[shard] {
            Loss::Met { .. } if self.obeys(Rule::AnnouncedFirst) => return,
            Loss::Met { to, .. } => to.max(back),
            Loss::None | Loss::Announced { .. } => back,
        };
        for to in begin + 1..=state.unread_to(shard) {
            let mut after = state.clone();
            after.relayed[shard] = to;
            after.stated[shard] = state.fed(shard, to);
            self.append(&mut after, sections(vec![self.section(state, shard, [back, begin, to])]));
            next.push((Step("relays", shard), after));
        }
    }

    /// Returns a section with a back-link to one record, and with the records after another one up to a third.
    fn section(&self, state: &State, shard: usize, [back, begin, to]: [u8; 3]) -> Section {
        let fed = Some(time(state.fed(shard, to)));
        let entries = (begin + 1..=to).map(|at| self.entry(shard, at)).collect();
        Section { shard: stream_shard(shard), back: position(back), to: position(to), fed, entries }
    }

    fn entry(&self, shard: usize, at: u8) -> Entry {
        let gain = self.writes[shard][usize::from(at) - 1];
        weighed(&likes("p", part(shard)), "u", [0, gain.into()], at)
    }

    fn lose(&self, state: &State, shard: usize, next: &mut Vec<(Step, State)>) {
        let mut after = state.clone();
        match state.losses[shard] {
            Loss::None if self.lossy.contains(&shard) && state.relayed[shard] < state.unread_to(shard) => {
                let number = state.losses.iter().filter(|loss| **loss != Loss::None).count() + 1;
                let number = u8::try_from(number).expect("there are two");
                let (begin, to) = (state.relayed[shard], state.unread_to(shard));
                let lost = self.gains(shard, to) - self.gains(shard, begin);
                after.losses[shard] = Loss::Met { number, to, lost };
                next.push((Step("trims", shard), after));
            }
            Loss::Met { number, to, lost } => {
                let next_record = Some((stream_shard(shard), sequence(to + 1)));
                let lost_piece = Lost { number: LossNumber(number.into()), next: next_record };
                let at = self.append(&mut after, Body::Lost(lost_piece));
                after.relayed[shard] = state.relayed[shard].max(to);
                after.losses[shard] = Loss::Announced { number, at, lost, repaired: false };
                next.push((Step("announces", shard), after));
            }
            Loss::None | Loss::Announced { .. } => {}
        }
    }

    /// Lets an audit compare the counter with the rows, correct it, and close the losses once it finds the counter
    /// equal. Its tail begins at the stored position, after every announced loss.
    pub(super) fn audit(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let begin = state.table.place;
        let is_behind = |loss: &Loss| !matches!(loss, Loss::Announced { at, .. } if *at >= begin);
        if !state.losses.iter().all(is_behind) {
            return;
        }
        let counter = self.counters.get(state.table.counter);
        let due = self.due(state, counter.version.max(place(begin)));
        let wrong = [0, 1].map(|shard| due[shard] - counter.part(part(shard)));
        if wrong == [0, 0] {
            for shard in 0..2 {
                let Loss::Announced { number, at, lost, repaired: false } = state.losses[shard] else { continue };
                let mut after = state.clone();
                self.append(&mut after, Body::Repaired(LossNumber(number.into())));
                after.losses[shard] = Loss::Announced { number, at, lost, repaired: true };
                next.push((Step("repairs", shard), after));
            }
            return;
        }
        let log = self.logs.get(state.log);
        if log[usize::from(begin)..].iter().any(|message| matches!(message.body, Body::Correction(_))) {
            return;
        }
        for shard in (0..2).filter(|shard| wrong[*shard] != 0) {
            let mut after = state.clone();
            let loss = self.compared(&log, self.filters.get(state.table.filter).loss());
            let seen = counter.corrections;
            let parts = BTreeMap::from([(part(shard), Amend::Add(wrong[shard]))]);
            let correction = Correction { counter: likes("p", part(shard)).counter, parts, seen, loss };
            self.append(&mut after, Body::Correction(correction));
            next.push((Step("corrects", shard), after));
        }
    }

    /// Returns the sum of each shard before a position of the log, including what is lost.
    pub(super) fn due(&self, state: &State, before: Place) -> [i64; 2] {
        let reached = self.reached(state.log, offset(before));
        [0, 1].map(|shard| i64::from(INITIAL[shard]) + self.gains(shard, reached[shard]))
    }

    /// Returns the sum of the records of a stream shard up to one.
    fn gains(&self, shard: usize, to: u8) -> i64 {
        self.writes[shard][..usize::from(to)].iter().map(|gain| i64::from(*gain)).sum()
    }

    /// Returns the last record of each stream shard in the log before an offset, including lost ones.
    fn reached(&self, log: Number, offset: u8) -> [u8; 2] {
        self.reached.get((log, offset), || {
            let mut filter = Filter::default();
            for (at, message) in (0..offset).zip(&*self.logs.get(log)) {
                filter.take(place(at), UnixMillis(0), message, |_, _| {});
            }
            let mut reached = [0; 2];
            for (known, (_, at)) in reached.iter_mut().zip(filter.open_shards()) {
                *known = at.map_or(0, number);
            }
            reached
        })
    }

    /// Appends to the log, and returns the offset.
    fn append(&self, state: &mut State, body: Body) -> u8 {
        let offset = u8::try_from(self.logs.get(state.log).len()).expect("the log is short");
        self.logs.update(&mut state.log, |log| log.push(Message { read: UnixMillis(0), body }));
        offset
    }
}

impl State {
    /// Returns the last record that is written on a stream shard.
    fn unread_to(&self, shard: usize) -> u8 {
        u8::try_from(self.written[shard].len()).expect("records are few")
    }

    /// Returns the tick up to which a stream shard is complete if it is relayed up to a record.
    fn fed(&self, shard: usize, relayed: u8) -> u8 {
        self.written[shard].get(usize::from(relayed)).copied().unwrap_or(self.tick)
    }
}
