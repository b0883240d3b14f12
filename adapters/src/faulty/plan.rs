//! Which calls fail, and how.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_core::Map;

/// One way in which a call can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Refused for want of capacity; it certainly did not happen.
    Throttled,
    /// Refused as in conflict with another write; it certainly did not happen.
    Conflict,
    /// It happened, and no answer came.
    Applied,
    /// It did not happen, and no answer came.
    Dropped,
    /// It happens, this much later.
    Late(Duration),
}

/// When calls fail. Clones are handles to the same plan; the default lets every call through.
#[derive(Clone, Debug, Default)]
pub struct Plan(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By operation: what its next calls come to, `None` for a call let through.
    script: Map<&'static str, VecDeque<Option<Failure>>>,
    drawn: Option<Drawn>,
    fired: u64,
}

/// Failures drawn from a seed.
#[derive(Debug)]
struct Drawn {
    state: u64,
    one_in: u64,
}

impl Plan {
    /// Lets one call in `one_in` fail, in a way drawn too; the same seed and the same calls give the same failures.
    pub fn seeded(seed: u64, one_in: u32) -> Self {
        let plan = Self::default();
        plan.state().drawn = Some(Drawn { state: seed, one_in: u64::from(one_in.max(1)) });
        plan
    }

    /// Makes the next call of `operation` not spoken for yet fail; operations are the ports' methods.
    pub fn fail_next(&self, operation: &'static str, failure: Failure) {
        self.state().script.entry(operation).or_default().push_back(Some(failure));
    }

    /// Lets the next `calls` of `operation` not spoken for yet through.
    pub fn pass_next(&self, operation: &'static str, calls: usize) {
        self.state().script.entry(operation).or_default().extend(std::iter::repeat_n(None, calls));
    }

    /// Lets every call through from now on.
    pub fn relent(&self) {
        let mut state = self.state();
        state.script.clear();
        state.drawn = None;
    }

    /// How many calls have failed so far, or came late.
    pub fn fired(&self) -> u64 {
        self.state().fired
    }

    /// What the next call of `operation` comes to.
    pub(super) fn draw(&self, operation: &'static str) -> Option<Failure> {
        let mut state = self.state();
        let scripted = state.script.get_mut(operation).and_then(VecDeque::pop_front);
        let failure = match scripted {
            Some(scripted) => scripted,
            None => state.drawn.as_mut().and_then(Drawn::draw),
        };
        state.fired += u64::from(failure.is_some());
        failure
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drawn {
    fn draw(&mut self) -> Option<Failure> {
        if !self.next().is_multiple_of(self.one_in) {
            return None;
        }
        Some(match self.next() % 5 {
            0 => Failure::Throttled,
            1 => Failure::Conflict,
            2 => Failure::Applied,
            3 => Failure::Dropped,
            _ => Failure::Late(Duration::from_millis(self.next() % 2_000)),
        })
    }

    /// SplitMix64: small, and the same everywhere.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_failures_every_time_and_every_kind_of_them() {
        let failures = |seed| {
            let plan = Plan::seeded(seed, 10);
            (0..2000).map(|_| plan.draw("apply")).collect::<Vec<_>>()
        };
        assert_eq!(failures(1), failures(1));
        assert_ne!(failures(1), failures(2));
        let fired: Vec<Failure> = failures(1).into_iter().flatten().collect();
        assert!((100..400).contains(&fired.len()), "{} of 2000", fired.len());
        for failure in [Failure::Throttled, Failure::Conflict, Failure::Applied, Failure::Dropped] {
            assert!(fired.contains(&failure), "{failure:?}");
        }
    }

    #[test]
    fn a_script_strikes_the_call_it_names() {
        let plan = Plan::default();
        plan.pass_next("apply", 1);
        plan.fail_next("apply", Failure::Dropped);
        let drawn: Vec<_> = (0..3).map(|_| plan.draw("apply")).collect();
        assert_eq!(drawn, [None, Some(Failure::Dropped), None]);
        assert_eq!((plan.draw("judge"), plan.fired()), (None, 1));
    }

    #[test]
    fn a_plan_that_relents_fails_nothing_any_more() {
        let plan = Plan::seeded(1, 1);
        plan.fail_next("apply", Failure::Dropped);
        assert!(plan.draw("apply").is_some() && plan.draw("apply").is_some());
        plan.relent();
        assert_eq!(plan.draw("apply"), None);
    }
}
