//! One look: list, read registry, checkpoints and gaps, set right, share, and rest.

use std::sync::Arc;

use super::{Answer, Effect, Health, Request, Shards, Wait};
use crate::fault::Fault;
use crate::lineage::{Lineage, Picture};
use crate::ports::{Registry, ShardState};
use crate::time::Now;

/// What the look under way has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// The shards were listed anew.
    pub(super) listed: bool,
    pub(super) registry: Option<Registry>,
    /// When the checkpoints were asked for: the age of its reading counts from then on.
    began: Option<Now>,
    pub(super) states: Vec<ShardState>,
    /// It has changed what it looked at.
    pub(super) changed: bool,
    /// There is reason for another look right after it.
    again: bool,
}

impl Shards {
    /// Begins a look, or has the one under way be followed by another.
    pub(super) fn look(&mut self, effects: &mut Vec<Effect>) {
        if self.leaving {
            return;
        }
        if self.asked.is_some() {
            self.look.again = true;
            return;
        }
        self.look = Look::default();
        let first = self.what_to_list(effects).unwrap_or(Request::Registry);
        self.ask(first, effects);
    }

    pub(super) fn ask(&mut self, request: Request, effects: &mut Vec<Effect>) {
        if let Request::Lease { shard, .. } = &request {
            // From now on it may be ours, whether or not the answer is still awaited when the process stops.
            self.leases.held.insert(shard.clone());
        }
        self.asked = Some(request.clone());
        effects.push(Effect::Ask(request));
    }

    /// The answer to the request under way.
    pub(super) fn answered(&mut self, now: Now, request: Request, answer: Answer, effects: &mut Vec<Effect>) {
        if self.leaving {
            return;
        }
        match (request, answer) {
            (Request::List, Answer::Listed(info, shards)) => {
                self.look.listed = true;
                self.listed(info, shards, effects);
                self.ask(Request::Registry, effects);
            }
            (Request::Children(_), Answer::Children(children)) => {
                self.children_listed(children, effects);
                self.ask(Request::Registry, effects);
            }
            (Request::List | Request::Children(_), Answer::Failed(fault)) => self.not_listed(fault, effects),
            (Request::Registry, Answer::Registry(registry)) => {
                self.look.registry = registry;
                self.look.began = Some(now);
                self.ask(Request::States, effects);
            }
            (Request::States, Answer::States(states)) => {
                self.look.states = states;
                self.ask(Request::Gaps, effects);
            }
            (Request::Gaps, Answer::Gaps(open_gaps)) => {
                self.show(open_gaps, effects);
                self.set_right(now, effects);
                self.go_on(effects);
            }
            (Request::Registry | Request::States | Request::Gaps, Answer::Failed(fault)) => {
                self.give_up_look(fault, effects);
            }
            // The table may have another stream by now: the next look lists it.
            (Request::Number { .. }, Answer::Failed(fault)) => {
                self.listing.wanted = true;
                self.give_up_look(fault, effects);
            }
            (request, answer) => {
                self.done(request, answer, effects);
                self.go_on(effects);
            }
        }
    }

    /// The shards could not be listed. What is known of them can be followed meanwhile. Also where the stream was switched
    /// off the worker stays: it may come back.
    fn not_listed(&mut self, fault: Fault, effects: &mut Vec<Effect>) {
        self.search_failed();
        self.listing.is_old = true;
        if self.listing.is_complete {
            self.listing.refused = (!fault.is_retryable()).then(|| fault.to_string());
            self.ask(Request::Registry, effects);
        } else {
            self.give_up_look(fault, effects);
        }
    }

    /// A look that failed half-way is made up for by the next.
    fn give_up_look(&mut self, fault: Fault, effects: &mut Vec<Effect>) {
        effects.push(Effect::Report(Health::unknown(fault)));
        self.rest(effects);
    }

    /// Shows what was read to the rest of the process.
    fn show(&mut self, open_gaps: bool, effects: &mut Vec<Effect>) {
        let checkpoints = self.look.states.iter().map(|state| state.checkpoint.clone());
        let floor = self.look.registry.and_then(|registry| registry.floor);
        let fed = self.look.states.iter().filter(|_| self.feeds).map(|state| (state.checkpoint.id.clone(), state.fed));
        let lineage = Lineage::new(checkpoints, self.listing.all(), floor).with_fed(fed);
        // While a shard has no checkpoint yet, what was known to be included before still is.
        let as_of = lineage.as_of().unwrap_or_default().max(self.picture.as_of);
        let open_gaps = open_gaps || !self.losses.is_empty();
        let closed_through = lineage.closed_through();
        self.picture = Arc::new(Picture { began: self.look.began, lineage, closed_through, open_gaps, as_of });
        effects.push(Effect::Show(Arc::clone(&self.picture)));
    }

    /// Does what is to be done next, looks again if there is reason to, or rests.
    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        if let Some(next) = self.todo.pop_front() {
            self.ask(next, effects);
        } else if self.look.changed || self.look.again {
            self.look(effects);
        } else {
            let health = self.health(effects);
            effects.push(Effect::Report(health));
            self.rest(effects);
        }
    }

    fn rest(&mut self, effects: &mut Vec<Effect>) {
        self.look = Look::default();
        self.todo.clear();
        effects.push(Effect::Wait(Wait::Look, self.rules.look));
    }
}
