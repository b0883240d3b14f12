//! What became of one schedule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One schedule's end, as one process tells another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What it was drawn from.
    pub seed: u64,
    /// The law that was broken, and how; `None` where all held.
    pub broken: Option<String>,
    /// Whether it was given up because it came to no end.
    #[serde(default)]
    pub endless: bool,
    /// The hash of everything that happened.
    pub hash: u64,
    /// How often each kind of fault was done.
    pub faults: BTreeMap<String, u64>,
    /// Events said to the log, rows and likes at the end, verdicts in the ledger.
    pub events: u64,
    /// Rows at the end.
    pub rows: u64,
    /// Verdicts checked.
    pub verdicts: u64,
    /// Milestones checked.
    #[serde(default)]
    pub milestones: u64,
    /// Answers of the API that were judged.
    #[serde(default)]
    pub answers: u64,
    /// Those that said that they were exact.
    #[serde(default)]
    pub exact: u64,
    /// Lists of what is trending that were judged.
    #[serde(default)]
    pub lists: u64,
    /// Those that said that they were exact,
    #[serde(default)]
    pub lists_exact: u64,
    /// and those that stated a bound.
    #[serde(default)]
    pub lists_bounded: u64,
    /// How long it took in virtual time.
    pub virtual_ms: u64,
    /// The last lines of the trace, where they were asked for.
    #[serde(default)]
    pub lines: Vec<String>,
}

impl Outcome {
    /// How a schedule with a mutant shows it. A schedule that was given up shows nothing: a mutant that only runs forever
    /// breaks no law.
    pub fn mutant_found(&self) -> Option<&str> {
        self.broken.as_deref().filter(|_| !self.endless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_found_by_a_broken_law_and_not_by_a_schedule_without_an_end() {
        let found = |broken: Option<&str>, endless| {
            let outcome = Outcome { broken: broken.map(str::to_owned), endless, ..Outcome::default() };
            outcome.mutant_found().map(str::to_owned)
        };
        assert_eq!(found(None, false), None);
        assert_eq!(found(Some("a row is missing"), false).as_deref(), Some("a row is missing"));
        assert_eq!(found(Some("took longer than 600 seconds"), true), None);
    }
}
