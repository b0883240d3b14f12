//! Two consumers on one partition, neither of them its owner, and a set whose homes grow while they write: a change of its map is
//! announced, put, and announced, in steps that stop anywhere, and its put lands late. The rows under the homes are looked at one
//! by one. Transactions are delayed, given up on, and land late; consumers crash.
//!
//! In every state the member has one row at most, under a home that is on the map, and it is there if the last event before the
//! fence says so.

mod consumer;
mod table;
mod tests;

use std::sync::Arc;

use tally_core::consume::Input;
use tally_core::fence::Commit;
use tally_core::ids::Lane;

use self::consumer::{Ask, Consumer};
use self::table::{HOMES, Map, Request, Table};
use super::late;
use crate::explore::Model;

/// A rule of the design that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Announcements and maps are read behind the fence.
    MapBehindFence,
    /// Maps do not outlive a reload.
    DroppedOnReload,
    /// The member is looked for under the homes that are not the newest.
    LookedFor,
    /// It is looked for behind the answer to the transaction before.
    LookedForInTurn,
    /// A row that the store did not answer for is asked for again.
    UnansweredAskedAgain,
    /// A home stays on the map.
    HomesStay,
}

#[derive(Clone, Copy)]
struct Homes {
    removed: Option<Rule>,
    /// Whether the member is put or taken away.
    log: &'static [bool],
    /// Where rows are to be put, one after another: a place among the homes.
    plan: &'static [usize],
    /// How many answers may be lost, whether with their sender or not.
    faults: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    table: Table,
    consumers: [Arc<Consumer>; 2],
    /// How many changes of the map were begun, and the put of the one under way once it is announced.
    begun: usize,
    putting: Option<(Option<Map>, Map)>,
    /// A put that its sender gave up.
    late_put: Option<(Option<Map>, Map)>,
    ghosts: Vec<Request>,
    faults: u8,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Answer { consumer: usize },
    Unanswered { consumer: usize },
    Read { consumer: usize },
    Moved { consumer: usize },
    TimeOut { consumer: usize },
    Crash { consumer: usize },
    Announce,
    Put,
    GiveUpPut,
    PutLands,
    PutDies,
    GhostLands { to: u64 },
    GhostDies,
}

impl Homes {
    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn tell(&self, state: &mut State, i: usize, input: Input) {
        let table = &state.table;
        Arc::make_mut(&mut state.consumers[i]).take(input, table, self);
    }

    fn answer(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        let consumer = &state.consumers[i];
        let Some(ask) = consumer.ask.clone() else { return };
        let step = Step::Answer { consumer: i };
        let mut answered = state.clone();
        let input = match ask {
            Ask::Fence => Input::Fence(Ok(Some(state.table.fence().into()))),
            Ask::Announced => Input::Announced(Ok(consumer.announced(&state.table, self))),
            Ask::Map(counter) => {
                let map = consumer.map(&state.table, self);
                Input::Maps(Lane::FIRST, Ok(vec![(counter, map.map(table::known))]))
            }
            Ask::Locate { homes, found } => {
                let Some((home, rest)) = homes.split_first() else {
                    let found = Input::Located(Lane::FIRST, Ok(vec![found.map(table::shards)]));
                    self.tell(&mut answered, i, found);
                    next.push((step, answered));
                    return;
                };
                let there = state.table.rows & (1 << home) != 0 && self.obeys(Rule::LookedFor);
                let ask = |found| Some(Ask::Locate { homes: rest.to_vec(), found });
                if there && !self.obeys(Rule::UnansweredAskedAgain) {
                    let mut unanswered = state.clone();
                    Arc::make_mut(&mut unanswered.consumers[i]).ask = ask(found);
                    next.push((Step::Unanswered { consumer: i }, unanswered));
                }
                Arc::make_mut(&mut answered.consumers[i]).ask = ask(if there { Some(*home) } else { found });
                next.push((step, answered));
                return;
            }
            Ask::Commit(request) => {
                if state.faults > 0 {
                    let mut late = state.clone();
                    late.faults -= 1;
                    late::give_up(&mut late.ghosts, &request, Request::order);
                    let mut timed_out = late.clone();
                    self.tell(
                        &mut timed_out,
                        i,
                        Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())),
                    );
                    next.push((Step::TimeOut { consumer: i }, timed_out));
                    next.push((Step::Crash { consumer: i }, late.restarted(i)));
                }
                Input::Committed(Lane::FIRST, answered.table.land(&request))
            }
        };
        self.tell(&mut answered, i, input);
        next.push((step, answered));
    }

    /// The next of the plan's changes is begun, goes on, or is given up.
    fn change(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if let Some((seen, map)) = state.putting {
            let mut put = State { putting: None, ..state.clone() };
            put.table.put(seen, map);
            put.table.announced += 1;
            next.push((Step::Put, put));
            if state.late_put.is_none() {
                next.push((Step::GiveUpPut, State { putting: None, late_put: state.putting, ..state.clone() }));
            }
        } else if let Some(to) = self.plan.get(state.begun) {
            let mut begun = State { begun: state.begun + 1, ..state.clone() };
            let seen = state.table.map;
            let stands = seen.unwrap_or_default();
            let emptied = !self.obeys(Rule::HomesStay) && state.table.rows & (1 << stands.newest) == 0;
            let homes = if emptied { stands.homes & !(1 << stands.newest) } else { stands.homes };
            begun.putting = Some((seen, Map { homes: homes | (1 << to), newest: *to, at: stands.at + 1 }));
            begun.table.announced += 1;
            next.push((Step::Announce, begun));
        }
        if let Some((seen, map)) = state.late_put {
            let dead = State { late_put: None, ..state.clone() };
            let mut landed = dead.clone();
            landed.table.put(seen, map);
            next.push((Step::PutLands, landed));
            next.push((Step::PutDies, dead));
        }
    }
}

impl State {
    fn restarted(mut self, i: usize) -> Self {
        let mut assigned = Consumer::assigned(&self.table);
        assigned.kept = self.consumers[i].kept;
        self.consumers[i] = Arc::new(assigned);
        self
    }
}

impl Model for Homes {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let table = Table::default();
        let consumer = Arc::new(Consumer::assigned(&table));
        vec![State {
            table,
            consumers: [Arc::clone(&consumer), consumer],
            begun: 0,
            putting: None,
            late_put: None,
            ghosts: Vec::new(),
            faults: self.faults,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.change(state, next);
        for i in 0..state.consumers.len() {
            self.answer(state, i, next);
            let consumer = &state.consumers[i];
            if consumer.machine.reads() && consumer.at < self.log.len() {
                let mut read = state.clone();
                Arc::make_mut(&mut read.consumers[i]).read(self.log, &state.table, self);
                next.push((Step::Read { consumer: i }, read));
            }
            if consumer.machine.reads() || matches!(consumer.ask, Some(Ask::Map(_) | Ask::Locate { .. })) {
                let mut moved = state.clone();
                self.tell(&mut moved, i, Input::Moved(state.table.announced));
                next.push((Step::Moved { consumer: i }, moved));
            }
            if consumer.ask.is_none() {
                next.push((Step::Crash { consumer: i }, state.clone().restarted(i)));
            }
        }
        for (ghost, ghosts) in late::each_ghost(&state.ghosts) {
            let dead = State { ghosts, ..state.clone() };
            let mut landed = dead.clone();
            landed.table.land(ghost);
            next.push((Step::GhostLands { to: ghost.advance.to.0 }, landed));
            next.push((Step::GhostDies, dead));
        }
        next.iter_mut().for_each(|(_, state)| late::in_one_order(&mut state.consumers));
    }

    fn violation(&self, state: &State) -> Option<String> {
        let Table { rows, map, .. } = state.table;
        let stands = map.unwrap_or_default();
        if rows.count_ones() > 1 {
            return Some(format!("{TWICE}: {rows:03b}"));
        }
        let last = state.table.offset().checked_sub(1).map(|last| self.log[last]);
        if (rows != 0) != last.unwrap_or(false) {
            return Some(format!("{FOLD}: {rows:03b}"));
        }
        (rows & !stands.homes != 0).then(|| format!("{OUTSIDE}: {rows:03b} and {:03b} of {HOMES:?}", stands.homes))
    }

    fn is_goal(&self, state: &State) -> bool {
        state.table.offset() == self.log.len() && state.begun == self.plan.len() && state.ghosts.is_empty()
    }
}

const TWICE: &str = "the member has two rows";
const FOLD: &str = "the row is not the fold of the events before the fence";
const OUTSIDE: &str = "the row is under a home that is not on the map";
