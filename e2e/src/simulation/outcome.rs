//! The outcome of a schedule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The outcome of a schedule, which its process prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// The law that was broken, and how; `None` if all held.
    pub broken: Option<String>,
    /// Whether it was stopped because it did not end in time.
    #[serde(default)]
    pub endless: bool,
    /// The hash of the trace.
    pub hash: u64,
    /// How often each kind of fault occurred.
    pub faults: BTreeMap<String, u64>,
    /// The number of events.
    pub events: u64,
    /// The number of rows at the end.
    pub rows: u64,
    /// The number of recount verdicts that were checked.
    pub verdicts: u64,
    /// The number of milestones that were checked.
    #[serde(default)]
    pub milestones: u64,
    /// The number of judged answers of the API.
    #[serde(default)]
    pub answers: u64,
    /// The number of those that were exact.
    #[serde(default)]
    pub exact: u64,
    /// The number of judged lists of what is trending.
    #[serde(default)]
    pub lists: u64,
    /// The number of those that were exact.
    #[serde(default)]
    pub lists_exact: u64,
    /// The number of those with a bound.
    #[serde(default)]
    pub lists_bounded: u64,
    /// Its duration in virtual time.
    pub virtual_ms: u64,
    /// The last lines of the trace, if they were asked for.
    #[serde(default)]
    pub lines: Vec<String>,
}

impl Outcome {
    /// The broken law that reveals a mutant. A schedule that was stopped reveals nothing, since a mutant that only runs
    /// forever breaks no law.
    pub fn mutant_found(&self) -> Option<&str> {
        self.broken.as_deref().filter(|_| !self.endless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_found_by_a_broken_law_but_not_by_a_time_out() {
        let found = |broken: Option<&str>, endless| {
            let outcome = Outcome { broken: broken.map(str::to_owned), endless, ..Outcome::default() };
            outcome.mutant_found().map(str::to_owned)
        };
        assert_eq!(found(None, false), None);
        assert_eq!(found(Some("a row is missing"), false).as_deref(), Some("a row is missing"));
        assert_eq!(found(Some("took longer than 600 seconds"), true), None);
    }
}
