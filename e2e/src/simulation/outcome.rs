//! What a run of the simulation results in: the law that broke, if any, and counts of what happened and was checked.
//! The process of the run prints it as JSON, and the command that started the process reads it.

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
    /// The numbers of events, of rows at the end, of checked verdicts of recounts and milestones, of judged answers and lists,
    /// and of milliseconds of virtual time.
    pub checked: BTreeMap<String, u64>,
    /// The last lines of the trace, if they were asked for.
    #[serde(default)]
    pub lines: Vec<String>,
}

impl Outcome {
    /// Notes a count under a name.
    pub(crate) fn note(&mut self, what: &str, count: u64) {
        self.checked.insert(what.to_owned(), count);
    }

    /// Returns the count under this name; 0 if none was noted.
    pub fn checked(&self, what: &str) -> u64 {
        self.checked.get(what).copied().unwrap_or_default()
    }

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
