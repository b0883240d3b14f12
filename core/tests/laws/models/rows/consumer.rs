//! A consumer of the partition in the model of rows.

use tally_core::register::{Answer, Progress, Settled};
use tally_core::topic::Offset;

use super::{Events, Rows, Rule, State, Step, each};
use crate::intern::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
    progress: Number,
    /// The events whose statements have no answer yet.
    under_way: Events,
    /// The events whose dead letters are not acknowledged yet.
    letters: Events,
    /// The requests that a mutant's client repeats by itself.
    repeated: Events,
    may_send: bool,
}

impl Rows {
    /// Returns a consumer to which the partition was just assigned.
    pub(super) fn begin(&self, at: u8) -> Consumer {
        let progress = self.progresses.number(Progress::new(Offset(at.into())));
        Consumer { progress, under_way: 0, letters: 0, repeated: 0, may_send: true }
    }

    /// Returns a consumer that does nothing any more.
    pub(super) fn gone(&self) -> Consumer {
        Consumer { may_send: false, ..self.begin(self.end()) }
    }

    pub(super) fn is_idle(&self, consumer: &Consumer) -> bool {
        let progress = self.progresses.get(consumer.progress);
        progress.committable() == Offset(self.end().into()) && consumer.repeated == 0
    }

    /// Lets a night pass: no earlier request is answered after it, and a claim that was not confirmed is void.
    pub(super) fn sleep(&self, state: &mut State) {
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
    pub(super) fn consumer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
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
            go(Step("finds the row another", i), &|after| self.settle(after, i, event, Answer::Stands(stands)));
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
