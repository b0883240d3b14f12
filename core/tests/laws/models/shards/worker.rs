//! One worker of the model: its machine, what follows from an input, and its readers.

use std::time::Duration;

use tally_core::ids::Sequence;
use tally_core::lineage::{HOLD, Loss};
use tally_core::shards::{Answer, Behind, Effect, Input, Request, Wait, Waiter};
use tally_core::time::UnixMillis;

use super::{BEGAN, HASTE, Kind, PARENT, Reader, Rule, State, World, bit, index, name};

impl World {
    /// Feeds one input to a worker's machine and carries out what follows from it: waits, readers, requests.
    pub(super) fn feed(&self, state: &mut State, worker: usize, at: Duration, input: Input) {
        self.feed_alone(state, worker, at, input);
        while let Some(answers) = self.read_at_once(state, worker) {
            for (request, answer) in answers {
                self.feed_alone(state, worker, Duration::ZERO, Input::Answered(request, answer));
            }
        }
    }

    pub(super) fn read_at_once(&self, state: &State, worker: usize) -> Option<Vec<(Request, Answer)>> {
        match state.workers[worker].asked.as_ref().filter(|_| self.coarse)? {
            Request::List => Some(vec![(Request::List, Answer::Listed(self.info(), self.listing(state, 0)))]),
            Request::Registry => Some(self.readings(state)),
            _ => None,
        }
    }

    pub(super) fn feed_alone(&self, state: &mut State, worker: usize, at: Duration, input: Input) {
        let mut inputs = vec![(at, input)];
        let mut effects = Vec::new();
        while let Some((at, input)) = inputs.pop() {
            let now = self.now(state, at);
            let process = &mut state.workers[worker];
            if let Input::Answered(request, _) = &input {
                process.asked.take_if(|asked| asked == request);
            }
            process.machine.step(now, input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Ask(Request::Record(behind, loss)) => {
                        let kind = match loss {
                            Loss::Unfollowed(_) => Kind::FirstSight,
                            Loss::Vanished(shard) => Kind::Vanished(index(&shard)),
                            Loss::Trimmed(shard) => Kind::Trimmed(index(&shard)),
                            other => panic!("the model has no {other:?}"),
                        };
                        process.losses.insert(behind.clone(), kind);
                        process.held.remove(&behind);
                        process.records.insert(behind);
                    }
                    Effect::Ask(request) => process.asked = Some(request),
                    // The model's listings come as seldom as it likes; how far apart is not its business.
                    Effect::Wait(Wait::Spacing, _) => inputs.push((at, Input::Woke(Wait::Spacing))),
                    Effect::Wait(Wait::Listing | Wait::Unread(_), _) => {}
                    Effect::Wait(wait, _) if self.ends_at_once(&wait) => inputs.push((HOLD, Input::Woke(wait))),
                    Effect::Wait(wait, _) => {
                        process.waits.insert(wait);
                    }
                    Effect::Read(checkpoint, _) => {
                        let position = checkpoint.sequence.map_or(0, position);
                        process.readers.insert(index(&checkpoint.id), Reader { position, waits: false });
                    }
                    Effect::Stop(shard) => {
                        process.readers.remove(&index(&shard));
                        inputs.push((at, Input::Ended(shard)));
                    }
                    Effect::GoOn(Waiter(shard)) => {
                        let behind = Behind::Waiter(Waiter(shard));
                        if !process.held.contains(&behind) {
                            state.broken = Some(HASTE);
                        }
                        let shard = usize::try_from(shard).expect("a shard");
                        if let Some(reader) = process.readers.get_mut(&shard) {
                            *reader = Reader { position: state.shards[shard].trimmed, waits: false };
                        }
                    }
                    Effect::Show(_) | Effect::Tell(_) | Effect::Report(_) => {}
                }
            }
        }
    }

    pub(super) fn ends_at_once(&self, wait: &Wait) -> bool {
        match wait {
            Wait::Hold(_) => self.is_removed(Rule::Hold),
            Wait::NoChildren(_) => self.is_removed(Rule::ChildrenNumbered),
            _ => false,
        }
    }

    pub(super) fn after(&self, state: &State, worker: usize, at: Duration, input: Input) -> State {
        let mut state = state.clone();
        self.feed(&mut state, worker, at, input);
        state
    }

    /// A reader reads one record, and its applier applies it; or it meets a loss, or the end.
    pub(super) fn move_reader(&self, state: &State, worker: usize, shard: usize, reader: Reader) -> Option<State> {
        let real = &state.shards[shard];
        let id = name(shard);
        if reader.waits {
            return None;
        }
        let mut state = state.clone();
        if real.gone {
            state.workers[worker].readers.remove(&shard);
            self.feed(&mut state, worker, Duration::ZERO, Input::Gone(id.clone()));
            self.feed(&mut state, worker, Duration::ZERO, Input::Ended(id));
            return Some(state);
        }
        let position = if reader.position == 0 { real.unseen } else { reader.position };
        let early = u8::from(self.is_removed(Rule::AllApplied));
        if position < real.trimmed {
            state.workers[worker].readers.insert(shard, Reader { waits: true, ..reader });
            let lost = Input::Lost(Waiter(shard as u64), Loss::Trimmed(id));
            self.feed(&mut state, worker, Duration::ZERO, lost);
        } else if position + early < real.records || position < real.records && !real.ended {
            self.apply(&mut state, shard, position);
            state.workers[worker].readers.insert(shard, Reader { position: position + 1, ..reader });
        } else if real.ended {
            state.workers[worker].readers.remove(&shard);
            let applied = Input::Applied { shard: id.clone(), at: UnixMillis(BEGAN) };
            self.feed(&mut state, worker, Duration::ZERO, applied);
            self.feed(&mut state, worker, Duration::ZERO, Input::Ended(id));
        } else {
            return None;
        }
        Some(state)
    }

    pub(super) fn apply(&self, state: &mut State, shard: usize, record: u8) {
        let parent = self.parents[shard];
        if parent.is_some_and(|parent| state.closed & bit(parent) == 0) {
            state.broken = Some(PARENT);
        }
        state.shards[shard].applied |= bit(record.into());
        if let Some(entry) = &mut state.entries[shard] {
            entry.position = entry.position.max(record + 1);
        }
    }
}

fn position(sequence: Sequence) -> u8 {
    sequence.as_str().parse().expect("few records")
}
