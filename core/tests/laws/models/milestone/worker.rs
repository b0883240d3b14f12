//! A worker of the model: the machine that ships, and what it waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use tally_core::apply::{Answer, Apply, Effect, Input, Request, RequestId};
use tally_core::fault::Fault;
use tally_core::lineage::{Checkpoint, Picture};
use tally_core::ports::Applied;
use tally_core::time::UnixMillis;

use super::super::applying::{AGED, NOW, RULES, Stepped};
use super::{Letter, Milestones, State, Step, ordinal};
use crate::intern::Number;

/// What happens to a worker's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    /// It gathers the records from `from` to `to`, and writes them.
    Gather {
        from: u8,
        to: u8,
    },
    Taken(RequestId, Number),
    Refused(RequestId, Number),
    /// Records of these thresholds stand already, a bit each.
    Standing(RequestId, u64),
    TimedOut(RequestId),
    Done(RequestId),
    Ladder(RequestId),
}

/// A machine at work on a stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Worker {
    /// How many records it was given.
    read: u8,
    machine: Number,
    /// The update that is unanswered.
    awaits: Option<RequestId>,
}

impl Milestones {
    /// A worker that begins, at first or after a crash, at the start of its stream shard: a checkpoint may lag behind by any number of records.
    pub(super) fn start(&self, at: usize) -> Worker {
        let shard = self.workers[at];
        let checkpoint = Checkpoint {
            id: format!("shard-{shard}").as_str().into(),
            parent: None,
            ordinal: ordinal(shard),
            sequence: None,
            closed: false,
            at: UnixMillis(0),
        };
        let machine = Apply::new(&checkpoint, RULES, Arc::new(Picture::default()), NOW).knowing(self.knows(at));
        Worker { read: 0, machine: self.machines.start(machine), awaits: None }
    }

    fn happens(&self, at: usize, worker: Worker, happening: Happening) -> Stepped {
        let shard = self.workers[at];
        self.machines.step(worker.machine, (shard, happening), || {
            let counter = |number| (*self.counters.get(number)).clone();
            let answer = |id, answer| vec![(NOW, Input::Answered(id, answer))];
            let updated = |id, outcome| answer(id, Answer::Updated(outcome));
            match happening {
                Happening::Gather { from, to } => {
                    let records = (from..=to).map(|at| self.record(shard, at)).collect();
                    vec![(NOW, Input::Records(records)), (AGED, Input::Woke)]
                }
                Happening::Taken(id, after) => updated(id, Ok(Applied::Taken(counter(after)))),
                Happening::Refused(id, by) => updated(id, Ok(Applied::Refused(Some(counter(by))))),
                Happening::Standing(id, set) => {
                    let thresholds = (0..64).filter(|n| set >> n & 1 == 1).collect();
                    updated(id, Ok(Applied::Standing(thresholds)))
                }
                Happening::TimedOut(id) => updated(id, Err(Fault::Transient("no answer".to_owned()))),
                Happening::Done(id) => answer(id, Answer::Done),
                Happening::Ladder(id) => answer(id, Answer::Ladder(self.ladder)),
            }
        })
    }

    /// The state with the machine's updates under way; everything else that it asks for is done at once.
    pub(super) fn after(&self, mut state: State, at: usize, mut worker: Worker, happening: Happening) -> State {
        let mut happenings = VecDeque::from([happening]);
        while let Some(happening) = happenings.pop_front() {
            let Stepped { machine, effects } = self.happens(at, worker, happening);
            worker.machine = machine;
            if let Happening::Gather { to, .. } = happening {
                worker.read = to;
            }
            for effect in &*effects {
                match effect {
                    Effect::Ask(id, Request::Update { update, .. }) => {
                        worker.awaits = Some(*id);
                        let update = self.updates.number((**update).clone());
                        state.network.push(Letter { update, sender: Some((at, *id)) });
                    }
                    Effect::Ask(id, Request::MoveCheckpoint { .. }) => {
                        worker.awaits = None;
                        happenings.push_back(Happening::Done(*id));
                    }
                    Effect::Ask(id, Request::Queue(..)) => happenings.push_back(Happening::Done(*id)),
                    Effect::Ask(id, Request::ReadLadder) => happenings.push_back(Happening::Ladder(*id)),
                    Effect::Ask(_, other) => panic!("likes alone lead to {other:?}"),
                    Effect::Ended(end) => panic!("nothing ends a worker: {end:?}"),
                    _ => {}
                }
            }
        }
        state.with(at, worker)
    }

    pub(super) fn work(&self, state: &State, at: usize, worker: Worker, next: &mut Vec<(Step, State)>) {
        let Some(id) = worker.awaits else {
            for to in worker.read + 1..=self.length(self.workers[at]) {
                let happening = Happening::Gather { from: worker.read + 1, to };
                next.push((Step::Send { worker: at, to }, self.after(state.clone(), at, worker, happening)));
            }
            next.push((Step::Crash { worker: at }, state.clone().with(at, self.start(at))));
            return;
        };
        if state.timeouts > 0 {
            let abandoned = state.abandoned_by(at);
            let again = self.after(abandoned.clone(), at, worker, Happening::TimedOut(id));
            next.push((Step::TimeOut { worker: at }, again));
            next.push((Step::Crash { worker: at }, abandoned.with(at, self.start(at))));
        }
    }
}
