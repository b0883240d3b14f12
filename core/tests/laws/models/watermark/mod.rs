//! Two workers on the stream shards of one post, without a lease: updates are delayed, given up on, and land late;
//! workers crash; watermarks of finished stream shards are pruned.
//!
//! Each worker runs the machine that ships. No record is counted twice, and once every stream shard is closed each is
//! counted.

mod tests;
mod worker;

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use tally_core::apply::RequestId;
use tally_core::counter::{Counter, Refusal, ShardTally, Update, contains};
use tally_core::ids::{CounterId, MemberKey, Ordinal, RowKey, Sequence, Shard, StreamShardId};
use tally_core::lineage::{Checkpoint, Lineage, Listed, Picture};
use tally_core::tally::{Record, RecordKind};
use tally_core::time::UnixMillis;
use tally_core::watermark::Watermarks;
use tally_core::weight::Weight;

use super::applying::Machines;
use super::item::Item;
use crate::explore::Model;
use crate::intern::{Interned, Number, of_update};
use worker::{Happening, Worker};

/// A rule that a mutant breaks: of the store, or of how a worker uses the machine.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// An update requires that none of its records is in the counter.
    Watermark,
    /// The next prefix starts when all of this one is answered: a mutant tells the machine of an answer before there is
    /// one.
    OneUnanswered,
    /// A watermark is dropped only for a floor that takes its place.
    FloorReplacesMark,
    /// The floor never moves back.
    FloorForward,
    /// An unknown outcome is handed to the machine as what it is: a mutant takes it for success.
    RepeatUnknown,
    /// The checkpoint moves when the machine asks for it: a mutant moves it to what was read.
    CheckpointBehind,
}

/// Which row keys the records are about.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    /// Each its own, so that each record's count is seen by itself.
    Own,
    /// All the same, so that stream shards hand it over to each other.
    Shared,
}

struct Streamers {
    /// How many records each stream shard has. The first is the parent of all others.
    lengths: &'static [u8],
    keys: Keys,
    timeouts: u8,
    /// Whether the parent is applied and closed from the start.
    parent_closed: bool,
    /// Whether a machine may be shown what is closed later than it is.
    late_pictures: bool,
    removed: Option<Rule>,
    /// By the set of closed stream shards.
    pictures: Vec<Arc<Picture>>,
    machines: Machines<(usize, Happening)>,
    counters: Interned<Item>,
    updates: Interned<Update>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    counter: Number,
    checkpoints: Vec<u8>,
    /// Which stream shards are closed, a bit each.
    closed: usize,
    workers: [Option<Worker>; 2],
    network: Vec<Letter>,
    timeouts: u8,
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
    Read { worker: usize, shard: usize, to: u8 },
    Cut { worker: usize },
    PresumeTaken { worker: usize },
    TimeOut { worker: usize },
    Crash { worker: usize },
    Stop { worker: usize },
    Take { worker: usize },
    Refuse { worker: usize },
    GhostLands { shard: Ordinal },
    GhostDies,
    Checkpoint { worker: usize },
    EndOfShard { worker: usize },
    Close { worker: usize },
    DropMark { shard: usize },
}

impl Streamers {
    fn new(lengths: &'static [u8], keys: Keys, timeouts: u8) -> Self {
        let pictures = (0..1 << lengths.len()).map(|closed| Arc::new(picture(lengths.len(), closed))).collect();
        let counters = Interned::new(|item: &Item| FixedState::default().hash_one(item));
        let updates = Interned::new(of_update);
        let machines = Machines::new();
        Self {
            lengths,
            keys,
            timeouts,
            parent_closed: false,
            late_pictures: false,
            removed: None,
            pictures,
            machines,
            counters,
            updates,
        }
    }

    fn with_late_pictures(self) -> Self {
        Self { late_pictures: true, ..self }
    }

    fn with_closed_parent(self) -> Self {
        Self { parent_closed: true, ..self }
    }

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Every record there is, as its stream shard and its place there.
    fn records(&self) -> impl Iterator<Item = (usize, u8)> {
        self.lengths.iter().enumerate().flat_map(|(shard, length)| (1..=*length).map(move |at| (shard, at)))
    }

    /// The shard of the post that a record is about.
    fn key(&self, shard: usize, at: u8) -> Shard {
        let index = if self.keys == Keys::Own { self.place(shard, at) } else { 0 };
        Shard::new(u16::try_from(index).expect("records are few")).expect("records are few")
    }

    /// What a record adds: no two records, and no two sets of them, add the same.
    fn weight(&self, shard: usize, at: u8) -> i64 {
        1 << self.place(shard, at)
    }

    fn place(&self, shard: usize, at: u8) -> usize {
        self.records().position(|record| record == (shard, at)).expect("the record exists")
    }

    fn record(&self, shard: usize, at: u8) -> Record {
        let counter = CounterId::likes("p".parse().expect("an id"));
        let key = RowKey { counter, shard: self.key(shard, at) };
        let member = MemberKey::new("\u{1}cell/views/0").expect("a cell");
        let after = Weight::new(self.weight(shard, at)).expect("records are few");
        let kind = RecordKind::Row { key, member, before: Weight::ABSENT, after, span: None, regions: None };
        Record { sequence: sequence(at), written: UnixMillis(0), kind }
    }

    /// A request reaches the counter, which takes it or refuses.
    fn land(&self, counter: &Item, update: &Update) -> Result<Item, Refusal> {
        let refusal = counter.refusal(update).filter(|refusal| match refusal {
            Refusal::Applied => self.obeys(Rule::Watermark),
            Refusal::Floor => self.obeys(Rule::FloorForward),
            Refusal::Feeder | Refusal::Ladder | Refusal::Total => true,
        });
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let mut update = update.clone();
        update.prune = update.prune.filter(|_| self.obeys(Rule::FloorReplacesMark));
        Ok(counter.after(&update))
    }

    fn arrive(&self, state: &State, letter: Letter, next: &mut Vec<(Step, State)>) {
        let (counter, update) = (self.counters.get(state.counter), self.updates.get(letter.update));
        let landed = self.land(&counter, &update);
        let taken = landed.is_ok();
        let counter = landed.map_or(state.counter, |after| self.counters.number(after));
        let landed = State { counter, ..state.clone() };
        let Some((at, id)) = letter.sender else {
            next.push((Step::GhostLands { shard: update.shard }, landed));
            next.push((Step::GhostDies, state.clone()));
            return;
        };
        let step = if taken { Step::Take { worker: at } } else { Step::Refuse { worker: at } };
        let happening = if taken { Happening::Taken(id, counter) } else { Happening::Refused(id, counter) };
        match state.workers[at] {
            Some(worker) => self.follows(step, &landed, at, worker, happening, next),
            None => next.push((step, landed)),
        }
    }

    /// The mutant's way to prune: a closed stream shard's watermark goes, and nothing takes its place.
    fn drop_marks(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let counter = self.counters.get(state.counter);
        let marks = counter.watermarks.marks();
        for shard in (0..self.lengths.len()).filter(|shard| state.closed >> shard & 1 == 1) {
            let mut left = marks.clone();
            if left.remove(&ordinal(shard)).is_some() {
                let mut dropped = (**counter).clone();
                dropped.watermarks = Watermarks::new(left, counter.watermarks.floor());
                let counter = self.counters.number(Item::new(dropped));
                next.push((Step::DropMark { shard }, State { counter, ..state.clone() }));
            }
        }
    }

    fn all_closed(&self, state: &State) -> bool {
        state.closed + 1 == self.pictures.len()
    }
}

impl State {
    /// The state with another worker at `at`. Two workers differ in nothing but their place, so states that differ only by
    /// a swap are one.
    fn with(mut self, at: usize, worker: Option<Worker>) -> Self {
        self.workers[at] = worker;
        if self.workers[0] > self.workers[1] {
            self.workers.swap(0, 1);
            for (sender, _) in self.network.iter_mut().filter_map(|letter| letter.sender.as_mut()) {
                *sender = 1 - *sender;
            }
        }
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

fn sequence(at: u8) -> Sequence {
    Sequence::from(u64::from(at))
}

fn ordinal(shard: usize) -> Ordinal {
    Ordinal(shard as u64 + 1)
}

fn index(ordinal: Ordinal) -> usize {
    usize::try_from(ordinal.0).expect("shards are few") - 1
}

fn name(shard: usize) -> StreamShardId {
    format!("shard-{shard}").as_str().into()
}

fn picture(shards: usize, closed: usize) -> Picture {
    let parent = |shard| (shard > 0).then(|| name(0));
    let checkpoint = |shard: usize| Checkpoint {
        id: name(shard),
        parent: parent(shard),
        ordinal: ordinal(shard),
        sequence: None,
        closed: closed >> shard & 1 == 1,
        at: UnixMillis(0),
    };
    let listed = |shard: usize| Listed { id: name(shard), parent: parent(shard), ended: true };
    let lineage = Lineage::new((0..shards).map(checkpoint), (0..shards).map(listed), None);
    Picture { closed_through: lineage.closed_through(), lineage, ..Picture::default() }
}

impl Model for Streamers {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let (mut counter, mut checkpoints) = (Counter::default(), vec![0; self.lengths.len()]);
        if self.parent_closed {
            checkpoints[0] = self.lengths[0];
            let rows = (1..=self.lengths[0]).map(|at| self.weight(0, at)).sum();
            let tally = ShardTally { rows, feeder: Some(ordinal(0)), ..ShardTally::default() };
            counter = Counter { likes: rows, shards: [(self.key(0, 1), tally)].into(), ..counter };
            counter.watermarks.advance(ordinal(0), sequence(self.lengths[0]));
        }
        vec![State {
            counter: self.counters.number(Item::new(counter)),
            checkpoints,
            closed: usize::from(self.parent_closed),
            workers: [None; 2],
            network: Vec::new(),
            timeouts: self.timeouts,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, worker) in state.workers.iter().enumerate() {
            match *worker {
                None => self.begin(state, at, next),
                Some(worker) => self.work(state, at, worker, next),
            }
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let letter = without.network.remove(at);
            self.arrive(&without, letter, next);
        }
        if !self.obeys(Rule::FloorReplacesMark) {
            self.drop_marks(state, next);
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let counter = self.counters.get(state.counter);
        let (mut all, mut contained) = ([0; 8], [0; 8]);
        for (shard, at) in self.records() {
            let key = usize::from(self.key(shard, at).index());
            let weight = self.weight(shard, at);
            all[key] += weight;
            contained[key] += weight * i64::from(contains(&counter, ordinal(shard), sequence(at)));
        }
        let mut rows = [0; 8];
        for (key, tally) in &counter.shards {
            rows[usize::from(key.index())] = tally.rows;
        }
        let any = |wrong: fn(i64, i64) -> bool, right: [i64; 8]| {
            rows.iter().zip(right).any(|(rows, right)| wrong(*rows, right))
        };
        if any(|rows, all| rows > all, all) {
            Some(TWICE.to_owned())
        } else if any(|rows, contained| rows < contained, contained) || self.all_closed(state) && rows != all {
            Some(LOST.to_owned())
        } else if counter.sum() != Ok(counter.likes) {
            Some("the total is not the sum".to_owned())
        } else {
            let suspect = self.keys == Keys::Shared && self.lengths.len() == 2 && !counter.is_sound();
            suspect.then(|| "a closed parent's row key raises suspicion".to_owned())
        }
    }

    fn is_goal(&self, state: &State) -> bool {
        self.all_closed(state) && state.network.is_empty() && state.workers == [None; 2]
    }
}

const TWICE: &str = "a record is counted twice";
const LOST: &str = "a record is lost";
