//! A model of the cache of counts in Redis, for one partition of the log `changes`. Two folds both assume that they own
//! the partition, readers fill in values and may stop at any point, a failover loses the last commands, and any key may
//! expire at any time.
//!
//! The cache is the production `Slot`. There is one counter, and each position of the log changes it. A request may
//! arrive after its sender has given it up, and twice. The value that a reader gets contains every change before the
//! standing beside it. That an answer made of two such is right, the model [`honest`](super::honest) holds.
//!
//! In some worlds the two folds and the two readers belong to two deployments with one prefix on one Redis, each with a
//! table of its own. A reader gets values of its own deployment only.

mod actors;
mod tests;

use tally_core::cached::{Entry, FillToken, Slot, Stamp, StandingAt, TakeOverNumber, Taken, Value};
use tally_core::changes::{DeploymentId, Place, Standing};

use crate::explore::{Model, Step};
use crate::intern::{Interned, Number};
use actors::{Fold, Reader};

/// A rule that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A standing is written after the values of every change before it.
    ValuesBeforeStanding,
    /// The cache is also told of changes that were found to be in the table already.
    ToldWhatIsIn,
    /// Values of a write without an answer are written again.
    UnansweredIsUntold,
    /// A write compares the sequence number.
    SequenceCompared,
    /// A write compares the number of the take-over.
    WriterCompared,
    /// Readers ignore values of another take-over.
    ReadersCompare,
    /// Numbers of take-overs are random: a mutant takes one more than the number in the cache and than the fold's own
    /// last one.
    NumbersDrawn,
    /// A fill needs the current token.
    FillNeedsToken,
    /// A write of the fold about the counter replaces the token.
    WriteTakesToken,
    /// A token contains the sequence number at which it was given.
    TokenNamesSequence,
    /// A standing of another deployment counts as absent for readers.
    DeploymentCompared,
    /// A reader drops a token of another take-over than that of the standing it has.
    TokenCompared,
}

/// How often each fault may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    take_overs: u8,
    fills: u8,
    failovers: u8,
    /// Requests that their senders give up.
    given_up: u8,
    /// Requests that arrive again later.
    copies: u8,
}

struct Caching {
    changes: u8,
    readers: usize,
    /// Whether each fold and each reader belongs to a deployment of its own.
    shared: bool,
    left: Left,
    removed: Option<Rule>,
    slots: Interned<Slot<()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The version of the counter in the table of each deployment: everything before that position is included.
    tables: [u8; 2],
    slot: Number,
    /// The contents after a failover.
    replica: Number,
    folds: [Fold; 2],
    readers: Vec<Reader>,
    /// Requests that no sender waits for.
    late: Vec<Request>,
    drawn: u8,
    left: Left,
}

/// A request to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Request {
    TakeOver { of: usize, number: u8, at: u8 },
    Tell { of: usize, stamp: Stamp, value: Option<u8>, stated: Option<u8> },
    Begin { nonce: u8 },
    Fill { of: usize, token: FillToken, value: u8 },
}

fn place(at: u8) -> Place {
    Place::from_stored(at.into())
}

/// The likes tell which deployment wrote the value.
fn value(of: usize, version: u8) -> Value {
    Value { likes: i64::from(of == 1), version: place(version), ..Value::default() }
}

fn taken(of: usize, number: u8) -> Taken {
    Taken { of: id(of), number: TakeOverNumber(number.into()) }
}

fn id(of: usize) -> DeploymentId {
    DeploymentId(["a", "b"][of].into())
}

fn stated(at: u8) -> StandingAt {
    StandingAt { at: place(at), standing: Standing::default() }
}

impl Caching {
    fn new(changes: u8, readers: usize, left: Left) -> Self {
        Self { changes, readers, shared: false, left, removed: None, slots: Interned::default() }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Returns the deployment of the nth fold or reader.
    fn deployment(&self, nth: usize) -> usize {
        if self.shared { nth } else { 0 }
    }

    fn slot(&self, state: &State) -> Slot<()> {
        (*self.slots.get(state.slot)).clone()
    }

    /// Returns the value that a reader gets.
    fn got(&self, slot: &Slot<()>) -> Option<Value> {
        match slot.entries.get(&()) {
            Some(Entry::Value(_, value)) if !self.obeys(Rule::ReadersCompare) => Some(*value),
            _ => slot.get(&()),
        }
    }

    /// Adds the steps of time and of failovers.
    fn environment(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let slot = self.slots.get(state.slot);
        let with = |slot: Slot<()>| State { slot: self.slots.number(slot), ..state.clone() };
        if slot.held.is_some() {
            next.push((Step("the standing expires", 0), with(Slot { held: None, ..(*slot).clone() })));
        }
        if !slot.entries.is_empty() {
            let entries = std::collections::BTreeMap::new();
            next.push((Step("the value expires", 0), with(Slot { entries, ..(*slot).clone() })));
        }
        if state.left.failovers > 0 {
            next.push((Step("replicates", 0), State { replica: state.slot, ..state.clone() }));
            let mut after = State { slot: state.replica, ..state.clone() };
            after.left.failovers -= 1;
            if after.left.failovers == 0 {
                after.replica = self.slots.number(Slot::default());
            }
            next.push((Step("fails over", 0), after));
        }
        for (nth, request) in state.late.iter().enumerate() {
            let mut after = state.clone();
            after.late.remove(nth);
            self.arrives(&mut after, *request, None);
            next.push((Step("lands late", 0), after));
        }
    }
}

impl State {
    fn comes_late(&mut self, request: Request) {
        self.late.push(request);
        self.late.sort_unstable();
    }
}

impl Model for Caching {
    type State = State;

    fn initial(&self) -> State {
        let slot = self.slots.number(Slot::default());
        State {
            tables: [0, 0],
            slot,
            replica: slot,
            folds: [Fold::default(), Fold::default()],
            readers: vec![Reader::Idle; self.readers],
            late: Vec::new(),
            drawn: 0,
            left: self.left,
        }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for at in 0..state.folds.len() {
            self.fold(state, at, next);
        }
        for at in 0..state.readers.len() {
            self.reader(state, at, next);
        }
        self.environment(state, next);
        for (_, state) in next.iter_mut().filter(|_| !self.shared) {
            // Actors of one kind and deployment are interchangeable.
            state.folds.sort_unstable();
            state.readers.sort_unstable();
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let slot = self.slots.get(state.slot);
        let held = slot.held.as_ref()?;
        let found = self.got(&slot);
        let counts = |of: &usize| held.taken.of == id(*of) || !self.obeys(Rule::DeploymentCompared);
        (0..=usize::from(self.shared)).filter(counts).find_map(|of| {
            let claims = [
                (held.stated.at > place(state.tables[of]), AHEAD),
                (found.is_some_and(|found| found.likes != value(of, 0).likes), FOREIGN),
                (found.is_some_and(|found| found.version < held.stated.at), MISSING),
            ];
            claims.into_iter().find_map(|(is_broken, law)| is_broken.then_some(law))
        })
    }

    fn is_goal(&self, state: &State) -> bool {
        let slot = self.slots.get(state.slot);
        let (Some(held), Some(value)) = (&slot.held, slot.get(&())) else { return false };
        if self.shared {
            // A deployment has taken the cache over although another one is further.
            return held.taken.of == id(0) && held.stated.at < place(state.tables[1]);
        }
        [held.stated.at, value.version] == [place(self.changes); 2] && held.sequence > 0
    }
}

const AHEAD: &str = "a standing is ahead of the table";
const FOREIGN: &str = "a reader gets what another deployment has counted";
const MISSING: &str = "a value misses a change before the place of its standing";
