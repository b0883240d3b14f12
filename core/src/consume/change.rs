//! More definitions, more lanes or fewer: all lanes are brought to one offset, and their fences are replaced together.
//!
//! At one offset there is nothing that one lane has written and another would write again. What the change comes to is read
//! back: an answer that is lost and a change that another consumer made are told apart by the fences alone.

use std::time::Duration;

use super::chain::Chain;
use super::effect::{Cause, Effect, Halt, Note, Replacing};
use super::reading::{Context, Reading, Then};
use crate::batch::Trigger;
use crate::definitions::Definitions;
use crate::fence::{Fences, Offset, Terms};
use crate::ports::Outcome;

/// How long lanes may take to come to one offset.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many batches a lane may be behind the furthest when that begins.
const WITHIN: usize = 2;

/// One change under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    /// What all lanes are to state.
    terms: Terms,
    /// Where they are to meet.
    at: Offset,
    /// When it is given up; `None`: nothing can be read before it is done.
    until: Option<Duration>,
    /// All lanes are there, and their fences are being replaced.
    sent: bool,
}

impl Change {
    pub(super) fn is_sent(&self) -> bool {
        self.sent
    }

    /// When it is given up, if the lanes have not met by then.
    pub(super) fn given_up_at(&self) -> Option<Duration> {
        self.until.filter(|_| !self.sent)
    }
}

impl Reading {
    /// Once it is known that definitions are to be taken: has all lanes write what lies before their first event.
    pub(super) fn learn(&mut self, context: &mut Context<'_>) -> Then {
        let Some(defs) = self.learning.wanted() else { return Then::GoOn };
        let terms = Terms { defs, ..self.chains[0].fence.terms };
        let at = self.handed;
        self.change = Some(Change { terms, at, until: None, sent: false });
        self.drain(context)
    }

    /// Begins a change of lanes, if there should be more or fewer and all are near each other: whether it does.
    pub(super) fn consider(&mut self, context: &Context<'_>) -> bool {
        let Some(lanes) = self.pace.wanted(context.now) else { return false };
        let (at, most) = (self.gathered(), WITHIN * context.setup.limits.rows);
        let left = |chain: &Chain| chain.waiting.partition_point(|offset| *offset < at);
        // What was not handed out yet may be any lane's.
        if at > self.handed || self.chains.iter().any(|chain| left(chain) > most) {
            self.pace.put_off(context.now);
            return false;
        }
        let terms = Terms { lanes, ..self.chains[0].fence.terms };
        let until = Some(context.now.saturating_add(PATIENCE));
        self.change = Some(Change { terms, at, until, sent: false });
        true
    }

    /// Up to where some lane has gathered or written.
    pub(super) fn gathered(&self) -> Offset {
        self.chains.iter().map(|chain| chain.batch.to()).max().expect("there is one lane at least")
    }

    /// Writes what lies before the offset where all lanes are to meet, and nothing behind it.
    pub(super) fn drain(&mut self, context: &mut Context<'_>) -> Then {
        let Some(Change { terms, at, until, sent }) = self.change.clone() else { return Then::GoOn };
        if sent {
            return Then::GoOn;
        }
        if until.is_some_and(|until| context.now >= until) {
            self.change = None;
            self.pace.forget(context.now);
            return self.gather(context);
        }
        let learns = !self.learning.is_idle();
        let (trigger, why) =
            if learns { (Trigger::Definitions, Replacing::Definitions) } else { (Trigger::Lanes, Replacing::Lanes) };
        for lane in self.lanes().all() {
            self.refill(lane, at, context);
            let chain = &self.chains[lane.index()];
            if chain.is_gathering() && (!chain.batch.is_empty() || chain.fence.offset < at) {
                self.begin(lane, trigger, context);
            }
        }
        let mut met = self.chains.iter().map(|chain| chain.is_gathering() && chain.fence.offset == at);
        if met.all(|met| met) {
            let fences = self.chains.iter().map(|chain| chain.fence.clone()).collect();
            let seen = Fences::together(fences).expect("lanes that are read together stand together");
            let by = seen.level(at, terms);
            self.change = Some(Change { terms, at, until, sent: true });
            context.effects.push(Effect::ReplaceFences { seen, by, why });
        }
        Then::GoOn
    }

    /// How far the batch of `chain` may move its fence.
    pub(super) fn end_of(&self, chain: &Chain) -> Offset {
        let until = chain.until(self.handed);
        self.change.as_ref().map_or(until, |change| until.min(change.at))
    }

    /// The fences were replaced, or were not those known: they are read again either way. What the store refuses for good an operator
    /// has to see to.
    pub(super) fn replaced(&self, stored: &Outcome<()>) -> Then {
        if !self.change.as_ref().is_some_and(Change::is_sent) {
            return Then::GoOn;
        }
        if let Err(fault) = stored
            && !fault.is_retryable()
        {
            return Then::Halt(Halt::Refused(format!("replace_fences: {fault}")));
        }
        let learns = !self.learning.is_idle();
        let (cause, done) = if learns {
            (Cause::Definitions, "more counters are defined")
        } else {
            (Cause::Lanes, "the partition has other lanes")
        };
        Then::Reload(cause, stored.as_ref().map_or_else(ToString::to_string, |()| done.to_owned()))
    }

    /// The deployment's definitions, which a record needs that is not understood.
    pub(super) fn defined(&mut self, list: Outcome<Definitions>, context: &mut Context<'_>) -> Then {
        if !self.learning.asks() || self.over.is_some() {
            return Then::GoOn;
        }
        let halt = match list {
            Ok(list) => match self.learning.learnt(&list) {
                Ok(()) => return self.gather(context),
                Err(why) => Halt::Refused(why),
            },
            Err(fault) if fault.is_retryable() => {
                let tries = self.learning.failed();
                context.note(Note::Retrying {
                    call: "definitions",
                    class: fault.class(),
                    tries,
                    why: fault.to_string(),
                });
                context.effects.push(Effect::BackOff { lane: None, attempt: tries - 1 });
                return Then::GoOn;
            }
            Err(fault) => Halt::Refused(format!("definitions: {fault}")),
        };
        self.over = Some(Then::Halt(halt));
        self.over_once_answered()
    }

    /// A wait of the partition is over.
    pub(super) fn waited(&mut self, context: &mut Context<'_>) -> Then {
        if self.learning.asks() && self.over.is_none() {
            context.effects.push(Effect::ReadDefinitions);
        }
        Then::GoOn
    }
}
