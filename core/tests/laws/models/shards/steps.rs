//! Everything that may happen next in the model.

use std::time::Duration;

use tally_core::lineage::HOLD;
use tally_core::shards::{Answer, Input, Request, Wait};

use super::{Kindly, Process, Rule, State, Step, World, bit, index};

impl World {
    pub(super) fn stream_steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (shard, real) in state.shards.iter().enumerate().filter(|(_, real)| real.exists && !real.gone) {
            if !real.ended && self.children(shard).next().is_some() {
                let mut split = state.clone();
                split.shards[shard].ended = true;
                self.children(shard).for_each(|child| split.shards[child].exists = true);
                next.push((Step::Split(shard), split));
            }
            // What is trimmed during a hold is a day old, too, and under the same gap.
            let is_held = |process: &Process| process.readers.get(&shard).is_some_and(|reader| reader.waits);
            if state.trims > 0 && !state.workers.iter().any(is_held) {
                let mut trimmed = state.clone();
                trimmed.trims -= 1;
                let real = &mut trimmed.shards[shard];
                real.trimmed = real.records;
                // A shard that goes on gets a record behind the loss; one that has ended is forgotten.
                (real.gone, real.records) = (real.ended, real.records + u8::from(!real.ended));
                next.push((Step::Trim(shard), trimmed));
            }
        }
        if state.days > 0 {
            let mut later = State { days: state.days - 1, ..state.clone() };
            for real in later.shards.iter_mut().filter(|real| real.ended) {
                (real.gone, real.trimmed) = (true, real.records);
            }
            next.push((Step::DayPasses, later));
        }
    }

    pub(super) fn worker_steps(&self, state: &State, worker: usize, next: &mut Vec<(Step, State)>) {
        let process = &state.workers[worker];
        match &process.asked {
            None => {}
            Some(Request::List) => {
                let children = (0..self.parents.len()).filter(|n| self.parents[*n].is_some());
                let before_split = children.fold(0, |all, n| all | bit(n));
                let one_each = (0..self.parents.len()).map(bit);
                let ended = state.shards.iter().enumerate().filter(|(_, shard)| shard.ended);
                let ended = ended.fold(0, |all, (n, _)| all | bit(n));
                let lies = one_each.chain([before_split, ended]).filter(|lie| state.lies > 0 && *lie > 0);
                for leaving_out in [0].into_iter().chain(lies) {
                    let mut state = state.clone();
                    state.lies -= u8::from(leaving_out > 0);
                    let answer = Answer::Listed(self.info(), self.listing(&state, leaving_out));
                    self.feed(&mut state, worker, Duration::ZERO, Input::Answered(Request::List, answer));
                    next.push((Step::Listed { worker, leaving_out }, state));
                }
            }
            Some(Request::Children(parent)) => {
                let mut shards = self.listing(state, 0);
                shards.retain(|shard| shard.parent.as_ref() == Some(parent));
                let request = Request::Children(parent.clone());
                let answered = Input::Answered(request, Answer::Children(Some(shards)));
                let listed = self.after(state, worker, Duration::ZERO, answered);
                next.push((Step::Listed { worker, leaving_out: 0 }, listed));
            }
            Some(Request::Registry) => next.push((Step::Read { worker }, self.read(state, worker))),
            Some(request) => next.push((Step::Done { worker }, self.carry_out(state, worker, request))),
        }
        for behind in &process.records {
            next.push((Step::Recorded { worker }, self.record(state, worker, behind)));
        }
        for wait in &process.waits {
            self.wake(state, worker, wait, next);
        }
        for (shard, reader) in &process.readers {
            let moved = self.move_reader(state, worker, *shard, *reader);
            next.extend(moved.map(|moved| (Step::ReaderMoves { worker, shard: *shard }, moved)));
        }
        if state.crashes > 0 {
            let mut state = state.clone();
            state.crashes -= 1;
            state.workers[worker] = self.process(format!("{worker}.{}", state.crashes));
            next.push((Step::Crash { worker }, state));
        }
    }

    pub(super) fn wake(&self, state: &State, worker: usize, wait: &Wait, next: &mut Vec<(Step, State)>) {
        let mut woken = state.clone();
        woken.workers[worker].waits.remove(wait);
        let kind = match wait {
            Wait::Look => {
                woken.workers[worker].dropped = false;
                if self.coarse {
                    let mut read = woken;
                    self.feed(&mut read, worker, Duration::ZERO, Input::Woke(Wait::Listing));
                    self.feed(&mut read, worker, Duration::ZERO, Input::Woke(Wait::Look));
                    next.push((Step::Look { worker, listing: true }, read));
                    return;
                }
                let mut listing = woken.clone();
                self.feed(&mut listing, worker, Duration::ZERO, Input::Woke(Wait::Listing));
                self.feed(&mut listing, worker, Duration::ZERO, Input::Woke(Wait::Look));
                self.feed(&mut woken, worker, Duration::ZERO, Input::Woke(Wait::Look));
                next.push((Step::Look { worker, listing: true }, listing));
                next.push((Step::Look { worker, listing: false }, woken));
                return;
            }
            Wait::NoChildren(shard) => {
                let is_listed = |child: usize| state.shards[child].exists && !state.shards[child].gone;
                if self.children(index(shard)).any(is_listed) {
                    return;
                }
                Kindly::NoChildren
            }
            Wait::Stale(shard) => {
                let holder = state.entries[index(shard)].as_ref().and_then(|entry| entry.lease.as_ref());
                let lives = holder.is_some_and(|(holder, _)| state.workers.iter().any(|other| other.name == *holder));
                if lives || self.is_removed(Rule::StaleLeases) {
                    return;
                }
                Kindly::Stale
            }
            Wait::Hold(behind) => {
                woken.workers[worker].held.insert(behind.clone());
                Kindly::Hold
            }
            _ => Kindly::Children,
        };
        self.feed(&mut woken, worker, HOLD, Input::Woke(wait.clone()));
        next.push((Step::Woke { worker, wait: kind }, woken));
    }
}
