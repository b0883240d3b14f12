//! Workers that follow a stream whose shards split, are trimmed and vanish, by listings that lag or leave a shard out;
//! workers crash, and come back under another name.
//!
//! Every record is applied after its parent's, or lost under a gap that was recorded, and held behind, before anything
//! behind it is applied; numbers are given once, ancestors first; and every record is within reach.

mod steps;
mod store;
mod tests;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tally_core::ids::StreamShardId;
use tally_core::ports::{StreamInfo, Worker};
use tally_core::shards::{Behind, Request, Rules, Shards, Sharing, Wait};
use tally_core::time::{Now, UnixMillis};

use crate::explore::Model;

/// A rule that a mutant leaves out, by the way it uses the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A shard is read once its parent is closed: the machine is told of no parents.
    ParentsFirst,
    /// A shard that is gone is a loss to be recorded: the record is dropped.
    RecordVanished,
    /// A trim is a loss to be recorded: the record is dropped.
    RecordTrim,
    /// A stream first seen that may lack records is a loss to be recorded: the record is dropped.
    RecordFirstSight,
    /// A shard left out by listings is asked for by name: the answer is made up.
    ProbeByName,
    /// What lies behind a loss waits for the hold: the wait is over at once.
    Hold,
    /// Children have numbers before their parent is closed: the search for them ends at once.
    ChildrenNumbered,
    /// A shard is closed once all of it is applied: its end is reported one record early.
    AllApplied,
    /// A closed shard is remembered while the service may list it: a day has always passed.
    Memory,
    /// Ancestors are numbered first: the first number of each look is not given.
    AncestorsFirst,
    /// A lease that stands still is taken: its time never comes.
    StaleLeases,
}

/// The bounds of a run.
#[derive(Clone, Copy)]
struct World {
    /// The parent of each stream shard. The ones without a parent are there from the beginning, the others once their
    /// parent has split.
    parents: &'static [Option<usize>],
    /// How many records each shard has.
    records: u8,
    workers: usize,
    /// Whether they share the work by leases.
    leases: bool,
    /// How often records that are there are trimmed.
    trims: u8,
    /// How often a worker crashes.
    crashes: u8,
    /// How often a listing leaves out a shard, or all that have ended, or all but the first.
    lies: u8,
    /// Whether a day may pass, after which closed shards are forgotten.
    days: u8,
    /// Whether the stream had lost a record before it was first seen.
    late: bool,
    /// Whether all that a look reads is read at one moment.
    coarse: bool,
    removed: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    shards: Vec<Real>,
    entries: Vec<Option<Entry>>,
    /// The next number; 0 before the first was given.
    next: u8,
    floor: u8,
    /// Shards that were ever numbered, and ever closed, a bit each.
    numbered: u8,
    closed: u8,
    gap: bool,
    workers: Vec<Process>,
    trims: u8,
    crashes: u8,
    lies: u8,
    days: u8,
    broken: Option<&'static str>,
}

/// A stream shard as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Real {
    exists: bool,
    ended: bool,
    /// The service has forgotten it.
    gone: bool,
    records: u8,
    /// How many of them, from the first, can be read no more.
    trimmed: u8,
    /// How many were trimmed before the stream was first seen.
    unseen: u8,
    /// Records that are applied, and those whose loss is recorded, a bit each.
    applied: u8,
    covered: u8,
}

/// A checkpoint as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    ordinal: u8,
    position: u8,
    closed: bool,
    /// It was closed after the day had passed.
    closed_late: bool,
    lease: Option<(Worker, bool)>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    name: Worker,
    machine: Shards,
    waits: BTreeSet<Wait>,
    asked: Option<Request>,
    records: BTreeSet<Behind>,
    losses: BTreeMap<Behind, Kind>,
    /// Holds that have lasted as long as they should.
    held: BTreeSet<Behind>,
    readers: BTreeMap<usize, Reader>,
    /// A mutant has dropped a number in this look.
    dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    FirstSight,
    Vanished(usize),
    Trimmed(usize),
}

/// A reader with its applier: how many records it has read, and whether it waits behind a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reader {
    position: u8,
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Split(usize),
    Trim(usize),
    DayPasses,
    Crash { worker: usize },
    Look { worker: usize, listing: bool },
    Woke { worker: usize, wait: Kindly },
    Listed { worker: usize, leaving_out: u8 },
    Read { worker: usize },
    Done { worker: usize },
    Recorded { worker: usize },
    ReaderMoves { worker: usize, shard: usize },
}

/// Which wait was over, for the printed trace.
#[derive(Clone, Copy, Debug)]
enum Kindly {
    Children,
    NoChildren,
    Hold,
    Stale,
}

fn name(shard: usize) -> StreamShardId {
    ["s0", "s1", "s2", "s3"][shard].into()
}

fn index(shard: &StreamShardId) -> usize {
    shard.as_str()[1..].parse().expect("the model names its shards so")
}

fn bit(n: usize) -> u8 {
    1 << n
}

fn bits(n: u8) -> u8 {
    bit(n.into()) - 1
}

const DAY: u64 = 31 * 3_600_000;
/// Late enough for a stream as old as the epoch to have lost its first records.
const BEGAN: u64 = 100 * 3_600_000;

impl World {
    const ONE: Self = Self {
        parents: &[None],
        records: 1,
        workers: 1,
        leases: false,
        trims: 0,
        crashes: 0,
        lies: 0,
        days: 0,
        late: false,
        coarse: false,
        removed: None,
    };

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn is_removed(&self, rule: Rule) -> bool {
        self.removed == Some(rule)
    }

    fn process(&self, name: String) -> Process {
        let name = Worker(name);
        let minute = Duration::from_secs(60);
        let sharing = self.leases.then(|| Sharing { me: name.clone(), stale: minute });
        let rules = Rules { sharing, look: minute, listing: minute, unread: minute };
        Process {
            name,
            machine: Shards::new(rules, self.info()),
            waits: [Wait::Look].into(),
            asked: None,
            records: BTreeSet::new(),
            losses: BTreeMap::new(),
            held: BTreeSet::new(),
            readers: BTreeMap::new(),
            dropped: false,
        }
    }

    fn children(&self, parent: usize) -> impl Iterator<Item = usize> {
        let of = move |(shard, of): (usize, &Option<usize>)| (*of == Some(parent)).then_some(shard);
        self.parents.iter().enumerate().filter_map(of)
    }

    fn now(&self, state: &State, at: Duration) -> Now {
        let passed = if self.days > state.days || self.is_removed(Rule::Memory) { DAY } else { 0 };
        Now { at, wall: UnixMillis(BEGAN + passed) }
    }

    fn info(&self) -> StreamInfo {
        let created = if self.late { UnixMillis(0) } else { UnixMillis(BEGAN) };
        StreamInfo { label: "l".into(), created, table_created: UnixMillis(BEGAN) }
    }
}

impl Model for World {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let real = |parent: &Option<usize>| {
            let unseen = u8::from(self.late && parent.is_none());
            let records = self.records + unseen;
            Real { exists: parent.is_none(), records, trimmed: unseen, unseen, ..Real::default() }
        };
        vec![State {
            shards: self.parents.iter().map(real).collect(),
            entries: vec![None; self.parents.len()],
            next: 0,
            floor: 0,
            numbered: 0,
            closed: 0,
            gap: false,
            workers: (0..self.workers).map(|n| self.process(format!("{n}"))).collect(),
            trims: self.trims,
            crashes: self.crashes,
            lies: self.lies,
            days: self.days,
            broken: None,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        self.stream_steps(state, next);
        for worker in 0..state.workers.len() {
            self.worker_steps(state, worker, next);
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        if let Some(broken) = state.broken {
            return Some(broken.to_owned());
        }
        for (n, real) in state.shards.iter().enumerate() {
            let entry = state.entries[n].as_ref();
            let is_closed = state.closed & bit(n) != 0;
            if is_closed && !real.ended {
                return Some(LIVING.to_owned());
            }
            let passed = if is_closed { real.records } else { entry.map_or(0, |entry| entry.position) };
            let settled = real.applied | real.covered & bits(real.trimmed);
            if bits(passed) & !settled != 0 {
                return Some(SKIPPED.to_owned());
            }
            if entry.is_some_and(|entry| entry.ordinal <= state.floor && !entry.closed) {
                return Some(FLOOR.to_owned());
            }
        }
        None
    }

    fn is_goal(&self, state: &State) -> bool {
        let is_read = |n: usize| state.workers.iter().any(|process| process.readers.contains_key(&n));
        let is_done = |(n, real): (usize, &Real)| {
            let settled = real.applied | bits(real.trimmed);
            match (real.exists, real.ended) {
                (false, _) => false,
                (true, true) => state.closed & bit(n) != 0,
                (true, false) => settled & bits(real.records) == bits(real.records) && is_read(n),
            }
        };
        state.shards.iter().enumerate().all(is_done)
    }
}

const PARENT: &str = "a child is read before its parent is closed";
const SKIPPED: &str = "a record is skipped without a gap";
const LIVING: &str = "a shard is closed that goes on";
const HASTE: &str = "a worker goes on before the hold is over";
const CHILDLESS: &str = "a shard is closed before its children have numbers";
const TWICE: &str = "a shard is numbered twice";
const ORDER: &str = "a child is numbered before its parent";
const FLOOR: &str = "the floor is above an open shard";
