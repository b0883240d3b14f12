//! The cache: what a fold writes, what an API fills in, and what is lost in a failover. It is the production `Slot`.

use std::collections::BTreeMap;

use tally_core::cached::{Entry, FillToken, Slot, Stamp, StandingAt, TakeOver, TakeOverNumber, Taken, Told, Value};
use tally_core::changes::DeploymentId;

use super::fold::Fold;
use super::{Rule, State, Step, World};
use crate::intern::Number;

/// The cache's contents for the one counter.
pub(super) type Cached = Slot<()>;

/// A request of a fold to the cache, with standings and counters by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    TakeOver { number: u8, standing: Number },
    Tell { stamp: Stamp, counter: Option<Number>, standing: Option<Number> },
}

/// The answer of the cache.
enum Answer {
    TakenOver(Option<TakeOver>),
    Told(Told),
}

/// An API that found no value: its token, the standing that it found, and the counter once it has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fill {
    token: FillToken,
    standing: Number,
    counter: Option<Number>,
}

impl World {
    /// Returns what an API gets from the cache.
    pub(super) fn got(&self, state: &State) -> Option<(StandingAt, Value)> {
        let slot = self.slots.get(state.slot);
        let stated = slot.held.as_ref()?.stated.clone();
        Some((stated, slot.get(&())?))
    }

    /// Returns what would be wrong with an answer that an API gives now.
    pub(super) fn judge_cached(&self, state: &State) -> Option<&'static str> {
        if let Some((stated, value)) = self.got(state)
            && let Some(broken) = self.judge(state, &stated, &value)
        {
            return Some(broken);
        }
        let fill = state.fill.filter(|fill| fill.counter.is_none())?;
        self.judge(state, &self.standings.get(fill.standing), &self.value(state.table.counter))
    }

    pub(super) fn cache(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (nth, request) in state.late.iter().enumerate() {
            let mut without = state.clone();
            without.late.remove(nth);
            let mut landed = without.clone();
            self.arrives(&mut landed, *request);
            next.push((Step::LandsLate { request: *request }, landed));
            next.push((Step::Dies, without));
        }
        self.fill(state, next);
        let slot = self.slots.get(state.slot);
        if self.expires || state.fill.is_none() && matches!(slot.entries.get(&()), Some(Entry::Filling(_))) {
            let slot = Slot { entries: BTreeMap::new(), ..(*slot).clone() };
            next.push((Step::Expires, State { slot: self.slots.number(slot), ..state.clone() }));
        }
        match state.replica {
            None if state.failovers > 0 => {
                let (replica, failovers) = (Some(state.slot), state.failovers - 1);
                next.push((Step::ReplicaFallsBehind, State { replica, failovers, ..state.clone() }));
            }
            Some(slot) => next.push((Step::FailsOver, State { slot, replica: None, ..state.clone() })),
            None => {}
        }
    }

    /// Lets the fold take over the partition of the cache, or write the counter, the standing or both.
    pub(super) fn tell(&self, state: &State, at: usize, fold: &Fold, next: &mut Vec<(Step, State)>) {
        let (place, filter) = fold.settled;
        let standing = self.standing(state, place, filter);
        if fold.hold.is_none() && state.number < self.numbers {
            let after = State { number: state.number + 1, ..state.clone() };
            self.sends(after, at, Request::TakeOver { number: state.number + 1, standing }, next);
        }
        let Some(hold) = &fold.hold else { return };
        let is_stated =
            self.slots.get(state.slot).held.as_ref().is_some_and(|held| held.stated == *self.standings.get(standing));
        let counter = fold.owes.then_some(fold.stored);
        let mut writes = vec![];
        if fold.owes {
            writes.push((counter, None));
        }
        if !is_stated {
            writes.push((counter, Some(standing)));
            if fold.owes && !self.obeys(Rule::MovedBehindValues) {
                writes.push((None, Some(standing)));
            }
        }
        for (counter, standing) in writes {
            let mut hold = hold.clone();
            let stamp = hold.stamp();
            let stamp = if self.obeys(Rule::ForgettingNoticed) { stamp } else { Stamp { from: 0, ..stamp } };
            let after = state.with_fold(at, Fold { hold: Some(hold), ..fold.clone() });
            self.sends(after, at, Request::Tell { stamp, counter, standing }, next);
        }
    }

    /// Sends a request. The fold learns the outcome at once, or gives up on it, and it arrives late or never.
    fn sends(&self, state: State, at: usize, request: Request, next: &mut Vec<(Step, State)>) {
        if state.lateness > 0 {
            let mut late = State { lateness: state.lateness - 1, ..state.clone() };
            late.late.push(request);
            late.late.sort_unstable();
            next.push((Step::GivesUp { fold: at, request }, late));
        }
        let mut answered = state;
        let answer = self.arrives(&mut answered, request);
        let fold = &mut answered.folds[at];
        match (request, answer) {
            (Request::TakeOver { .. }, Answer::TakenOver(None)) => {}
            (Request::TakeOver { .. }, Answer::TakenOver(hold)) => {
                // The table has the counter, and the cache has nothing older.
                (fold.hold, fold.owes) = (hold, false);
            }
            (Request::Tell { .. }, Answer::Told(Told::Lost) | Answer::TakenOver(_)) => fold.hold = None,
            (Request::Tell { stamp, counter, .. }, Answer::Told(Told::Written(_))) => {
                fold.hold.as_mut().expect("who tells has a hold").answered(stamp);
                fold.owes &= counter.is_none();
            }
            (Request::TakeOver { .. }, Answer::Told(_)) => unreachable!("a take-over is no write"),
        }
        next.push((Step::Asks { fold: at, request }, answered));
    }

    /// Lets a request reach the cache, and returns the answer.
    fn arrives(&self, state: &mut State, request: Request) -> Answer {
        let mut slot = (*self.slots.get(state.slot)).clone();
        let answer = match request {
            Request::TakeOver { number, standing } => {
                let taken = Taken { of: DeploymentId("own".into()), number: TakeOverNumber(number.into()) };
                Answer::TakenOver(slot.take_over(taken, &self.standings.get(standing)))
            }
            Request::Tell { stamp, counter, standing } => {
                let values: Vec<_> = counter.map(|counter| ((), self.value(counter))).into_iter().collect();
                let standing = standing.map(|standing| self.standings.get(standing));
                Answer::Told(slot.tell(stamp, &values, standing.as_deref()))
            }
        };
        state.slot = self.slots.number(slot);
        answer
    }

    /// Adds the API's steps if it finds no value.
    fn fill(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let mut slot = (*self.slots.get(state.slot)).clone();
        let Some(fill) = state.fill else {
            let Some(standing) = slot.held.as_ref().map(|held| self.standings.number(held.stated.clone())) else {
                return;
            };
            if let Some(token) = slot.begin_fill(&(), 0) {
                let fill = Some(Fill { token, standing, counter: None });
                next.push((Step::BeginsFill, State { slot: self.slots.number(slot), fill, ..state.clone() }));
            }
            return;
        };
        let Some(counter) = fill.counter else {
            let fill = Some(Fill { counter: Some(state.table.counter), ..fill });
            next.push((Step::ReadsForFill, State { fill, ..state.clone() }));
            return;
        };
        next.push((Step::Dies, State { fill: None, ..state.clone() }));
        slot.fill(&(), fill.token, self.value(counter));
        next.push((Step::Fills, State { slot: self.slots.number(slot), fill: None, ..state.clone() }));
    }
}
