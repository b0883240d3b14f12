//! The machine that applies a stream shard, as the models walk it: each of its states is kept once, and so is what each
//! input leads to. Nothing of it is left out: two states of a model are one only where the whole machine is the same.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;
use std::time::Duration;

use foldhash::fast::FixedState;
use tally_core::Map;
use tally_core::apply::{Apply, Effect, Input, Rules};
use tally_core::tally::CutRules;
use tally_core::time::{Now, UnixMillis};
use tally_core::window::CaptureLimits;

use crate::intern::{Interned, Number};

/// Prefixes end when the model says so, by letting their age pass.
pub(super) const RULES: Rules = Rules {
    cut: CutRules { records: usize::MAX, age: Duration::from_secs(1) },
    window: CaptureLimits { members: usize::MAX, age: Duration::MAX },
    concurrency: 1,
};

/// When everything happens but the end of a prefix.
pub(super) const NOW: Now = Now { at: Duration::ZERO, wall: UnixMillis(0) };
/// When a prefix is old enough to be written, and no checkpoint is old enough to be refreshed.
pub(super) const AGED: Now = Now { at: RULES.cut.age, wall: UnixMillis(0) };

/// Machines by number, and what was seen to happen to each; `K` names what happens.
pub(super) struct Machines<K> {
    machines: Interned<Apply>,
    known: RefCell<Map<(Number, K), Stepped>>,
}

/// A machine after a step, and what it wants done.
#[derive(Clone)]
pub(super) struct Stepped {
    pub(super) machine: Number,
    pub(super) effects: Rc<[Effect]>,
}

impl<K: Copy + Eq + Hash> Machines<K> {
    pub(super) fn new() -> Self {
        let hash = |machine: &Apply| FixedState::default().hash_one(format!("{machine:?}"));
        Self { machines: Interned::new(hash), known: RefCell::default() }
    }

    pub(super) fn start(&self, machine: Apply) -> Number {
        self.machines.number(machine)
    }

    /// Hands `inputs` to a machine, which `happening` stands for. Each answer is handed in twice: the second copy must
    /// change nothing.
    pub(super) fn step(&self, machine: Number, happening: K, inputs: impl FnOnce() -> Vec<(Now, Input)>) -> Stepped {
        if let Some(known) = self.known.borrow().get(&(machine, happening)) {
            return known.clone();
        }
        let mut after = (*self.machines.get(machine)).clone();
        let mut effects = Vec::new();
        for (now, input) in inputs() {
            after.step(now, input.clone(), &mut effects);
            if matches!(input, Input::Answered(..)) {
                let (once, wanted) = (after.clone(), effects.len());
                after.step(now, input, &mut effects);
                assert!(after == once && effects.len() == wanted, "an answer was taken twice");
            }
        }
        let stepped = Stepped { machine: self.machines.number(after), effects: effects.into() };
        self.known.borrow_mut().insert((machine, happening), stepped.clone());
        stepped
    }
}
