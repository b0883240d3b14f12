//! One counter of a prefix, from its update to the last thing that follows from the answer: at most one of its requests is
//! unanswered at any time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::follow_up::{FollowUp, after_known, after_poison, after_taken, of_kind};
use super::writing::{Basis, Surroundings};
use super::{Again, Answer, Effect, RefusedBy, Request};
use crate::counter::{Counter, Retry, Update, after_refusal};
use crate::fault::Fault;
use crate::ids::CounterId;
use crate::milestone::{Guard, Ladder};
use crate::ports::{Applied, Outcome};
use crate::tally::CounterRecords;

/// One counter with a request unanswered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sending {
    counter: CounterId,
    /// Its records of the prefix that are to be sent. None for a closing marker, of which no part can be left out.
    records: CounterRecords,
    update: Arc<Update>,
    tries: u32,
    /// What is still to be done once the update is answered for good; the first is under way.
    follow_ups: VecDeque<FollowUp>,
}

/// What an answer leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// This, of the same counter.
    Ask(Request),
    /// Nothing more: the records are in the counter, or put aside.
    Settled,
    /// The stream shard is finished.
    Finished,
    /// The store will not go on.
    Failed(Fault),
}

impl Sending {
    /// The first request of a counter, and what waits for its answer.
    pub(super) fn new(counter: CounterId, records: CounterRecords, update: Update) -> (Self, Request) {
        let sending = Self { counter, records, update: Arc::new(update), tries: 0, follow_ups: VecDeque::new() };
        let request = sending.send(None);
        (sending, request)
    }

    pub(super) fn answered(&mut self, answer: Answer, basis: &Basis, around: &mut Surroundings<'_>) -> Next {
        match answer {
            Answer::Updated(outcome) => return self.updated(outcome, basis, around),
            Answer::Ladder(ladder) => return self.learned(ladder, basis, around),
            Answer::Marked(false) => {
                // Where even the mark is refused, nothing is exact until an audit has been there.
                if let Some(FollowUp::MarkSuspect(shard)) = self.follow_ups.front().copied() {
                    self.follow_ups.insert(1, FollowUp::OpenGap(shard));
                }
            }
            Answer::Read(Some(counter)) => self.publish(&counter, basis, around),
            Answer::Read(None) | Answer::Marked(true) | Answer::Done | Answer::Reported(_) => {}
        }
        self.follow_ups.pop_front();
        self.follow_up()
    }

    fn updated(&mut self, outcome: Outcome<Applied>, basis: &Basis, around: &mut Surroundings<'_>) -> Next {
        match outcome {
            Ok(Applied::Taken(counter)) => {
                self.note(&counter, basis, around);
                self.tell_reached(around);
                self.follow_ups = of_kind(self.counter.name.kind(), after_taken(&self.update, &counter));
                self.follow_up()
            }
            Ok(Applied::Refused(counter)) => self.refused(counter.as_ref(), basis, around),
            Ok(Applied::Standing(thresholds)) => {
                around.asking.effects.push(Effect::Refused(RefusedBy::Standing));
                let guard = self.update.guard.clone().map(|guard| guard.without(&thresholds));
                self.send_changed(Update { guard, ..(*self.update).clone() })
            }
            Err(Fault::Poison(reason)) => {
                around.asking.effects.push(Effect::PutAside(self.counter.clone(), reason));
                self.follow_ups = after_poison(&self.update);
                self.follow_up()
            }
            // Unknown outcomes are among these: the same update again finds out what is so.
            Err(fault) if fault.is_retryable() => self.again(fault),
            Err(fault) => Next::Failed(fault),
        }
    }

    /// Settles a refusal by what the counter showed when it refused.
    fn refused(&mut self, counter: Option<&Counter>, basis: &Basis, around: &mut Surroundings<'_>) -> Next {
        let retry = after_refusal(&self.update, counter, &basis.picture.lineage);
        around.totals.refused(&self.counter, counter, around.ladder);
        let more_in_force = counter.is_some_and(|counter| counter.ladder > around.ladder.entries());
        let retry = match retry {
            Retry::Changed(_) | Retry::Unexplained if more_in_force => {
                around.asking.effects.push(Effect::Refused(RefusedBy::Ladder));
                return Next::Ask(Request::ReadLadder);
            }
            Retry::Changed(update) => Retry::Changed(self.guarded(update, basis, around)),
            Retry::Unexplained => {
                let update = self.guarded((*self.update).clone(), basis, around);
                if update == *self.update { Retry::Unexplained } else { Retry::Changed(update) }
            }
            settled => settled,
        };
        around.asking.effects.push(Effect::Refused(refused_by(&self.update, &retry)));
        match retry {
            Retry::After(applied) => {
                let left = self.records.after(applied);
                match left.update(&basis.context(&self.counter, around)) {
                    Some(update) => {
                        // What is made of them later must leave out the same.
                        self.records = left;
                        self.send_changed(update)
                    }
                    None => {
                        // Another worker was first, or an earlier copy whose reply was lost.
                        let counter = counter.expect("a counter that is not there has no records");
                        self.note(counter, basis, around);
                        self.follow_ups = of_kind(self.counter.name.kind(), after_known(&self.update, counter));
                        self.follow_up()
                    }
                }
            }
            Retry::Changed(update) => self.send_changed(update),
            Retry::Finished => Next::Finished,
            Retry::Unexplained => self.again(Fault::Transient("an update was refused without a reason".to_owned())),
        }
    }

    /// The same update, wanting of the total what is known of it now.
    fn guarded(&self, update: Update, basis: &Basis, around: &Surroundings<'_>) -> Update {
        Update { guard: self.records.guard(&basis.terms(&self.counter, around)), ..update }
    }

    /// The ladder was read, because the counter has more of it than was known here.
    fn learned(&mut self, ladder: Ladder, basis: &Basis, around: &mut Surroundings<'_>) -> Next {
        around.ladder.learn(ladder);
        let update = self.guarded((*self.update).clone(), basis, around);
        if update == *self.update {
            let why =
                format!("{} has more of the ladder than the configuration: raise --milestones again", self.counter);
            return self.again(Fault::Transient(why));
        }
        self.send_changed(update)
    }

    fn tell_reached(&self, around: &mut Surroundings<'_>) {
        let reached = self.update.guard.iter().flat_map(Guard::reached);
        around.asking.effects.extend(reached.map(|milestone| Effect::Reached(self.counter.clone(), milestone.clone())));
    }

    fn send_changed(&mut self, update: Update) -> Next {
        self.update = Arc::new(update);
        Next::Ask(self.send(None))
    }

    fn again(&mut self, fault: Fault) -> Next {
        let again = Again { fault, tries: self.tries };
        self.tries = self.tries.saturating_add(1);
        Next::Ask(self.send(Some(again)))
    }

    fn send(&self, again: Option<Again>) -> Request {
        Request::Update { counter: self.counter.clone(), update: Arc::clone(&self.update), again }
    }

    fn follow_up(&self) -> Next {
        self.follow_ups.front().map_or(Next::Settled, |follow_up| Next::Ask(follow_up.request(&self.counter)))
    }

    /// Takes note of a counter that has this update's records.
    fn note(&self, counter: &Counter, basis: &Basis, around: &mut Surroundings<'_>) {
        around.remembered.note(&self.counter, &counter.watermarks, basis.picture.closed_through);
        around.totals.note(&self.counter, counter, around.ladder);
        self.publish(counter, basis, around);
    }

    fn publish(&self, counter: &Counter, basis: &Basis, around: &mut Surroundings<'_>) {
        let served = basis.served(self.counter.name.kind(), counter, around);
        around.asking.effects.push(Effect::Publish(self.counter.clone(), served));
    }
}

/// What refused `update`, given what follows from it.
fn refused_by(update: &Update, retry: &Retry) -> RefusedBy {
    match retry {
        Retry::After(_) => RefusedBy::Applied,
        Retry::Finished => RefusedBy::Finished,
        Retry::Changed(changed) if changed.prune != update.prune => RefusedBy::Floor,
        Retry::Changed(changed) if changed.touched != update.touched => RefusedBy::Feeder,
        Retry::Changed(_) => RefusedBy::Total,
        Retry::Unexplained => RefusedBy::Unexplained,
    }
}
