//! From a schedule that fails to a smaller one that still does.

use super::kind::Kinds;
use super::{Schedule, run};

/// The smallest schedule found of the same seed that breaks a law: kinds of faults are taken away one by one, then events.
pub fn shrink(failing: Schedule) -> Schedule {
    let mut smallest = failing;
    let still_fails = |schedule: Schedule| run(schedule).broken.is_some();
    for kind in Kinds::ALL.iter() {
        let smaller = Schedule { kinds: smallest.kinds.without(kind), ..smallest };
        if smaller != smallest && still_fails(smaller) {
            smallest = smaller;
        }
    }
    while smallest.events > 1 {
        let smaller = Schedule { events: smallest.events / 2, ..smallest };
        if !still_fails(smaller) {
            break;
        }
        smallest = smaller;
    }
    smallest
}
