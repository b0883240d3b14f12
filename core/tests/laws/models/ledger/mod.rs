//! The ledger of changes of one stream shard: two processes feed it without a lease, crash, and send messages that are given
//! up on and land late; a reader counts what is in the log.
//!
//! Each process runs the machine that ships, the log holds the bytes it wrote, and the reader counts by the filter that ships.
//! The log read so equals the stream: each record counts once, all of it, before the stream shard counts as fed beyond it.

mod process;
mod reader;
mod tests;

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::FixedState;
use tally_core::Map;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, MemberKey, PostId, Region, RowKey, Sequence, Shard};
use tally_core::ledger::{Changes, Effect, Outgoing, RequestId};
use tally_core::tally::{Record, RecordKind, Regions};
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;

use crate::explore::Model;
use crate::intern::{Interned, Number};
use process::{Happening, Process, Store};
use reader::Log;

const PARTITIONS: u32 = 2;

/// A rule that a mutant breaks: of a process, of the store or of the reader.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// T1: the stream shard is fed up to what was acknowledged: a mutant stores what was read.
    FedBehindAnswers,
    /// T2: a message is sent once the one before it in its partition is acknowledged: a mutant keeps two under way, sends each
    /// again until it is taken, and stores nothing meanwhile.
    OneUnanswered,
    /// T3: the reader passes over what lies before a record it has counted.
    Filter,
    /// T4: it does so record by record: a mutant judges a message by its last record.
    FilterByRecord,
    /// T12: both sides of a change are one entry: a mutant writes two, which the reader judges each by itself.
    OneEntry,
    /// T13: a process that does not feed does not say how far the stream shard is fed.
    FedByFeeding,
    /// A lapse is stored before anything behind it is sent: a mutant tells the machine that it is, and does not.
    LapseStored,
}

struct Ledger {
    /// The partition of each record's subject.
    records: &'static [u32],
    timeouts: u8,
    lapses: u8,
    removed: Option<Rule>,
    subjects: Vec<PostId>,
    machines: Interned<Changes>,
    known: RefCell<Map<(Number, Happening), Stepped>>,
    messages: Interned<Outgoing>,
    logs: Interned<Log>,
}

/// A machine after a step, and what it wants done.
type Stepped = (Number, Rc<[Effect]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    log: Number,
    /// How far the stream shard is fed, as it is stored, and whether all of it is.
    fed: u8,
    end: bool,
    /// The records of stored lapses, a bit each.
    lapsed: u16,
    processes: [Option<Process>; 2],
    network: Vec<Letter>,
    timeouts: u8,
    lapses: u8,
}

/// A message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letter {
    message: Number,
    sender: Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sender {
    /// A ghost has none.
    Gone,
    Waits(usize, RequestId),
    /// The mutant that keeps several under way sends it again by itself.
    Insists(usize),
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Read { process: usize, to: u8 },
    EndOfShard { process: usize },
    Lands { letter: Letter },
    Dies,
    TimeOut { process: usize },
    GoOnUnanswered { process: usize },
    GiveUp { process: usize },
    Store { process: usize, store: Store },
    FedUnfed { to: u8 },
    Crash { process: usize },
}

impl Ledger {
    fn new(records: &'static [u32], timeouts: u8) -> Self {
        let subject = |partition| {
            let mut names = (0..).map(|n: u32| format!("p{n}"));
            let name = names.find(|name| partition_of(name.as_bytes(), PARTITIONS) == partition);
            PostId::new(&name.expect("some name is there")).expect("an id")
        };
        Self {
            records,
            timeouts,
            lapses: 0,
            removed: None,
            subjects: (0..PARTITIONS).map(subject).collect(),
            machines: Interned::new(|machine| FixedState::default().hash_one(format!("{machine:?}"))),
            known: RefCell::default(),
            messages: Interned::new(|message| FixedState::default().hash_one(message)),
            logs: Interned::new(|log| FixedState::default().hash_one(log)),
        }
    }

    fn giving_up(self, lapses: u8) -> Self {
        Self { lapses, ..self }
    }

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn last(&self) -> u8 {
        u8::try_from(self.records.len()).expect("records are few")
    }

    /// Every second record is a like again from another region: one record, taken off one and put on another.
    fn record(&self, at: u8) -> Record {
        let partition = self.records[usize::from(at) - 1] as usize;
        let key =
            RowKey { counter: CounterId::likes(self.subjects[partition].clone()), shard: Shard::new(0).expect("0") };
        let (before, regions) = if at.is_multiple_of(2) {
            let regions = Regions { before: Region::new("a"), after: Region::new("b") };
            (Weight::ONE, Some(Box::new(regions)))
        } else {
            (Weight::ABSENT, None)
        };
        let member = MemberKey::new("u").expect("an id");
        let kind = RecordKind::Row { key, member, before, after: Weight::ONE, span: None, regions };
        Record { sequence: sequence(at), written: UnixMillis(u64::from(at) * 1000), kind }
    }

    fn lands(&self, state: &State, letter: Letter, next: &mut Vec<(Step, State)>) {
        let log = self.read(&self.logs.get(state.log), &self.messages.get(letter.message));
        let landed = State { log: self.logs.number(log), ..state.clone() };
        match letter.sender {
            Sender::Waits(at, id) => {
                self.follows(Step::Lands { letter }, &landed, at, Happening::Sent(id), next);
            }
            Sender::Gone => {
                next.push((Step::Lands { letter }, landed));
                next.push((Step::Dies, state.clone()));
            }
            Sender::Insists(_) => next.push((Step::Lands { letter }, landed)),
        }
    }
}

impl State {
    /// Two processes differ in nothing but their place, so states that differ only by a swap are one.
    fn sorted(mut self) -> Self {
        if self.processes[0] > self.processes[1] {
            self.processes.swap(0, 1);
            for letter in &mut self.network {
                if let Sender::Waits(at, _) | Sender::Insists(at) = &mut letter.sender {
                    *at = 1 - *at;
                }
            }
        }
        self.network.sort_unstable();
        self
    }
}

fn sequence(at: u8) -> Sequence {
    Sequence::from(u64::from(at))
}

fn place(sequence: Sequence) -> u8 {
    sequence.as_str().parse().expect("sequences are small")
}

impl Model for Ledger {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        vec![State {
            log: self.logs.number(Log::default()),
            fed: 0,
            end: false,
            lapsed: 0,
            processes: [None; 2],
            network: Vec::new(),
            timeouts: self.timeouts,
            lapses: self.lapses,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, process) in state.processes.iter().enumerate() {
            match process {
                None => self.begin(state, at, next),
                Some(process) => self.work(state, at, *process, next),
            }
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let letter = without.network.remove(at);
            self.lands(&without, letter, next);
        }
        if !self.obeys(Rule::FedByFeeding) {
            for to in state.fed + 1..=self.last() {
                next.push((Step::FedUnfed { to }, State { fed: to, ..state.clone() }));
            }
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let log = self.logs.get(state.log);
        for at in 1..=self.last() {
            let partition = self.records[usize::from(at) - 1];
            let counted = log.counted(at);
            let is_passed = log.mark(partition) >= Some(sequence(at));
            let is_fed = state.fed >= at || state.end;
            if counted.iter().any(|times| *times > 1) {
                return Some(TWICE.to_owned());
            }
            if counted != [1, 1] && (is_fed || is_passed) && state.lapsed >> at & 1 == 0 {
                return Some(LOST.to_owned());
            }
        }
        None
    }

    fn is_goal(&self, state: &State) -> bool {
        state.end && state.network.is_empty() && state.processes == [None; 2]
    }
}

const TWICE: &str = "a record counts twice";
const LOST: &str = "a record is lost";
