//! A model of two deployments with one prefix on one Redis. Each has a table of its own, and a fold and a reader of one
//! partition. The cache is the production `Slot`; writes and fills arrive at any later time. A reader gets values of its
//! own deployment only, and each contains every change before the standing beside it.

use tally_core::cached::{FillToken, Slot, Stamp, TakeOver, TakeOverNumber, Taken, Told, Value};
use tally_core::changes::DeploymentId;

use super::{place, stated};
use crate::explore::{Model, Step, breaks, holds};

/// A rule that a mutant leaves out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// A standing of another deployment counts as absent for readers.
    DeploymentCompared,
    /// A reader drops a token of another take-over than that of the standing it has.
    TokenCompared,
}

struct Sharing {
    removed: Option<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slot: Slot<()>,
    sides: [Side; 2],
    take_overs: u8,
    fills: u8,
}

/// One deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Side {
    /// Every change before this position is in its table.
    table: u8,
    hold: Option<TakeOver>,
    /// Every change before this position was told to the cache.
    told: u8,
    /// A write that has not arrived.
    sent: Option<(Stamp, u8)>,
    reader: Reader,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reader {
    #[default]
    Idle,
    /// It has a standing of this take-over, and no value.
    Saw(TakeOverNumber),
    /// It has a token, and read its table after it got it.
    WillFill(FillToken, u8),
}

/// The likes tell which deployment wrote the value.
fn value(of: usize, version: u8) -> Value {
    Value { likes: i64::from(of == 1), version: place(version), ..Value::default() }
}

fn id(of: usize) -> DeploymentId {
    DeploymentId(if of == 0 { "a" } else { "b" }.into())
}

impl Sharing {
    fn fold(state: &State, of: usize, next: &mut Vec<(Step, State)>) {
        let side = &state.sides[of];
        if side.table < 2 {
            let mut after = state.clone();
            after.sides[of].table += 1;
            next.push((Step("applies", of), after));
        }
        if state.take_overs > 0 {
            let mut after = state.clone();
            let taken = Taken { of: id(of), number: TakeOverNumber(state.take_overs.into()) };
            after.take_overs -= 1;
            after.sides[of].hold = after.slot.take_over(taken, &stated(side.table));
            after.sides[of].told = side.table;
            next.push((Step("takes over", of), after));
        }
        if side.hold.is_some() && side.sent.is_none() && side.told < side.table {
            let mut after = state.clone();
            let stamp = after.sides[of].hold.as_mut().map(TakeOver::stamp);
            after.sides[of].sent = stamp.map(|stamp| (stamp, side.table));
            next.push((Step("sends", of), after));
        }
        if let Some((stamp, at)) = side.sent {
            let mut after = state.clone();
            let told = after.slot.tell(stamp, &[((), value(of, at))], Some(&stated(at)));
            let side = &mut after.sides[of];
            side.sent = None;
            // The answer is of an earlier take-over if the fold has made another one meanwhile.
            let is_own = |hold: &TakeOver| hold.clone().stamp().number == stamp.number;
            if let Some(hold) = side.hold.as_mut().filter(|hold| is_own(hold)) {
                match told {
                    Told::Written(_) => {
                        hold.answered(stamp);
                        side.told = at;
                    }
                    Told::Lost => side.hold = None,
                }
            }
            next.push((Step("lands", of), after));
        }
    }

    fn reader(&self, state: &State, of: usize, next: &mut Vec<(Step, State)>) {
        let mut after = state.clone();
        let reader = &mut after.sides[of].reader;
        let step = match *reader {
            Reader::Idle => {
                let Some(held) = state.slot.held.as_ref().filter(|held| held.taken.of == id(of)) else { return };
                if state.slot.get(&()).is_some() {
                    return;
                }
                *reader = Reader::Saw(held.taken.number);
                Step("looks", of)
            }
            Reader::Saw(_) if state.fills == 0 => return,
            Reader::Saw(number) => {
                after.fills -= 1;
                let token = after.slot.begin_fill(&(), state.fills.into());
                let is_used = |token: &FillToken| token.number() == number || self.removed == Some(Rule::TokenCompared);
                let table = state.sides[of].table;
                *reader = token.filter(is_used).map_or(Reader::Idle, |token| Reader::WillFill(token, table));
                Step("begins a fill", of)
            }
            Reader::WillFill(token, version) => {
                after.slot.fill(&(), token, value(of, version));
                *reader = Reader::Idle;
                Step("fills", of)
            }
        };
        next.push((step, after));
    }
}

impl Model for Sharing {
    type State = State;

    fn initial(&self) -> State {
        State { slot: Slot::default(), sides: Default::default(), take_overs: 3, fills: 2 }
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for of in 0..state.sides.len() {
            Self::fold(state, of, next);
            self.reader(state, of, next);
        }
    }

    fn violation(&self, state: &State) -> Option<&'static str> {
        let held = state.slot.held.as_ref()?;
        let found = state.slot.get(&());
        (0..state.sides.len()).find_map(|of| {
            let counts = held.taken.of == id(of) || self.removed == Some(Rule::DeploymentCompared);
            let is_wrong = |found: Value| found.likes != value(of, 0).likes || found.version < held.stated.at;
            let is_ahead = held.stated.at > place(state.sides[of].table);
            (counts && (is_ahead || found.is_some_and(is_wrong))).then_some(FOREIGN)
        })
    }

    /// A deployment has taken the cache over from one that was further, and a value is in it.
    fn is_goal(&self, state: &State) -> bool {
        let [a, b] = &state.sides;
        let is_of_a = |held: &tally_core::cached::Held| held.taken.of == id(0) && held.stated.at == place(1);
        b.table == 2 && a.table == 1 && state.slot.held.as_ref().is_some_and(is_of_a) && state.slot.get(&()).is_some()
    }
}

const FOREIGN: &str = "a reader gets what is not of its deployment, or older than its standing";

#[test]
fn no_reader_gets_what_another_deployment_counted() {
    holds(&Sharing { removed: None });
}

#[test]
fn each_rule_between_deployments_is_necessary() {
    for rule in [Rule::DeploymentCompared, Rule::TokenCompared] {
        println!("without {rule:?}");
        breaks(&Sharing { removed: Some(rule) }, FOREIGN);
    }
}
