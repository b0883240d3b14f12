//! A model of the relay: two processes copy one stream shard into two partitions of the log `changes` without a lease.
//! They crash, and send messages that are given up and arrive late. The log may lose an acknowledged message, and
//! records may be trimmed before they are read. In some worlds the stream shard ends and has a child.
//!
//! Each process runs the production state machine, the log contains the bytes that it wrote, and a reader of each
//! partition runs the production filter. The log as it is read equals the stream: each record is accepted once and in
//! order, or the reader finds a hole. What is stored as fed is in every partition, and no standing claims a time from
//! which a record is missing.

mod log;
mod process;
mod tests;

use std::rc::Rc;

use tally_core::changes::{Body, DeploymentId, Entry, Message, Opened, Opening, partition_of};
use tally_core::ids::{RowKey, Shard, StreamShard};
use tally_core::relay::{Fed, Relay};

use super::{likes, number, position, time, weighed};
use crate::explore::{Model, Step};
use crate::intern::{Interned, Memo, Number};
use log::{Log, Reader};
use process::{Happening, Process, Wanted};

const PARTITIONS: u32 = 2;

/// A rule that a mutant breaks: of a process, of its runner, of the store or of a reader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A message is sent after the previous one of its partition is acknowledged: a mutant keeps two under way,
    /// retries each until it arrives, and stores nothing meanwhile.
    OneUnderWay,
    /// What is stored as fed is in every partition: a mutant stores what was read.
    FedBehindAnswers,
    /// The first section after a take-over links back to the stored position: a mutant's to nothing.
    LinkAtTakeOver,
    /// A reader compares back-links with what it has accepted.
    LinksCompared,
    /// The closing of a stream shard comes after all of its entries: a mutant sends it as soon as the end was read.
    ClosingBehindEntries,
    /// A time is stated after the records before it are passed on: a mutant states it first.
    TimeBehindRecords,
    /// The last time of a stream shard is that of a request that found it open: a mutant states that of the one that
    /// found its end.
    TimeWhileOpen,
    /// A process that found a loss passes on nothing after it until the announcement is in every partition.
    AnnouncedFirst,
    /// An answer to a message from before the machine dropped everything is ignored.
    AnswersDropped,
    /// The announcement of a lost part advances the filters of the readers.
    AnnouncementRaises,
    /// A stream shard that an announcement does not name may have begun since: a mutant ends it.
    UnnamedStay,
}

#[derive(Default)]
struct Relays {
    /// The partition of each record's subject, by stream shard: one that stays open, or one that ends and its child.
    stream: &'static [&'static [u32]],
    timeouts: u8,
    /// How many messages the log may lose.
    losing: u8,
    /// A record that may be trimmed before it is read.
    trimmed: Option<u8>,
    /// How often a process may be asked to leave. It may begin again before it has left.
    leaves: u8,
    /// How often a second may pass while messages of a process are under way.
    busy: u8,
    /// How often a reader's position may leave the log.
    jumps: u8,
    removed: Option<Rule>,
    subjects: Vec<RowKey>,
    machines: Interned<Relay>,
    known: Memo<(Number, Happening), Stepped>,
    messages: Interned<(u32, Message)>,
    logs: Interned<Log>,
    /// A log with another message, or after losing it.
    grown: Memo<(Number, Number, bool), Number>,
}

/// A state machine after a step, and its effects.
type Stepped = (Number, Rc<[Wanted]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    log: Number,
    /// The stored position of each stream shard, and whether the first one is stored as closed.
    fed: [Reached; 2],
    closed: bool,
    processes: [Option<Process>; 2],
    network: Vec<Letter>,
    timeouts: u8,
    losing: u8,
    leaves: u8,
    busy: u8,
    jumps: u8,
    trimmed: bool,
}

/// A position in a stream shard as the number of its last record, and a time in seconds: record `n` is written at `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Reached {
    to: u8,
    at: u8,
}

/// A message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Letter {
    message: Number,
    sender: Sender,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sender {
    /// The sender has ended.
    Gone,
    Waits(usize),
    /// The mutant that keeps two under way retries it by itself.
    Insists(usize),
}

impl Relays {
    fn new(stream: &'static [&'static [u32]], timeouts: u8) -> Self {
        let subject = |partition| {
            let mut keys = (0..).map(|n| likes(&format!("p{n}"), Shard::FIRST));
            keys.find(|key| partition_of(key, PARTITIONS) == partition).expect("some subject is there")
        };
        Self { stream, timeouts, subjects: (0..PARTITIONS).map(subject).collect(), ..Self::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Returns the first record of a stream shard.
    fn first(&self, shard: u8) -> u8 {
        let before = self.stream[..usize::from(shard)].iter().map(|records| records.len());
        u8::try_from(before.sum::<usize>()).expect("records are few") + 1
    }

    /// Returns the last record of a stream shard.
    fn last(&self, shard: u8) -> u8 {
        self.first(shard + 1) - 1
    }

    /// Returns whether the first stream shard ends.
    fn ends(&self) -> bool {
        self.stream.len() > 1
    }

    /// Returns the records of a partition, each with its stream shard.
    fn records(&self, partition: usize) -> impl Iterator<Item = (u8, u8)> {
        let records = (0u8..).zip(self.stream).flat_map(|(shard, records)| records.iter().map(move |of| (shard, *of)));
        (1u8..).zip(records).filter(move |(_, (_, of))| *of as usize == partition).map(|(at, (shard, _))| (at, shard))
    }

    fn entry(&self, at: u8) -> Entry {
        let partition = self.stream.iter().copied().flatten().nth(usize::from(at) - 1).expect("a record");
        Entry { second: at.into(), ..weighed(&self.subjects[*partition as usize], "u", [0, 1], at) }
    }

    /// Returns whether a record that a reader lacks is in a hole that it has found, or in a part that was announced as
    /// lost.
    fn is_known_lost(&self, reader: &Reader, at: u8, shard: u8) -> bool {
        let is_passed = reader.reached(shard).map_or(shard == 0, |reached| at <= reached);
        reader.hole && is_passed || reader.filter.loss().is_some() && self.trimmed == Some(at)
    }

    /// Announces all open stream shards again if a reader does not know all of them.
    fn announce_again(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let shard = u8::from(state.closed);
        let Fed { to, at } = state.fed[usize::from(shard)].into();
        let opening = Opening { shard: stream_shard(shard), at: to, fed: at };
        let ended = if state.closed { vec![stream_shard(0)] } else { Vec::new() };
        let message = Message { read: time(0), body: Body::Opened(Opened { shards: vec![opening], ended }) };
        for (partition, reader) in (0..).zip(&self.logs.get(state.log).0) {
            let message = self.messages.number((partition, message.clone()));
            let letter = Letter { message, sender: Sender::Gone };
            if reader.as_of().is_none() && reader.hole && !state.network.contains(&letter) {
                let mut after = state.clone();
                after.network.push(letter);
                next.push((Step("announces again", 0), after.sorted()));
            }
        }
    }

    fn lands(&self, state: &State, letter: Letter, next: &mut Vec<(Step, State)>) {
        let landed = State { log: self.appended(state.log, letter.message, false), ..state.clone() };
        let partition = self.messages.get(letter.message).0;
        match letter.sender {
            Sender::Waits(at) => {
                self.follows(Step("lands", 0), landed, at, Happening::Sent(partition, Ok(())), next);
                if state.losing > 0 {
                    let log = self.appended(state.log, letter.message, true);
                    let lost = State { log, losing: state.losing - 1, ..state.clone() };
                    self.follows(Step("is lost", 0), lost, at, Happening::Sent(partition, Ok(())), next);
                }
            }
            Sender::Gone => {
                next.push((Step("lands", 0), landed));
                next.push((Step("never arrives", 0), state.clone()));
            }
            Sender::Insists(_) => next.push((Step("lands", 0), landed)),
        }
    }
}

impl State {
    /// Processes are interchangeable, so states that differ only by a swap are one.
    fn sorted(mut self) -> Self {
        if self.processes[0] > self.processes[1] {
            self.processes.swap(0, 1);
            for letter in &mut self.network {
                if let Sender::Waits(at) | Sender::Insists(at) = &mut letter.sender {
                    *at = 1 - *at;
                }
            }
        }
        self.network.sort_unstable();
        self
    }
}

impl Reached {
    fn later(self, other: Self) -> Self {
        Self { to: self.to.max(other.to), at: self.at.max(other.at) }
    }
}

impl From<Fed> for Reached {
    fn from(fed: Fed) -> Self {
        let at = u8::try_from(fed.at.0).expect("times are few");
        Self { to: fed.to.map(number).unwrap_or_default(), at }
    }
}

impl From<Reached> for Fed {
    fn from(Reached { to, at }: Reached) -> Self {
        Self { to: position(to), at: time(at) }
    }
}

fn stream_shard(shard: u8) -> StreamShard {
    StreamShard::from(["2024/parent", "2024/child"][usize::from(shard)])
}

fn of() -> DeploymentId {
    DeploymentId("tally".into())
}

impl Model for Relays {
    type State = State;

    fn initial(&self) -> State {
        State {
            log: self.logs.number(Log::new()),
            fed: [Reached::default(); 2],
            closed: false,
            processes: [None; 2],
            network: Vec::new(),
            timeouts: self.timeouts,
            losing: self.losing,
            leaves: self.leaves,
            busy: self.busy,
            jumps: self.jumps,
            trimmed: false,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (at, process) in state.processes.iter().enumerate() {
            match process {
                None => self.begin(Step("begins", at), state.clone(), at, next),
                Some(process) => self.work(state, at, *process, next),
            }
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let letter = without.network.remove(at);
            self.lands(&without, letter, next);
        }
        self.announce_again(state, next);
        for partition in (0..PARTITIONS as usize).filter(|_| state.jumps > 0) {
            let log = self.jumped(state.log, partition);
            next.push((Step("jumps", partition), State { log, jumps: state.jumps - 1, ..state.clone() }));
        }
        if self.trimmed.is_some() && !state.trimmed {
            next.push((Step("trims", 0), State { trimmed: true, ..state.clone() }));
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let log = self.logs.get(state.log);
        log.0.iter().enumerate().find_map(|(partition, reader)| {
            if !reader.accepted.is_sorted_by(|(one, _), (next, _)| one < next) {
                return Some(ORDER);
            }
            if reader.hole && !reader.lost {
                return Some(FALSE_HOLE);
            }
            if let Some(trimmed) = self.trimmed
                && self.records(partition).any(|(at, _)| at == trimmed)
            {
                match reader.announced_before(trimmed) {
                    Some(true) => return Some(RAISED),
                    None if reader.accepted.iter().any(|(at, announced)| *at > trimmed && !announced) => {
                        return Some(UNANNOUNCED);
                    }
                    _ => {}
                }
            }
            let behind = |shard: u8, fed: Reached| reader.reached(shard).is_some_and(|reached| reached < fed.to);
            if !reader.lost && (0..).zip(state.fed).any(|(shard, fed)| behind(shard, fed)) {
                return Some(FED);
            }
            let missing = self.records(partition).filter(|(at, _)| reader.announced_before(*at).is_none());
            missing.filter(|(at, shard)| !self.is_known_lost(reader, *at, *shard)).find_map(|(at, shard)| {
                let fed = state.fed[usize::from(shard)];
                let is_fed = fed.to >= at || fed.at > at || state.closed && shard == 0;
                let claims = [
                    (reader.as_of() > Some(time(at)), AS_OF),
                    (shard == 0 && reader.reached(shard).is_none(), CLOSED),
                    (is_fed && !reader.lost, FED),
                ];
                claims.into_iter().find_map(|(is_broken, law)| is_broken.then_some(law))
            })
        })
    }

    fn is_goal(&self, state: &State) -> bool {
        let (shard, log) = (u8::from(self.ends()), self.logs.get(state.log));
        let end = Reached { to: self.last(shard), at: self.last(shard) + 1 };
        let is_told = log.0.iter().all(|reader| reader.as_of() == Some(time(end.at)));
        let is_stored = state.fed[usize::from(shard)].to == end.to && state.closed == self.ends();
        is_told && is_stored && state.network.is_empty() && state.processes == [None; 2]
    }
}

const ORDER: &str = "a record is accepted twice, or out of order";
const FALSE_HOLE: &str = "a reader finds a hole, and nothing is lost";
const FED: &str = "a record is stored as fed that a partition does not have";
const AS_OF: &str = "a standing claims a time, and a record of before is missing";
const CLOSED: &str = "a stream shard is closed, and a record of it is missing";
const RAISED: &str = "a record of a lost piece is accepted behind the announcement";
const UNANNOUNCED: &str = "a record behind a lost piece is accepted before the announcement";
