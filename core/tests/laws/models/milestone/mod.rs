//! Workers on the stream shards of one counter while its total passes thresholds, up and down: updates are lost, given up
//! on and land late; workers crash; corrections move the total by themselves.
//!
//! Each worker runs the machine that ships. In every state the records are the thresholds that were reached, each with what
//! reached it first in the order in which updates landed: a record of the stream, or none where a correction did.

mod tests;
mod worker;

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

use tally_core::apply::RequestId;
use tally_core::counter::{Counter, Refusal, Update, contains};
use tally_core::ids::{CounterId, MemberKey, Ordinal, RowKey, Sequence, Shard};
use tally_core::milestone::{Bound, Guard, Ladder, Milestone, Winner};
use tally_core::tally::{Record, RecordKind};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;

use super::applying::Machines;
use crate::explore::Model;
use crate::intern::{Interned, Number, of_update};
use worker::{Happening, Worker};

/// A rule that a mutant breaks: of the store, or of how a worker uses the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// An update that reaches no threshold from where the counter was seen requires that it does not from where it stands.
    Below,
    /// The same of one whose records never lift the total above where it began.
    BelowWithoutRise,
    /// The same of one none of whose records adds.
    BelowWhereAllFall,
    /// An update that reaches a threshold requires the version that it was made for.
    Version,
    /// The record of a threshold is written with the update that reaches it.
    RecordWithUpdate,
    /// Each of several thresholds has a record.
    EachThreshold,
    /// A threshold that is found reached is recorded, although no record is named.
    Unwitnessed,
    /// What is recorded is noted in the counter.
    Noted,
    /// A record is put where there is none.
    IfAbsent,
    /// A counter for which a ladder is in force refuses who does not know it.
    InForce,
}

/// Who reached a threshold first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum First {
    Unwitnessed,
    /// This record of this stream shard.
    Record(usize, u8),
}

struct Milestones {
    /// What each record of each stream shard adds.
    deltas: &'static [&'static [i64]],
    /// The stream shard that each worker reads.
    workers: &'static [usize],
    ladder: Ladder,
    timeouts: u8,
    corrections: u8,
    /// Whether the last worker does not know the ladder when it begins.
    unaware: bool,
    removed: Vec<Rule>,
    machines: Machines<(usize, Happening)>,
    counters: Interned<Counter>,
    updates: Interned<Update>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    counter: Number,
    /// The records that stand, and those that are right, by threshold.
    records: Vec<(i64, First)>,
    right: Vec<(i64, First)>,
    /// Whether an update of a worker that knows the ladder was taken.
    in_force: bool,
    workers: Vec<Worker>,
    network: Vec<Letter>,
    timeouts: u8,
    corrections: u8,
}

/// An update under way. A ghost has no sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letter {
    update: Number,
    sender: Option<(usize, RequestId)>,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Send { worker: usize, to: u8 },
    TimeOut { worker: usize },
    Crash { worker: usize },
    Take { worker: usize },
    Refuse { worker: usize },
    GhostLands,
    GhostDies,
    Correct { by: i64 },
}

/// What became of an update.
enum Landed {
    Taken(State),
    Refused,
    Standing(Vec<i64>),
}

impl Milestones {
    fn new(deltas: &'static [&'static [i64]], workers: &'static [usize], ladder: &str) -> Self {
        let updates = Interned::new(of_update);
        Self {
            deltas,
            workers,
            ladder: ladder.parse().expect("a ladder"),
            timeouts: 0,
            corrections: 0,
            unaware: false,
            removed: Vec::new(),
            machines: Machines::new(),
            counters: Interned::new(|counter: &Counter| FixedState::default().hash_one(counter)),
            updates,
        }
    }

    fn with_timeouts(self, timeouts: u8) -> Self {
        Self { timeouts, ..self }
    }

    fn with_corrections(self, corrections: u8) -> Self {
        Self { corrections, ..self }
    }

    fn with_an_unaware_worker(self) -> Self {
        Self { unaware: true, ..self }
    }

    fn without(mut self, rule: Rule) -> Self {
        self.removed.push(rule);
        self
    }

    fn obeys(&self, rule: Rule) -> bool {
        !self.removed.contains(&rule)
    }

    fn knows(&self, worker: usize) -> Ladder {
        let unaware = self.unaware && worker + 1 == self.workers.len();
        if unaware { Ladder::default() } else { self.ladder }
    }

    fn length(&self, shard: usize) -> u8 {
        u8::try_from(self.deltas[shard].len()).expect("records are few")
    }

    fn record(&self, shard: usize, at: u8) -> Record {
        let key = RowKey { counter: id(), shard: shard_of(shard) };
        let member = MemberKey::new(&format!("{shard}-{at}")).expect("an id");
        let delta = self.deltas[shard][usize::from(at) - 1];
        let weight = |n: i64| Weight::new(n.max(0)).expect("a model counts in single digits");
        let kind =
            RecordKind::Row { key, member, before: weight(-delta), after: weight(delta), span: None, regions: None };
        Record { sequence: sequence(at), written: UnixMillis(0), kind }
    }

    /// The records of an update: their stream shard, and what each adds.
    fn records_of(&self, update: &Update) -> (usize, impl Iterator<Item = (u8, i64)> + Clone) {
        let shard = index(update.shard);
        let deltas = self.deltas[shard];
        let (first, last) = (place(update.first), place(update.last));
        (shard, (first..=last).map(move |at| (at, deltas[usize::from(at) - 1])))
    }

    /// Whether the store looks at the bound of `update`.
    fn looks_at(&self, update: &Update, bound: &Bound) -> bool {
        let (_, records) = self.records_of(update);
        match bound {
            Bound::Free => true,
            Bound::Below(_) => {
                let mut total = 0;
                let rises = records.clone().any(|(_, delta)| {
                    total += delta;
                    total > 0
                });
                let adds = records.clone().any(|(_, delta)| delta > 0);
                self.obeys(Rule::Below)
                    && (rises || self.obeys(Rule::BelowWithoutRise))
                    && (adds || self.obeys(Rule::BelowWhereAllFall))
            }
            Bound::Crossing { .. } => self.obeys(Rule::Version),
        }
    }

    /// An update reaches the counter.
    fn land(&self, state: &State, update: &Update) -> Landed {
        let counter = self.counters.get(state.counter);
        let guard = update.guard.as_ref().expect("every record changes the total");
        let refused = counter.refusal(update).filter(|refusal| match refusal {
            Refusal::Ladder => self.obeys(Rule::InForce),
            Refusal::Total => self.looks_at(update, &guard.bound),
            Refusal::Applied | Refusal::Floor | Refusal::Feeder => true,
        });
        if refused.is_some() {
            return Landed::Refused;
        }
        let written = self.written(guard);
        let standing = |n: &i64| state.records.iter().any(|(known, _)| known == n);
        let standing: Vec<i64> = written.iter().map(|(n, _)| *n).filter(standing).collect();
        if !standing.is_empty() && self.obeys(Rule::IfAbsent) {
            return Landed::Standing(standing);
        }
        let mut after = counter.as_ref().clone().updated(update).expect("a model counts in single digits");
        let only_found = !guard.reached().is_empty() && written.is_empty() && !self.obeys(Rule::Unwitnessed);
        if !self.obeys(Rule::Noted) || only_found {
            after.recorded = counter.recorded;
        }
        let mut landed = State { counter: self.counters.number(after), ..state.clone() };
        landed.in_force |= guard.knows > 0;
        self.decide(&mut landed, counter.likes, update);
        if self.obeys(Rule::RecordWithUpdate) {
            write(&mut landed, &written);
        }
        Landed::Taken(landed)
    }

    /// What the store writes beside an update under this guard.
    fn written(&self, guard: &Guard) -> Vec<(i64, First)> {
        let mut written: Vec<(i64, First)> = guard.reached().iter().map(first).collect();
        if !self.obeys(Rule::EachThreshold) && written.len() > 1 {
            written.drain(..written.len() - 1);
        }
        if !self.obeys(Rule::Unwitnessed) {
            written.retain(|(_, first)| *first != First::Unwitnessed);
        }
        written
    }

    /// The law: what an update reaches from where it found the total, and what it found reached.
    fn decide(&self, state: &mut State, mut total: i64, update: &Update) {
        if !state.in_force {
            return;
        }
        let (shard, records) = self.records_of(update);
        self.settle(state, total, First::Unwitnessed);
        for (at, delta) in records {
            total += delta;
            self.settle(state, total, First::Record(shard, at));
        }
    }

    /// Each threshold up to `total` that is not settled yet was reached first by this.
    fn settle(&self, state: &mut State, total: i64, by: First) {
        for n in self.ladder.crossed(None, total).thresholds {
            if !state.right.iter().any(|(known, _)| *known == n) {
                state.right.push((n, by));
                state.right.sort_unstable();
            }
        }
    }

    fn arrive(&self, state: &State, letter: Letter, next: &mut Vec<(Step, State)>) {
        let update = self.updates.get(letter.update);
        let landed = self.land(state, &update);
        let Some((at, id)) = letter.sender else {
            if let Landed::Taken(landed) = landed {
                next.push((Step::GhostLands, landed));
            }
            next.push((Step::GhostDies, state.clone()));
            return;
        };
        let worker = state.workers[at];
        match landed {
            Landed::Taken(mut landed) => {
                if !self.obeys(Rule::RecordWithUpdate) {
                    next.push((Step::Crash { worker: at }, landed.clone().with(at, self.start(at))));
                    write(&mut landed, &self.written(update.guard.as_ref().expect("it was taken")));
                }
                let happening = Happening::Taken(id, landed.counter);
                next.push((Step::Take { worker: at }, self.after(landed, at, worker, happening)));
            }
            Landed::Refused => {
                let happening = Happening::Refused(id, state.counter);
                next.push((Step::Refuse { worker: at }, self.after(state.clone(), at, worker, happening)));
            }
            Landed::Standing(thresholds) => {
                let happening = Happening::Standing(id, thresholds.iter().fold(0, |set, n| set | 1 << n));
                next.push((Step::Refuse { worker: at }, self.after(state.clone(), at, worker, happening)));
            }
        }
    }

    /// A verdict adds to the total.
    fn correct(&self, state: &State, by: i64) -> State {
        let mut counter = (*self.counters.get(state.counter)).clone();
        counter.likes += by;
        counter.version += 1;
        counter.shards.entry(shard_of(0)).or_default().rows += by;
        let corrections = state.corrections - 1;
        State { counter: self.counters.number(counter), corrections, ..state.clone() }
    }
}

impl State {
    fn with(mut self, at: usize, worker: Worker) -> Self {
        self.workers[at] = worker;
        self.network.sort_unstable();
        self
    }

    /// The worker's requests become ghosts.
    fn abandoned_by(&self, at: usize) -> Self {
        let mut state = self.clone();
        for letter in &mut state.network {
            letter.sender = letter.sender.filter(|(sender, _)| *sender != at);
        }
        state.timeouts -= 1;
        state
    }
}

/// Writes records, over those that stand: where that must not be, it was refused before.
fn write(state: &mut State, written: &[(i64, First)]) {
    for (n, first) in written {
        state.records.retain(|(known, _)| known != n);
        state.records.push((*n, *first));
    }
    state.records.sort_unstable();
}

fn first(milestone: &Milestone) -> (i64, First) {
    let of_member = |member: &MemberKey| {
        let (shard, at) = member.as_str().split_once('-')?;
        Some(First::Record(shard.parse().ok()?, at.parse().ok()?))
    };
    let first = match &milestone.by {
        Winner::Member(member) => of_member(member).expect("the members are the records"),
        Winner::Unwitnessed => First::Unwitnessed,
        Winner::Events(_) => panic!("a set has no events"),
    };
    (milestone.n, first)
}

fn id() -> CounterId {
    CounterId::likes("p".parse().expect("an id"))
}

fn shard_of(shard: usize) -> Shard {
    Shard::new(u16::try_from(shard).expect("shards are few")).expect("shards are few")
}

fn sequence(at: u8) -> Sequence {
    Sequence::from(u64::from(at))
}

fn place(sequence: Sequence) -> u8 {
    sequence.as_str().parse().expect("sequences are small")
}

fn ordinal(shard: usize) -> Ordinal {
    Ordinal(shard as u64 + 1)
}

fn index(ordinal: Ordinal) -> usize {
    usize::try_from(ordinal.0).expect("shards are few") - 1
}

impl Model for Milestones {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        vec![State {
            counter: self.counters.number(Counter::default()),
            records: Vec::new(),
            right: Vec::new(),
            in_force: false,
            workers: (0..self.workers.len()).map(|at| self.start(at)).collect(),
            network: Vec::new(),
            timeouts: self.timeouts,
            corrections: self.corrections,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, worker) in state.workers.iter().enumerate() {
            self.work(state, at, *worker, next);
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let letter = without.network.remove(at);
            self.arrive(&without, letter, next);
        }
        if state.corrections > 0 {
            next.extend([-1, 1].map(|by| (Step::Correct { by }, self.correct(state, by))));
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let State { records, right, .. } = state;
        (records != right).then(|| format!("recorded is {records:?}, right is {right:?}"))
    }

    fn is_goal(&self, state: &State) -> bool {
        let counter = self.counters.get(state.counter);
        (0..self.deltas.len()).all(|shard| contains(&counter, ordinal(shard), sequence(self.length(shard))))
    }
}
