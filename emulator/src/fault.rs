//! Fault injection: rules that let requests to the emulator fail or be late, by chance or at given calls, and the
//! number of times that each fault happened. The emulator carries the faults out.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::clock::{Millis, millis};

/// A way in which a request can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Throttled; a transaction is cancelled with `ThrottlingError`.
    Throttle,
    /// A batch of several carries out a part, and returns the rest as `UnprocessedItems` or `UnprocessedKeys`. Other
    /// operations are not affected.
    Unprocessed,
    /// In conflict with a transaction: `TransactionConflictException`, or a cancelled transaction. Only writes and
    /// transactions are affected.
    Conflict,
    /// Answered with status 500. `applied` says whether the request is carried out; without it, chance decides.
    InternalError {
        /// Whether the request is carried out before the error.
        #[serde(default)]
        applied: Option<bool>,
    },
    /// Answered late. The request is carried out at some time within the delay.
    Latency {
        /// The shortest delay, in milliseconds.
        min_ms: u64,
        /// The longest delay, in milliseconds.
        max_ms: u64,
    },
    /// Carried out, but the connection closes before the reply.
    DropReply,
    /// The connection closes or stays silent, and the request is carried out later, within five minutes.
    Ghost {
        /// The longest delay, in milliseconds of the emulator's clock.
        max_delay_ms: u64,
        /// How long the client is kept waiting, in milliseconds, instead of closing its connection at once.
        #[serde(default)]
        hang_ms: u64,
    },
    /// The connection closes, and nothing is carried out.
    Outage,
}

impl Fault {
    /// The fault's name in rules and statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Throttle => "throttle",
            Self::Unprocessed => "unprocessed",
            Self::Conflict => "conflict",
            Self::InternalError { .. } => "internal_error",
            Self::Latency { .. } => "latency",
            Self::DropReply => "drop_reply",
            Self::Ghost { .. } => "ghost",
            Self::Outage => "outage",
        }
    }

    /// Whether this fault can affect this operation.
    fn applies_to(self, operation: &str) -> bool {
        match self {
            Self::Unprocessed => matches!(operation, "BatchGetItem" | "BatchWriteItem"),
            Self::Conflict => matches!(
                operation,
                "PutItem"
                    | "UpdateItem"
                    | "DeleteItem"
                    | "TransactWriteItems"
                    | "TransactGetItems"
                    | "PartiQLInsert"
                    | "PartiQLUpdate"
                    | "PartiQLDelete"
            ),
            _ => true,
        }
    }
}

/// Which of the matching requests a rule affects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum When {
    /// All.
    Always,
    /// Each with this probability.
    Chance(f64),
    /// The calls `first` to `first + count - 1`, counted from one since the rule was set.
    Calls {
        /// The first affected call.
        first: u64,
        /// The number of affected calls.
        count: u64,
    },
}

/// A fault, the requests that it affects, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The affected operation (`UpdateItem`), or the action of affected statements (`PartiQLUpdate`), each statement of a
    /// batch by itself. Without it, all requests are affected; calls are then counted, and latency added, per request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The affected table, with its stream; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Which of the requests are affected.
    #[serde(default = "always")]
    pub when: When,
    /// How long the rule is in force, in milliseconds of the emulator's clock; forever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

fn always() -> When {
    When::Always
}

impl Rule {
    /// A rule that affects every request.
    pub fn new(fault: Fault) -> Self {
        Self { fault, operation: None, table: None, when: When::Always, for_ms: None }
    }

    /// Restricts the rule to an operation.
    #[must_use]
    pub fn on(mut self, operation: &str) -> Self {
        self.operation = Some(operation.to_owned());
        self
    }

    /// Restricts the rule to a table.
    #[must_use]
    pub fn table(mut self, table: &str) -> Self {
        self.table = Some(table.to_owned());
        self
    }

    /// Restricts the rule to requests chosen with this probability.
    #[must_use]
    pub fn chance(mut self, probability: f64) -> Self {
        self.when = When::Chance(probability);
        self
    }

    /// Restricts the rule to the nth call, counted from one.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        self.calls(nth, 1)
    }

    /// Restricts the rule to `count` calls, beginning with `first`, counted from one.
    #[must_use]
    pub fn calls(mut self, first: u64, count: u64) -> Self {
        self.when = When::Calls { first, count };
        self
    }

    /// Whether a rule without an operation also affects each statement of a batch by itself.
    fn meets_every_statement(&self) -> bool {
        !matches!(self.when, When::Calls { .. }) && !matches!(self.fault, Fault::Latency { .. })
    }

    /// Restricts the rule to a duration.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.for_ms = Some(millis(duration));
        self
    }
}

/// A rule, and how many matching calls it has seen.
#[derive(Debug)]
struct Armed {
    rule: Rule,
    set: Millis,
    calls: u64,
}

/// A request, or one statement of a batch, for which the rules decide.
pub(crate) struct Asked<'a> {
    /// The operation; `None` for a statement of a batch.
    pub(crate) operation: Option<&'static str>,
    /// The action of the statement, if there is one.
    pub(crate) action: Option<&'static str>,
    /// Whether it reads or writes this table or its stream.
    pub(crate) touches: &'a dyn Fn(&str) -> bool,
}

impl Asked<'_> {
    fn name(&self) -> &'static str {
        self.operation.or(self.action).unwrap_or("statement")
    }
}

/// The decision of the rules about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The delays before and after the request is carried out.
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    /// The fault.
    pub(crate) fault: Option<Fault>,
}

impl Verdict {
    /// Extends the delays to those of another verdict, which run at the same time.
    pub(crate) fn wait_for(&mut self, other: Self) {
        if other.before + other.after > self.before + self.after {
            (self.before, self.after) = (other.before, other.after);
        }
    }

    /// Adds a delay of `least` to `most` milliseconds, part of it before the request is carried out.
    pub(crate) fn delay(&mut self, least: Millis, most: Millis, rng: &mut StdRng) {
        let delay = rng.random_range(least..=most.max(least));
        let before = rng.random_range(0..=delay);
        self.before += Duration::from_millis(before);
        self.after += Duration::from_millis(delay - before);
    }
}

/// The rules in force, and how often each fault fired, by operation.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Vec<Armed>,
    pub(crate) fired: BTreeMap<String, BTreeMap<&'static str, u64>>,
}

impl Faults {
    pub(crate) fn set(&mut self, rules: Vec<Rule>, now: Millis) {
        self.rules = rules.into_iter().map(|rule| Armed { rule, set: now, calls: 0 }).collect();
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        self.rules.iter().map(|armed| armed.rule.clone()).collect()
    }

    pub(crate) fn are_set(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Applies every rule. Delays add up; of the other faults, the first wins.
    pub(crate) fn decide(&mut self, asked: &Asked<'_>, now: Millis, rng: &mut StdRng) -> Verdict {
        let mut verdict = Verdict::default();
        for armed in &mut self.rules {
            if !armed.strikes(asked, now, rng) {
                continue;
            }
            match armed.rule.fault {
                Fault::Latency { min_ms, max_ms } => verdict.delay(min_ms, max_ms, rng),
                _ if verdict.fault.is_some() => continue,
                fault => verdict.fault = Some(fault),
            }
            let name = armed.rule.fault.name();
            *self.fired.entry(asked.name().to_owned()).or_default().entry(name).or_default() += 1;
        }
        verdict
    }
}

impl Armed {
    fn strikes(&mut self, asked: &Asked<'_>, now: Millis, rng: &mut StdRng) -> bool {
        let Rule { fault, operation: only, table, when, for_ms } = &self.rule;
        let is_called = match only.as_deref() {
            Some(only) => asked.operation == Some(only) || asked.action == Some(only),
            None => asked.operation.is_some() || self.rule.meets_every_statement(),
        };
        let meant = is_called
            && table.as_deref().is_none_or(asked.touches)
            && for_ms.is_none_or(|lasts| now < self.set.saturating_add(lasts))
            && fault.applies_to(asked.action.unwrap_or(asked.name()));
        if !meant {
            return false;
        }
        self.calls += 1;
        match *when {
            When::Always => true,
            When::Chance(probability) => rng.random_bool(probability.clamp(0.0, 1.0)),
            When::Calls { first, count } => (first..first.saturating_add(count)).contains(&self.calls),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Whether a rule that is set at 5000 affects a request.
    fn strikes(rule: &Rule, asked: &Asked<'_>, now: Millis) -> bool {
        let mut faults = Faults::default();
        faults.set(vec![rule.clone()], 5000);
        faults.decide(asked, now, &mut StdRng::seed_from_u64(1)).fault.is_some()
    }

    fn statement(action: &'static str) -> Asked<'static> {
        Asked { operation: None, action: Some(action), touches: &|table| table == "likes" }
    }

    #[test]
    fn a_rule_matches_a_statement_by_its_action_and_counts_it_under_that_name_only() {
        let statement = statement("PartiQLUpdate");
        let request = Asked { operation: Some("ExecuteStatement"), ..statement };
        let rule = || Rule::new(Fault::Conflict);
        for (rule, of_a_batch, alone) in [
            (rule(), true, true),
            (rule().on("PartiQLUpdate").nth(1), true, true),
            (rule().nth(1), false, true),
            (Rule::new(Fault::Latency { min_ms: 0, max_ms: 0 }), false, false),
            (rule().on("ExecuteStatement"), false, true),
            (rule().on("PartiQLInsert"), false, false),
            (rule().on("PartiQLUpdate").table("counts"), false, false),
        ] {
            assert_eq!(strikes(&rule, &statement, 5000), of_a_batch, "{rule:?}");
            assert_eq!(strikes(&rule, &request, 5000), alone, "{rule:?}");
        }
    }

    #[test]
    fn no_read_is_in_conflict() {
        let asked = statement("PartiQLSelect");
        for (fault, expected) in [(Fault::Conflict, false), (Fault::Throttle, true)] {
            assert_eq!(strikes(&Rule::new(fault).on("PartiQLSelect"), &asked, 5000), expected, "{fault:?}");
        }
    }

    #[test]
    fn an_outage_ends() {
        let brief = Rule::new(Fault::Outage).lasting(Duration::from_secs(1));
        let asked = statement("PartiQLUpdate");
        assert!(strikes(&brief, &asked, 5999) && !strikes(&brief, &asked, 6000));
    }

    #[test]
    fn rules_are_plain_json() {
        let rule: Rule = serde_json::from_str(
            r#"{"fault":{"latency":{"min_ms":1,"max_ms":9}},"operation":"Query","when":{"chance":0.5},"for_ms":100}"#,
        )
        .unwrap();
        let expected = Rule::new(Fault::Latency { min_ms: 1, max_ms: 9 }).on("Query").chance(0.5);
        assert_eq!(rule, expected.lasting(Duration::from_millis(100)));
        assert_eq!(serde_json::from_str::<Rule>(r#"{"fault":"outage"}"#).unwrap(), Rule::new(Fault::Outage));
        assert!(serde_json::from_str::<Rule>(r#"{"fault":"outage","tabel":"x"}"#).is_err());
    }
}
