//! Explores the models of the core, which are small worlds around its decision functions: it walks every state that a
//! model can reach, breadth first. Tests call [`holds`], [`holds_and_ends_well`], [`breaks`] or [`strands`], which
//! print one line with the test's name, the result and the number of states. A walk finds each state once, the shortest
//! way to a broken law, and whether the goal can still be reached from everywhere.
//!
//! Mutants, which are models without one rule, test the explorer, too: it has to find what each of them breaks.
//!
//! `TALLY_MODELS=large` sets the larger bounds ([`bounds`]), which take minutes and gigabytes, for the nightly run.

use std::fmt::{Debug, Write as _};
use std::hash::{BuildHasher, Hash};
use std::io::Write as _;
use std::sync::LazyLock;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// What happens in a step, and to which one of its kind; 0 if there is only one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step(pub(crate) &'static str, pub(crate) usize);

/// A small world: its initial state, its possible steps, and its laws.
pub(crate) trait Model {
    type State: Clone + Eq + Hash + Debug;

    fn initial(&self) -> Self::State;

    /// Everything that may happen in `state`, with the resulting states.
    fn steps(&self, state: &Self::State, next: &mut Vec<(Step, Self::State)>);

    /// The law that `state` breaks, if it breaks one.
    fn violation(&self, state: &Self::State) -> Option<&'static str>;

    /// Whether the purpose of the model is reached. A law that only holds because nothing ever finishes is worthless.
    fn is_goal(&self, state: &Self::State) -> bool;
}

/// Asserts that no reachable state breaks the law and that some reach the goal.
#[track_caller]
pub(crate) fn holds<M: Model>(model: &M) {
    Walk::lawful(model, Edges::Forgotten).report("holds");
}

/// Asserts the same, and that the goal can still be reached from every state.
#[track_caller]
pub(crate) fn holds_and_ends_well<M: Model>(model: &M) {
    let walk = Walk::lawful(model, Edges::Kept);
    if let Some(stuck) = walk.stuck(model) {
        panic!("the goal is out of reach from here:\n{}", walk.trace(model, stuck));
    }
    walk.report("holds, and the goal stays within reach");
}

/// Asserts that the walk finds a state that breaks `law`.
#[track_caller]
pub(crate) fn breaks<M: Model>(model: &M, law: &str) {
    let walk = Walk::of(model, Edges::Forgotten);
    let Some((state, broken)) = &walk.violation else {
        panic!("nothing broke in {} states", walk.states.len());
    };
    assert!(*broken == law, "another law is broken: {broken}\n{}", walk.trace(model, *state));
    let steps = walk.path(*state).len() - 1;
    walk.report(&format!("breaks as it must, in {steps} steps"));
}

/// Asserts that no law is broken and that the goal is out of reach from some state.
#[track_caller]
pub(crate) fn strands<M: Model>(model: &M) {
    let walk = Walk::lawful(model, Edges::Kept);
    assert!(walk.stuck(model).is_some(), "the goal can be reached from all {} states", walk.states.len());
    walk.report("strands as it must");
}

/// The bounds of a model: `usual` ones for each test run, or `large` ones if the environment asks for them.
pub(crate) fn bounds<T>(usual: T, large: T) -> T {
    if *LARGE { large } else { usual }
}

/// Whether the larger bounds are asked for.
#[expect(clippy::disallowed_methods, reason = "the core reads no environment; its tests are told how far to walk")]
static LARGE: LazyLock<bool> = LazyLock::new(|| std::env::var("TALLY_MODELS").is_ok_and(|asked| asked == "large"));

/// The limit of states in a walk. Beyond it, the bounds are too large.
fn most_states() -> usize {
    if *LARGE { 60_000_000 } else { 3_000_000 }
}

/// Whether transitions are stored, which is only needed to find out what can still be reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edges {
    Kept,
    Forgotten,
}

struct Walk<M: Model> {
    states: Vec<M::State>,
    /// The state from which each one was first reached.
    origins: Vec<Option<u32>>,
    /// Every transition, as (to, from).
    edges: Vec<(u32, u32)>,
    violation: Option<(usize, &'static str)>,
}

impl<M: Model> Walk<M> {
    #[track_caller]
    fn lawful(model: &M, edges: Edges) -> Self {
        let walk = Self::of(model, edges);
        if let Some((state, law)) = &walk.violation {
            panic!("the law is broken: {law}\n{}", walk.trace(model, *state));
        }
        assert!(walk.states.iter().any(|state| model.is_goal(state)), "no state reaches the goal");
        walk
    }

    fn of(model: &M, edges: Edges) -> Self {
        let most = most_states();
        let mut walk = Self { states: Vec::new(), origins: Vec::new(), edges: Vec::new(), violation: None };
        let mut index = HashTable::new();
        walk.visit(&mut index, model.initial(), None);
        let (mut at, mut next) = (0, Vec::new());
        while at < walk.states.len() {
            if let Some(law) = model.violation(&walk.states[at]) {
                walk.violation = Some((at, law));
                break;
            }
            model.steps(&walk.states[at], &mut next);
            let from = short(at);
            for (_, state) in next.drain(..) {
                let to = walk.visit(&mut index, state, Some(from));
                if edges == Edges::Kept {
                    walk.edges.push((short(to), from));
                }
            }
            assert!(walk.states.len() <= most, "more than {most} states");
            at += 1;
        }
        walk
    }

    /// Returns the number of `state`, and stores the state if it is new. `index` has the hash and the number of each
    /// state.
    fn visit(&mut self, index: &mut HashTable<(u64, usize)>, state: M::State, origin: Option<u32>) -> usize {
        let hash = FixedState::default().hash_one(&state);
        if let Some((_, known)) = index.find(hash, |(its, known)| *its == hash && self.states[*known] == state) {
            return *known;
        }
        let number = self.states.len();
        index.insert_unique(hash, (hash, number), |(hash, _)| *hash);
        self.states.push(state);
        self.origins.push(origin);
        number
    }

    /// Returns a state from which no goal can be reached, if there is one.
    fn stuck(&self, model: &M) -> Option<usize> {
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); self.states.len()];
        for (to, from) in &self.edges {
            before[*to as usize].push(*from);
        }
        let mut fine: Vec<bool> = self.states.iter().map(|state| model.is_goal(state)).collect();
        let mut open: Vec<usize> = (0..fine.len()).filter(|state| fine[*state]).collect();
        while let Some(state) = open.pop() {
            for from in &before[state] {
                if !std::mem::replace(&mut fine[*from as usize], true) {
                    open.push(*from as usize);
                }
            }
        }
        fine.iter().position(|fine| !fine)
    }

    /// Returns the states on the shortest way to `state`.
    fn path(&self, state: usize) -> Vec<usize> {
        let origin = |state: &usize| self.origins[*state].map(|from| from as usize);
        let mut path: Vec<usize> = std::iter::successors(Some(state), origin).collect();
        path.reverse();
        path
    }

    /// Returns the shortest way to `state` as text: each step, and the state after it.
    fn trace(&self, model: &M, state: usize) -> String {
        let (path, mut next) = (self.path(state), Vec::new());
        let mut text = format!("  from {:?}", self.states[path[0]]);
        for way in path.windows(2) {
            let (from, to) = (&self.states[way[0]], &self.states[way[1]]);
            model.steps(from, &mut next);
            let (step, _) = next.drain(..).find(|(_, state)| state == to).expect("the walk took this step");
            write!(text, "\n  {step:?}\n  to   {to:?}").expect("a String takes every text");
        }
        text
    }

    /// Prints the result of the walk under the name of the test. It writes to standard output directly, since the
    /// output of the macros is captured in tests that pass.
    fn report(&self, outcome: &str) {
        let thread = std::thread::current();
        // Each test runs in a thread with its name, unless one thread runs all of them.
        let name = thread.name().unwrap_or_else(|| std::any::type_name::<M>());
        let line = format!("{name}: {outcome}; {} states\n", self.states.len());
        std::io::stdout().lock().write_all(line.as_bytes()).expect("a test can print");
    }
}

/// Returns the number of a state in half the memory.
fn short(number: usize) -> u32 {
    u32::try_from(number).expect("a walk has fewer states than that")
}
