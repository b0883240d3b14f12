//! A worker of the model: the machine that ships, and what it waits for.

use std::collections::VecDeque;
use std::sync::Arc;

use tally_core::apply::{Answer, Apply, Effect, End, Input, Request, RequestId};
use tally_core::fault::Fault;
use tally_core::ids::Sequence;
use tally_core::lineage::Checkpoint;
use tally_core::ports::Applied;

use super::super::applying::{AGED, NOW, RULES, Stepped};
use super::{Letter, Rule, State, Step, Streamers, index, sequence};
use crate::intern::Number;

/// What happens to a worker's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    /// It is given the records behind those it has, up to this one.
    Read {
        shard: usize,
        from: u8,
        to: u8,
    },
    /// What it has gathered is old enough.
    Aged,
    EndOfShard,
    Stopped,
    Taken(RequestId, Number),
    Refused(RequestId, Number),
    TimedOut(RequestId),
    Done(RequestId),
}

/// A machine at work on a stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Worker {
    pub(super) shard: usize,
    /// The closed stream shards of the picture that the machine was last shown.
    shown: usize,
    /// How many of its records the machine was given.
    read: u8,
    machine: Number,
    waits: Waits,
}

/// What a machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Waits {
    /// More records.
    Records,
    /// The age of those it has gathered.
    Age,
    /// The answer to an update.
    Update(RequestId),
    /// The checkpoint, moved here.
    Checkpoint(RequestId, u8),
    /// The stream shard to be closed; the machine has ended.
    Close,
}

impl Streamers {
    /// A machine that begins at the stored checkpoint.
    fn start(&self, state: &State, checkpoint: &Checkpoint) -> Worker {
        let shard = index(checkpoint.ordinal);
        let read = state.checkpoints[shard];
        let checkpoint = Checkpoint { sequence: (read > 0).then(|| sequence(read)), ..checkpoint.clone() };
        let machine = Apply::new(&checkpoint, RULES, Arc::clone(&self.pictures[state.closed]), NOW);
        Worker { shard, shown: state.closed, read, machine: self.machines.start(machine), waits: Waits::Records }
    }

    fn happens(&self, worker: Worker, happening: Happening) -> Stepped {
        self.machines.step(worker.machine, (worker.shown, happening), || {
            let picture = (NOW, Input::Picture(Arc::clone(&self.pictures[worker.shown])));
            let counter = |number| (**self.counters.get(number)).clone();
            let answer = |id, answer| (NOW, Input::Answered(id, answer));
            let input = match happening {
                Happening::Read { shard, from, to } => {
                    (NOW, Input::Records((from..=to).map(|at| self.record(shard, at)).collect()))
                }
                Happening::Aged => (AGED, Input::Woke),
                Happening::EndOfShard => (NOW, Input::EndOfShard),
                Happening::Stopped => (NOW, Input::ReaderStopped),
                Happening::Taken(id, after) => answer(id, Answer::Updated(Ok(Applied::Taken(counter(after))))),
                Happening::Refused(id, by) => answer(id, Answer::Updated(Ok(Applied::Refused(Some(counter(by)))))),
                Happening::TimedOut(id) => answer(id, Answer::Updated(Err(Fault::Transient("no answer".to_owned())))),
                Happening::Done(id) => answer(id, Answer::Done),
            };
            vec![picture, input]
        })
    }

    /// What follows once `happening` has befallen a worker's machine, which is shown the latest picture before, or, where
    /// pictures may come late, is not.
    pub(super) fn follows(
        &self,
        step: Step,
        state: &State,
        at: usize,
        worker: Worker,
        happening: Happening,
        next: &mut Vec<(Step, State)>,
    ) {
        if self.late_pictures && worker.shown != state.closed {
            next.push((step, self.after(state.clone(), at, worker, happening)));
        }
        let worker = Worker { shown: state.closed, ..worker };
        next.push((step, self.after(state.clone(), at, worker, happening)));
    }

    /// The state with the machine's requests under way.
    fn after(&self, mut state: State, at: usize, mut worker: Worker, happening: Happening) -> State {
        let mut happenings = VecDeque::from([happening]);
        while let Some(happening) = happenings.pop_front() {
            let Stepped { machine, effects } = self.happens(worker, happening);
            worker.machine = machine;
            if let Happening::Read { to, .. } = happening {
                (worker.read, worker.waits) = (to, Waits::Age);
            }
            for effect in &*effects {
                match effect {
                    Effect::Ask(id, Request::Update { update, .. }) => {
                        worker.waits = Waits::Update(*id);
                        let update = self.updates.number((**update).clone());
                        state.network.push(Letter { update, sender: Some((at, *id)) });
                    }
                    Effect::Ask(id, Request::MoveCheckpoint { to, .. }) => {
                        worker.waits = Waits::Checkpoint(*id, place(*to));
                    }
                    Effect::Ask(id, Request::Queue(..)) => happenings.push_back(Happening::Done(*id)),
                    Effect::Ask(_, other) => panic!("likes alone lead to {other:?}"),
                    Effect::Ended(End::ShardApplied(_)) => worker.waits = Waits::Close,
                    Effect::Ended(_) => return state.with(at, None),
                    Effect::Flushed(_) => worker.waits = Waits::Records,
                    Effect::Publish(..)
                    | Effect::Reached(..)
                    | Effect::Refused(_)
                    | Effect::PutAside(..)
                    | Effect::WindowClosed(_) => {}
                }
            }
        }
        state.with(at, Some(worker))
    }

    /// What an idle worker may begin with: any stream shard that may be read, also one that the other reads.
    pub(super) fn begin(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        for checkpoint in self.pictures[state.closed].lineage.readable() {
            self.read(state, at, self.start(state, checkpoint), next);
        }
    }

    /// Records behind those the worker has read, or the end of the stream shard.
    fn read(&self, state: &State, at: usize, worker: Worker, next: &mut Vec<(Step, State)>) {
        let Worker { shard, read, .. } = worker;
        for to in read + 1..=self.lengths[shard] {
            let happening = Happening::Read { shard, from: read + 1, to };
            self.follows(Step::Read { worker: at, shard, to }, state, at, worker, happening, next);
        }
        if read == self.lengths[shard] {
            self.follows(Step::EndOfShard { worker: at }, state, at, worker, Happening::EndOfShard, next);
        }
    }

    pub(super) fn work(&self, state: &State, at: usize, worker: Worker, next: &mut Vec<(Step, State)>) {
        match worker.waits {
            Waits::Records => {
                self.read(state, at, worker, next);
                self.follows(Step::Stop { worker: at }, state, at, worker, Happening::Stopped, next);
            }
            Waits::Age => {
                let mut state = state.clone();
                if !self.obeys(Rule::CheckpointBehind) {
                    state.checkpoints[worker.shard] = state.checkpoints[worker.shard].max(worker.read);
                }
                self.follows(Step::Cut { worker: at }, &state, at, worker, Happening::Aged, next);
            }
            Waits::Update(id) => self.wait(state, at, worker, id, next),
            Waits::Checkpoint(id, to) => {
                let mut moved = state.clone();
                moved.checkpoints[worker.shard] = moved.checkpoints[worker.shard].max(to);
                self.follows(Step::Checkpoint { worker: at }, &moved, at, worker, Happening::Done(id), next);
                next.push((Step::Crash { worker: at }, state.clone().with(at, None)));
            }
            Waits::Close => {
                let mut closed = state.clone();
                closed.closed |= 1 << worker.shard;
                next.push((Step::Close { worker: at }, closed.with(at, None)));
            }
        }
    }

    /// What may happen to a worker while its update is under way.
    fn wait(&self, state: &State, at: usize, worker: Worker, id: RequestId, next: &mut Vec<(Step, State)>) {
        // What a mutant tells its machine before the store has said anything.
        let presumed = || {
            let sender = Some((at, id));
            let letter = state.network.iter().find(|letter| letter.sender == sender).expect("the update is under way");
            let after = self.counters.get(state.counter).after(&self.updates.get(letter.update));
            Happening::Taken(id, self.counters.number(after))
        };
        if state.timeouts > 0 {
            let happening = if self.obeys(Rule::RepeatUnknown) { Happening::TimedOut(id) } else { presumed() };
            let abandoned = state.abandoned_by(at);
            self.follows(Step::TimeOut { worker: at }, &abandoned, at, worker, happening, next);
            next.push((Step::Crash { worker: at }, abandoned.with(at, None)));
        }
        if !self.obeys(Rule::OneUnanswered) {
            self.follows(Step::PresumeTaken { worker: at }, state, at, worker, presumed(), next);
        }
    }
}

fn place(sequence: Sequence) -> u8 {
    sequence.as_str().parse().expect("sequences are small")
}
