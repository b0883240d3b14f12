//! Configuration errors: all problems at once, each with the name of its setting and never its value.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;

/// Names a setting by its flag and its variable. The flag may be given with or without its dashes.
pub(crate) fn setting(flag: &str) -> String {
    let flag = flag.trim_start_matches('-');
    format!("--{flag} (TALLY_{})", flag.to_uppercase().replace('-', "_"))
}

/// A configuration that cannot be used. It collects problems while settings are checked, and is then the error.
///
/// ```
/// # use tally_service::Invalid;
/// # struct Args { brokers: Option<String>, rows: u32 }
/// fn check(args: &Args) -> Invalid {
///     let mut invalid = Invalid::none();
///     invalid.require("brokers", args.brokers.as_ref());
///     invalid.ensure("batch-rows", args.rows <= 99, "must be at most 99");
///     invalid
/// }
/// let problems = check(&Args { brokers: None, rows: 100 }).to_string();
/// assert!(problems.contains("--brokers") && problems.contains("--batch-rows"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", .0.join("; "))]
#[must_use]
pub struct Invalid(Vec<String>);

impl Invalid {
    pub fn none() -> Self {
        Self(Vec::new())
    }

    pub fn setting(flag: &str, problem: impl Into<String>) -> Self {
        Self::variable(&setting(flag), problem)
    }

    pub fn variable(variable: &str, problem: impl Into<String>) -> Self {
        let mut invalid = Self::none();
        invalid.add_variable(variable, problem);
        invalid
    }

    pub fn add(&mut self, flag: &str, problem: impl Into<String>) {
        self.add_variable(&setting(flag), problem);
    }

    /// Adds a problem with a variable that has no flag, such as one of AWS's.
    pub fn add_variable(&mut self, variable: &str, problem: impl Into<String>) {
        self.0.push(format!("{variable}: {}", problem.into()));
    }

    /// Returns the value, and adds a problem if there is none.
    pub fn require<T>(&mut self, flag: &str, value: Option<T>) -> Option<T> {
        self.gather(Self::required(flag, value))
    }

    /// Returns the value.
    ///
    /// # Errors
    /// There is none.
    pub fn required<T>(flag: &str, value: Option<T>) -> Result<T, Self> {
        value.ok_or_else(|| Self::setting(flag, "missing, and there is no default"))
    }

    /// Returns the value, and adds a problem if it is an error.
    pub fn accept<T, E: fmt::Display>(&mut self, flag: &str, value: Result<T, E>) -> Option<T> {
        value.map_err(|error| self.add(flag, error.to_string())).ok()
    }

    /// Returns the value, and adds the problems of another check if it is an error.
    pub fn gather<T>(&mut self, checked: Result<T, Self>) -> Option<T> {
        checked.map_err(|other| self.extend(other)).ok()
    }

    /// Adds a problem unless the rule holds.
    pub fn ensure(&mut self, flag: &str, holds: bool, rule: impl Into<String>) {
        if !holds {
            self.add(flag, rule);
        }
    }

    /// Adds the problems of another check.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds the problems of a check that took what is refused here as not given. It does not name a setting again.
    pub(crate) fn extend_without(&mut self, other: Self) {
        let setting = |problem: &String| problem.split(": ").next().map(str::to_owned);
        let refused: BTreeSet<_> = self.0.iter().map(setting).collect();
        let mut others = other.0.into_iter().filter(|problem| !refused.contains(&setting(problem)));
        let first =
            others.next().map(|first| if refused.is_empty() { first } else { format!("without these, {first}") });
        self.0.extend(first.into_iter().chain(others));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_by_flag_and_variable_in_one_line() {
        let mut invalid = Invalid::none();
        assert_eq!(invalid.require::<u8>("brokers", None), None);
        assert_eq!(invalid.accept("shards", "x".parse::<u8>()), None);
        invalid.ensure("--table-prefix", false, "must be short");
        invalid.ensure("linger", true, "never said");
        invalid.extend(Invalid::setting("tls-key", "needs --tls-cert"));
        invalid.add_variable("AWS_REGION", "empty");
        assert_eq!(
            invalid.to_string(),
            "--brokers (TALLY_BROKERS): missing, and there is no default; \
             --shards (TALLY_SHARDS): invalid digit found in string; --table-prefix (TALLY_TABLE_PREFIX): must be short; \
             --tls-key (TALLY_TLS_KEY): needs --tls-cert; AWS_REGION: empty"
        );
    }
}
