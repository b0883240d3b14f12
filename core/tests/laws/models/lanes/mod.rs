//! Two consumers on one partition with lanes, neither of them its owner: each is the real machine, and this is its other
//! runner. Lanes write side by side, and their number changes; transactions and changes are delayed, given up on, and land
//! late; consumers crash and are stopped; fences are read together or one by one.
//!
//! In every state the row of each user is the fold of the user's events before the fence of the user's lane.

mod consumer;
mod table;
mod tests;

use std::sync::Arc;

use tally_core::fence::Commit;

use self::consumer::Consumer;
use self::table::{Known, Request, Table, lane_of};
use super::late;
use crate::explore::Model;

/// A rule of the design that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// A transaction's condition covers `cfg`.
    CfgInCondition,
    /// A change raises the `cfg` of every lane, also of those that stay.
    CfgRises,
    /// All lanes are at one offset when their fences are replaced.
    Drained,
    /// Fences of different configurations are read again.
    Together,
    /// A record's lane is a function of the record and the number of lanes.
    LaneOfRecord,
    /// Reading starts at the least lane's fence.
    StartAtLeast,
    /// A lane's fence moves no further than to its first record that is not in the batch.
    EndAtWaiting,
}

/// Which user likes or unlikes.
type Said = (usize, bool);

#[derive(Clone, Copy)]
struct Lanes {
    removed: Option<Rule>,
    log: &'static [Said],
    /// How many lanes there are at first, and which numbers there are to be, one after another.
    first: usize,
    plan: &'static [usize],
    consumers: usize,
    /// How many answers may be lost, whether with their sender or not.
    faults: u8,
    /// Fences are read one by one.
    torn: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    table: Table,
    consumers: [Arc<Consumer>; 2],
    /// Requests whose sender does not wait for them any more.
    ghosts: Vec<Request>,
    faults: u8,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    ReadFence { consumer: usize, lane: usize },
    Read { consumer: usize, to: u64 },
    Wake { consumer: usize },
    Stop { consumer: usize },
    Crash { consumer: usize, wishes: bool },
    Answered { consumer: usize, request: Request },
    TimeOut { consumer: usize, request: Request },
    ChangeAnyhow { consumer: usize },
    GhostLands(Request),
    GhostDies,
}

impl Lanes {
    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn end(&self) -> u64 {
        self.log.len() as u64
    }

    fn change<R>(&self, state: &State, i: usize, act: impl FnOnce(&mut Consumer) -> R) -> State {
        let mut changed = state.clone();
        act(Arc::make_mut(&mut changed.consumers[i]));
        changed
    }

    /// Reads the fences for consumer `i`: together, or the next of them.
    fn read_fences(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = &state.consumers[i];
        let lanes = state.table.lanes();
        let known: Vec<Known> = if self.torn {
            let lane = consumer.pieces.len();
            let Some(read) = state.table.fences[lane] else {
                // A lane that was there is gone.
                next.push((Step::ReadFence { consumer: i, lane }, self.change(state, i, |it| it.pieces.clear())));
                return;
            };
            let stated = if lane == 0 { lanes } else { consumer.stated() };
            let mut read_so_far = consumer.pieces.clone();
            read_so_far.push(read);
            if read_so_far.len() < stated {
                let pieces = |it: &mut Consumer| {
                    it.pieces = read_so_far;
                    it.known = [None; table::MOST];
                    it.known[..stated].fill(Some(Known { offset: 0, cfg: 0 }));
                };
                next.push((Step::ReadFence { consumer: i, lane }, self.change(state, i, pieces)));
                return;
            }
            read_so_far
        } else {
            state.table.fences[..lanes].iter().flatten().copied().collect()
        };
        let lane = known.len() - 1;
        if self.obeys(Rule::Together) && known.iter().any(|fence| fence.cfg != known[0].cfg) {
            next.push((Step::ReadFence { consumer: i, lane }, self.change(state, i, |it| it.pieces.clear())));
            return;
        }
        let wanted = self.plan.get(state.table.changes).copied().filter(|_| consumer.wishes);
        let target = wanted.unwrap_or(known.len());
        let draws: &[bool] = if self.obeys(Rule::LaneOfRecord) { &[false] } else { &[false, true] };
        for swapped in draws {
            let load = |it: &mut Consumer| it.load(&known, target, *swapped, self.end(), self);
            next.push((Step::ReadFence { consumer: i, lane }, self.change(state, i, load)));
        }
    }

    fn steps_of(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = &state.consumers[i];
        if consumer.requests.is_empty() {
            let wishes: &[bool] = if state.table.changes < self.plan.len() { &[false, true] } else { &[false] };
            for wishes in wishes {
                let mut crashed = state.clone();
                crashed.consumers[i] = Arc::new(Consumer::assigned(*wishes));
                next.push((Step::Crash { consumer: i, wishes: *wishes }, crashed));
            }
        }
        for nth in 0..consumer.requests.len() {
            self.arrive(state, i, nth, next);
        }
        let Some(machine) = &consumer.machine else {
            if consumer.requests.is_empty() {
                self.read_fences(state, i, next);
            }
            return;
        };
        if machine.reads() {
            for to in consumer.at + 1..=self.end() {
                next.push((Step::Read { consumer: i, to }, self.change(state, i, |it| it.read(self.log, to, self))));
            }
        }
        if machine.wake_at().is_some() {
            next.push((Step::Wake { consumer: i }, self.change(state, i, |it| it.wakes(self))));
            next.push((Step::Stop { consumer: i }, self.change(state, i, |it| it.stops(self))));
        }
        if !self.obeys(Rule::Drained) && consumer.requests.is_empty() {
            // The mutant changes at once, to where the furthest lane is.
            let seen = consumer.known;
            let at = seen.iter().flatten().map(|known| known.offset).max().unwrap_or(0);
            if let Some(lanes) = self.plan.get(state.table.changes).copied() {
                let mut changed = state.clone();
                changed.table.land(Request::Replace { seen, lanes, at }, self);
                next.push((Step::ChangeAnyhow { consumer: i }, changed));
            }
        }
    }

    /// A request of consumer `i` reaches the table and is answered; or its answer is lost.
    fn arrive(&self, state: &State, i: usize, nth: usize, next: &mut Vec<(Step, State)>) {
        let request = state.consumers[i].requests[nth];
        let mut landed = state.clone();
        let commit = landed.table.land(request, self);
        Arc::make_mut(&mut landed.consumers[i]).answered(nth, commit, self);
        next.push((Step::Answered { consumer: i, request }, landed));
        if state.faults > 0 {
            let mut late = state.clone();
            late.faults -= 1;
            late::give_up(&mut late.ghosts, &request, |ghost| *ghost);
            let mut crashed = late.clone();
            Arc::make_mut(&mut late.consumers[i]).answered(nth, Commit::Unknown("no answer".to_owned()), self);
            next.push((Step::TimeOut { consumer: i, request }, late));
            for (other, left) in state.consumers[i].requests.iter().enumerate() {
                if other != nth {
                    late::give_up(&mut crashed.ghosts, left, |ghost| *ghost);
                }
            }
            crashed.consumers[i] = Arc::new(Consumer::assigned(false));
            next.push((Step::Crash { consumer: i, wishes: false }, crashed));
        }
    }
}

impl Consumer {
    /// How many lanes the first fence stated, while the others are read one by one.
    fn stated(&self) -> usize {
        self.known.iter().flatten().count()
    }
}

impl Model for Lanes {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let consumer = Arc::new(Consumer::assigned(false));
        let consumers = [Arc::clone(&consumer), consumer];
        vec![State { table: Table::of(self.first), consumers, ghosts: Vec::new(), faults: self.faults }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for i in 0..self.consumers {
            self.steps_of(state, i, next);
        }
        for (ghost, ghosts) in late::each_ghost(&state.ghosts) {
            let dead = State { ghosts, ..state.clone() };
            let mut landed = dead.clone();
            landed.table.land(*ghost, self);
            next.push((Step::GhostLands(*ghost), landed));
            next.push((Step::GhostDies, dead));
        }
        if self.consumers == 2 {
            next.iter_mut().for_each(|(_, state)| late::in_one_order(&mut state.consumers));
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let lanes = state.table.lanes();
        (0..table::MOST).find_map(|user| {
            let fence = state.table.fences[lane_of(user, lanes)]?;
            let before = self.log.iter().take(usize::try_from(fence.offset).expect("a log is short"));
            let liked = before.rev().find(|said| said.0 == user).is_some_and(|said| said.1);
            let row = state.table.rows >> user & 1 == 1;
            (row != liked).then(|| format!("{ROWS}: {user} before {}", fence.offset))
        })
    }

    fn is_goal(&self, state: &State) -> bool {
        let done = state.table.fences.iter().flatten().all(|fence| fence.offset == self.end());
        done && state.table.changes == self.plan.len() && state.ghosts.is_empty()
    }
}

const ROWS: &str = "a row is not the fold of the user's events before the fence of the user's lane";
